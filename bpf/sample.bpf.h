/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which IOs are looked at. All of them, until a CPU starts more than it may cost to look at; from
 * then on one in 2^n, chosen at random, which stands for the others. What is skipped is still
 * counted when it ends (skipped.bpf.h), so that user space can charge it in proportion and the
 * books balance.
 *
 * Skipped are IOs that blame their issuer, direct IO and reads, and writes of single pages whose
 * dirtiers are not looked at either (page_sample.bpf.h). Any other write of dirty pages takes their
 * dirtiers out of the page table, so each one is looked at.
 */
#ifndef BPF_SAMPLE_BPF_H_
#define BPF_SAMPLE_BPF_H_

#include "bpf/layer.bpf.h"
#include "bpf/sample_rate.bpf.h"

/* So many IOs in a row have to come too fast before the first is skipped. */
#define SAMPLE_CALM 1024u
#define SAMPLE_MAX_SHIFT 10u
/* Looking at a large IO costs little beside the IO; and it may be split, which hides what it was.
 */
#define SAMPLE_MAX_BYTES 65536u

/* 64 bytes, so that an IO which is skipped touches little when it begins: these, `live`, and the bucket
 * that its address may be in. */
struct sampler {
  u64 since_ns; /* when it began to count */
  u64 needed_ns; /* when a lower shift would last have been too low */
  u32 looked_at;
  u32 skip;  /* IOs to skip from now on */
  u32 shift; /* one in 2^shift is looked at */
  u32 window; /* in which one was last */
  u64 skipped;  /* the last bio that was, until block_bio_queue_again has heard of it too */
  u64 address;  /* see bio_address */
  u64 queued_to; /* the disk asked for last, and its traits */
  u64 ended_on;  /* the same for IOs that end, which may do so while another begins */
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct sampler);
} samplers SEC(".maps");

static __always_inline struct sampler* sampler(void) {
  u32 zero = 0;
  return bpf_map_lookup_elem(&samplers, &zero);
}

/* After some IOs that were looked at: whether more or fewer are to be skipped. */
static __always_inline void adapt(struct sampler* my, u32 shift, u64 now) {
  u64 took = now - my->since_ns;
  u32 looked_at = my->looked_at;
  u32 fit = sufficient_shift(shift, SAMPLE_MAX_SHIFT, looked_at, took);
  if (is_needed(shift, looked_at, took)) my->needed_ns = now;
  if (fit > shift)
    my->shift = fit;
  else if (shift && now - my->needed_ns > SAMPLE_PATIENCE_NS)
    my->shift = is_easily_slow_enough(0, shift, looked_at, took) ? 0 : shift - 1;
  my->looked_at = 0;
  my->since_ns = now;
}

/* --- Of which disks --- */

/* What of a disk is asked for each IO: its index, shifted by TRAIT_BITS, and these. */
#define TRAIT_KNOWN 1u   /* it is watched, or was */
#define TRAIT_SAMPLED 2u /* its direct IO and reads are sampled */
#define TRAIT_PAGES 4u   /* and its writes of pages */
#define TRAIT_BITS 3
#define TRAITS_BITS 13

/* On a stacked device, or a loop device on a file of a disk, the bios below want to know of each one
 * above. */
static __always_inline u32 traits_of(const struct fb_device* device) {
  if (!device) return 0;
  u32 traits = (device->index & (FB_MAX_DEVICES - 1)) << TRAIT_BITS | TRAIT_KNOWN;
  if (!device->watched || (device->flags & (FB_DEVICE_BIOS | FB_DEVICE_LOOP))) return traits;
  traits |= TRAIT_SAMPLED;
  return device->flags || device->upper ? traits : traits | TRAIT_PAGES;
}

/* What the disk of a bio is known by without looking at it: the number of the block device, which may
 * be a partition, and a little of the disk's address, as numbers are given anew. */
static __always_inline u64 disk_mark(u64 bio) {
  struct bio___disk* old = 0;
  if (bpf_core_field_exists(old->bi_disk)) return disk_of_plain_bio(bio);
  u64 bdev = (u64)LOAD(struct bio, bio, bi_bdev);
  u64 disk = (u64)LOAD(struct block_device, bdev, bd_disk);
  u32 dev = LOAD(struct block_device, bdev, bd_dev);
  return (disk >> 6) << 32 ^ dev;
}

/* `memo` holds the answer for the disk that was asked for last, to be had without another cache line.
 * It is one word, as a hook may come in between. */
static __always_inline u32 traits_of_disk(u64* memo, u64 bio) {
  u64 id = (disk_mark(bio) ^ (u64)live.devices_changed << 32) << TRAITS_BITS;
  u64 known = *(volatile u64*)memo;
  if ((known ^ id) < 1u << TRAITS_BITS) return known & ((1u << TRAITS_BITS) - 1);
  u32 traits = traits_of(device_of(disk_of_plain_bio(bio)));
  *(volatile u64*)memo = id | traits;
  return traits;
}

/* --- Of which kind --- */

/* The page of a file that a bio writes: one that is under writeback, or a part of it, on a
 * filesystem whose pages are sampled. */
