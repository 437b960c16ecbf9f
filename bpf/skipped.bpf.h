/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The end of IOs that were skipped (sample.bpf.h): they are in no table, and are counted by device
 * and kind.
 */
#ifndef BPF_SKIPPED_BPF_H_
#define BPF_SKIPPED_BPF_H_

#include "bpf/sample.bpf.h"

/* IOs that were skipped are no longer on their way after so many windows. */
#define SKIPPED_WINDOWS 64u

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, FB_MAX_DEVICES * FB_SKIPPED_KINDS);
  __type(key, u32);
  __type(value, struct fb_skipped);
} skipped SEC(".maps");

/* Of which kind an IO is that ends and that nothing is known of, if it may be one that was skipped;
 * else FB_SKIPPED_KINDS. The front of a bio that was split has the whole one behind it. */
static __always_inline u32 kind_of_skipped(u64 bio, u32 op) {
  if (!live.skipped || live.window - live.skipped > SKIPPED_WINDOWS) return FB_SKIPPED_KINDS;
  if (op == REQ_OP_READ) return FB_SKIPPED_READ;
  if (op != REQ_OP_WRITE) return FB_SKIPPED_KINDS;
  u32 pinned = config.bio_pinned;
  if (LOAD(struct bio, bio, bi_flags) & pinned) return FB_SKIPPED_DIRECT_WRITE;
  /* What a page's write has behind it is no bio. */
  u64 end = live.page_write_end;
  struct fb_page_key key;
  if ((end && (u64)LOAD(struct bio, bio, bi_end_io) == end) || find_written_page(bio, &key))
    return FB_SKIPPED_PAGE_WRITE;
  u64 whole = (u64)LOAD(struct bio, bio, bi_private);
  bool direct = pinned && (LOAD(struct bio, whole, bi_flags) & pinned);
  return direct ? FB_SKIPPED_DIRECT_WRITE : FB_SKIPPED_KINDS;
}

/* Traits of the disk for which the end of a bio counts. */
static __always_inline u32 traits_at_end(u64 bio) {
  struct sampler* my = sampler();
  if (!my) return 0;
  u32 traits = traits_of_disk(&my->ended_on, bio);
  return traits ? traits : traits_of(device_of_request(disk_of_plain_bio(bio)));
}

/* `bytes` of a bio without origin are done: a value of enum completed. An error is too rare to be
 * estimated; it is a row of its own, of which all is known but who asked. */
static __always_inline int count_skipped(u64 bio, u32 opf, u32 bytes, u32 flags, u32 error) {
  u32 kind = kind_of_skipped(bio, opf & REQ_OP_MASK);
  if (kind >= FB_SKIPPED_KINDS) return BIO_UNKNOWN;
  u32 traits = traits_at_end(bio);
  if (!traits) return BIO_DONE; /* not watched */
  if (error) {
    count(FB_COUNTER_skipped_failed);
    return BIO_FAILED;
  }
  u32 index = (traits >> TRAIT_BITS) * FB_SKIPPED_KINDS + kind;
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
  return count_skipped(bio, LOAD(struct bio, bio, bi_opf), bytes, flags, error);
}

/* The short way for nearly all of them: the last bytes of a request that is one bio, and that ends well.
 * False if it is something else, of which nothing has been counted. */
__noinline int complete_alone_skipped(u64 bio, u32 opf, u32 bytes) {
  if (live.stacks || bio_find(bio)) return false;
  return count_skipped(bio, opf, bytes, COMPLETE_FIRST, 0) == BIO_DONE;
}

#endif /* BPF_SKIPPED_BPF_H_ */
