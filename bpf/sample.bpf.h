/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which IOs are looked at. All of them, until a CPU starts more than it may cost to look at; from
 * then on one in 2^n, chosen at random, which stands for the others. What is skipped is still
 * counted when it ends, by device and direction, so that user space can charge it in proportion and
 * the books balance.
 *
 * Only IOs that blame their issuer are skipped: direct IO and reads. A write of dirty pages also
 * takes their dirtiers out of the page table, so each one is looked at.
 */
#ifndef BPF_SAMPLE_BPF_H_
#define BPF_SAMPLE_BPF_H_

#include "bpf/layer.bpf.h"

/* So many IOs in a row have to come too fast before the first is skipped, and so many that are
 * looked at before the rate is changed again. */
#define SAMPLE_CALM 1024u
#define SAMPLE_STEP 64u
#define SAMPLE_MAX_SHIFT 10u
/* Looking at a large IO costs little beside the IO; and it may be split, which hides what it was.
 */
#define SAMPLE_MAX_BYTES 65536u
/* IOs that were skipped are no longer on their way after so many windows. */
#define SKIPPED_WINDOWS 64u

struct sampler {
  u64 since_ns; /* when it began to count */
  u32 looked_at;
  u32 skip;  /* IOs to skip from now on */
  u32 shift; /* one in 2^shift is looked at */
  u32 reserved;
  u64 skipped; /* the last bio that was, until block_bio_queue_again has heard of it too */
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct sampler);
} samplers SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, FB_MAX_DEVICES * 2);
  __type(key, u32);
  __type(value, struct fb_skipped);
} skipped SEC(".maps");

/* After some IOs that were looked at: whether more or fewer are to be skipped. */
static __always_inline void adapt(struct sampler* my, u32 shift) {
  u64 now = bpf_ktime_get_boot_ns();
  u64 took = now - my->since_ns;
  u64 wanted = (u64)my->looked_at * config.sample_ns;
  if (took < wanted) {
    if (shift < SAMPLE_MAX_SHIFT) my->shift = shift + 1;
  } else if (took > 16 * wanted) {
    my->shift = 0;
  } else if (took > 3 * wanted && shift) {
    my->shift = shift - 1;
  }
  my->looked_at = 0;
  my->since_ns = now;
}

static __always_inline struct sampler* sampler(void) {
  u32 zero = 0;
  return bpf_map_lookup_elem(&samplers, &zero);
}

/* Whether a bio is of a kind that is sampled. On a stacked device, or a loop device on a file of a
 * disk, the bios below want to know of each one above. */
static __always_inline bool may_skip(u32 opf, u32 flags, u32 bytes,
                                     const struct fb_device* device) {
  if (!config.sample_ns || live.trace || (device->flags & (FB_DEVICE_BIOS | FB_DEVICE_LOOP)))
    return false;
  u32 op = opf & REQ_OP_MASK;
  if (op != REQ_OP_READ && !(op == REQ_OP_WRITE && (flags & config.bio_pinned))) return false;
  return bytes && bytes <= SAMPLE_MAX_BYTES;
}

static __always_inline bool is_skipping(void) {
  struct sampler* my = sampler();
  return my && my->skip;
}

/* While IOs are skipped: whether this one is. Not if its address is in the table: see queue_known. */
__noinline int skip_bio(u64 bio) {
  struct sampler* my = sampler();
  const struct fb_device* device = device_of(disk_of_plain_bio(bio));
  if (!my || !device || !device->watched) return 0;
  u32 opf = LOAD(struct bio, bio, bi_opf);
  u32 flags = LOAD(struct bio, bio, bi_flags);
  if (!may_skip(opf, flags, LOAD(struct bio, bio, bi_iter.bi_size), device)) return 0;
  /* Another thread may have come in between where hooks can be preempted. */
  u32 left = my->skip;
  if (!left || bio_find(bio)) return 0;
  my->skip = left - 1;
  my->skipped = bio;
  if (live.skipped != live.window) live.skipped = live.window;
  return 1;
}

/* Of one that is not skipped: the logarithm of how many it stands for. */
__noinline u32 sample_weight(void) {
  struct sampler* my = sampler();
  if (!my) return 0;
  u32 shift = my->shift & 15;
  if (shift) {
    /* The number of skipped ones is 0 to 2 * 2^shift - 2, all as likely: one in 2^shift is not. */
    u32 most = (2u << shift) - 1;
    u32 skip = bpf_get_prandom_u32() & most;
    my->skip = skip == most ? most >> 1 : skip;
  }
  if (++my->looked_at >= (shift ? SAMPLE_STEP : SAMPLE_CALM)) adapt(my, shift);
  return shift;
}

/* Whether an IO that ends and that nothing is known of may be one that was skipped. The front of a bio
 * that was split has the whole one behind it. */
static __always_inline bool was_skipped(u64 bio, u32 op) {
  if (!live.skipped || live.window - live.skipped > SKIPPED_WINDOWS) return false;
  if (op == REQ_OP_READ) return true;
  if (op != REQ_OP_WRITE || !config.bio_pinned) return false;
  if (LOAD(struct bio, bio, bi_flags) & config.bio_pinned) return true;
  u64 whole = (u64)LOAD(struct bio, bio, bi_private);
  return LOAD(struct bio, whole, bi_flags) & config.bio_pinned;
}

/* `bytes` of a bio without origin are done: a value of enum completed. An error is too rare to be
 * estimated; it is a row of its own, of which all is known but who asked. */
static __always_inline int count_skipped(u64 bio, u32 bytes, u32 flags, u32 error) {
  u32 op = LOAD(struct bio, bio, bi_opf) & REQ_OP_MASK;
  if (!was_skipped(bio, op)) return BIO_UNKNOWN;
  const struct fb_device* device = device_of_request(disk_of_plain_bio(bio));
  if (!device) return BIO_DONE; /* not watched */
  if (error) {
    count(FB_COUNTER_skipped_failed);
    return BIO_FAILED;
  }
  u32 index = device->index * 2 + (op == REQ_OP_WRITE);
  struct fb_skipped* cell = bpf_map_lookup_elem(&skipped, &index);
  if (!cell) return BIO_UNKNOWN;
  if (config.in_place) {
    /* This CPU's own; and since 6.1, which is before 6.2, a program runs once at a time on a CPU. */
    cell->bytes += bytes;
    if (flags & COMPLETE_FIRST) cell->ios += 1;
  } else {
    /* The end of another IO may come in between. Adding a constant 0 becomes an atomic or: see
     * count_lost. */
    if (bytes) ADD(cell->bytes, bytes);
    if (flags & COMPLETE_FIRST) ADD(cell->ios, 1);
  }
  return BIO_DONE;
}
__noinline int complete_skipped(u64 bio, u32 bytes, u32 flags, u32 error) {
  return count_skipped(bio, bytes, flags, error);
}

/* The short way for nearly all of them: a request that is one whole bio, and that ends well. False
 * if it is something else, of which nothing has been counted. */
__noinline int complete_alone_skipped(u64 bio, u32 bytes) {
  if (LOAD(struct bio, bio, bi_iter.bi_size) != bytes || LOAD(struct bio, bio, bi_next)) return false;
  if (live.stacks || bio_find(bio)) return false;
  return count_skipped(bio, bytes, COMPLETE_FIRST, 0) == BIO_DONE;
}

#endif /* BPF_SAMPLE_BPF_H_ */