static __noinline int find_written_page(u64 bio, struct fb_page_key* key) {
  u32 shift = config.page_shift & 31;
  u32 bytes = LOAD(struct bio, bio, bi_iter.bi_size);
  struct bio_vec vec;
  view_vec((u64)LOAD(struct bio, bio, bi_io_vec), LOAD(struct bio, bio, bi_iter.bi_idx), &vec);
  u32 offset = vec.bv_offset + done_of_first(bio);
  if (!bytes || (offset & ((1u << shift) - 1)) + bytes > 1u << shift) return 0;
  struct page_view view = {};
  view_page((u64)vec.bv_page + (u64)(offset >> shift) * bpf_core_type_size(struct page), &view);
  if (!view.mapping || (view.mapping & 3)) return 0;
  if (!(view.flags & (1ull << bpf_core_enum_value(enum pageflags, PG_writeback)))) return 0;
  struct inode* inode = LOAD(struct address_space, view.mapping, host);
  if ((u64)LOAD(struct inode, inode, i_mapping) != view.mapping) return 0;
  if (is_block_device(LOAD(struct inode, inode, i_mode))) return 0;
  if (!is_sampled_filesystem(LOAD(struct super_block, LOAD(struct inode, inode, i_sb), s_magic)))
    return 0;
  inode_key(inode, &key->inode);
  key->group = view.index / FB_GROUP_PAGES;
  return 1;
}

/* The function that ends a bio is one that only ends writes of pages, unless it is the one for any
 * buffer. */
static __always_inline void remember_end(u64 bio) {
  if (live.page_write_end || !config.buffer_end) return;
  u64 end = (u64)LOAD(struct bio, bio, bi_end_io);
  if (end != config.buffer_end) live.page_write_end = end;
}

__noinline int writes_unseen_page(u64 bio) {
  u32 level = live.page_level;
  struct fb_page_key key = {};
  if (!level || !find_written_page(bio, &key)) return 0;
  if (group_is_seen(&key, page_mix(&key), level)) return 0;
  remember_end(bio);
  return 1;
}

static __always_inline bool is_sampled(u64 bio, u32 opf, u32 flags, u32 bytes, u32 traits) {
  if (!config.sample_ns || live.trace || !(traits & TRAIT_SAMPLED)) return false;
  u32 op = opf & REQ_OP_MASK;
  if (op == REQ_OP_READ || (op == REQ_OP_WRITE && (flags & config.bio_pinned)))
    return bytes && bytes <= SAMPLE_MAX_BYTES;
  return op == REQ_OP_WRITE && (traits & TRAIT_PAGES) && live.page_level && writes_unseen_page(bio);
}

/* --- Whether this one --- */

/* The address of a bio as a number. `place`: where in the hook's context it stands. */
static __always_inline u64 bio_address(struct sampler* my, const struct bio* bio,
                                       const u64* place) {
  u64 address = 0;
  if (config.in_place && !config.preemptible) {
    /* Such kernels run a program once at a time on a CPU: nobody comes in between. */
    *(volatile u64*)&my->address = (u64)bio;
    return *(volatile u64*)&my->address;
  }
  bpf_probe_read_kernel(&address, sizeof(address), place);
  return address;
}

/* While IOs are skipped: whether this one is. Not if its address is in the table: see queue_known. */
static __always_inline bool skip_bio(const struct bio* bio, const u64* place) {
  struct sampler* my = sampler();
  if (!my || !my->skip) return false;
  if (live.window - my->window > 1) {
    /* There is so little to do by now that it may be looked at. */
    my->skip = 0;
    return false;
  }
  u64 address = bio_address(my, bio, place);
  u32 traits = traits_of_disk(&my->queued_to, address);
  if (!(traits & TRAIT_SAMPLED)) return false;
  u32 bytes = bio->bi_iter.bi_size;
  if (!is_sampled(address, bio->bi_opf, bio->bi_flags, bytes, traits)) return false;
  /* Another thread may have come in between where hooks can be preempted. */
  u32 left = my->skip;
  if (!left || bio_find(address)) return false;
  my->skip = left - 1;
  my->skipped = address;
  if (live.skipped != live.window) live.skipped = live.window;
  return true;
}

/* Of one that is not skipped: the logarithm of how many it stands for. */
__noinline u32 sample_weight(u64 now) {
  struct sampler* my = sampler();
  if (!my) return 0;
  u32 shift = my->shift & 15;
  u32 looked_at = ++my->looked_at;
  my->window = live.window;
  if (!shift) {
    if (looked_at >= SAMPLE_CALM) adapt(my, shift, now);
    return 0;
  }
  /* The number of skipped ones is 0 to 2 * 2^shift - 2, all as likely: one in 2^shift is not. */
  u32 most = (2u << shift) - 1;
  u32 skip = bpf_get_prandom_u32() & most;
  my->skip = skip == most ? most >> 1 : skip;
  if (is_time_to_adapt(looked_at, my->since_ns, now)) adapt(my, shift, now);
  return shift;
}

#endif /* BPF_SAMPLE_BPF_H_ */
