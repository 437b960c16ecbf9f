/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bios on their way, by address. A place belongs to whoever puts its bio into it first; only the
 * hooks of that bio touch it from then on, and these follow one another.
 */
#ifndef BPF_BIO_TABLE_BPF_H_
#define BPF_BIO_TABLE_BPF_H_

#include "bpf/maps.bpf.h"

/* Without compare-and-swap all bios are in the hash map. */
#define BIO_BUCKETS (CAN_CLAIM ? config.bio_buckets : 0)

/* Bios that lie in one page of memory, as those on their way mostly do, have their buckets in one
 * page: what is searched for each IO should not need an entry of its own in the TLB. Where in the page
 * depends on that page too, as some bios only begin at a few places of it. */
#define BIO_PLACES 64u
static __always_inline u32 bio_bucket_number(u64 bio) {
  u64 mix = (bio >> 12) * 0x9E3779B97F4A7C15ull;
  u32 place = (u32)(bio >> 6) + (u32)(mix >> 34);
  return ((u32)(mix >> 40) * BIO_PLACES | (place & (BIO_PLACES - 1))) & (config.bio_buckets - 1);
}

static __always_inline struct fb_origin* origin_at(u32 number, u32 way) {
  u32 place = number * FB_BIO_WAYS + way;
  return bpf_map_lookup_elem(&origins, &place);
}

static __always_inline struct fb_origin* bio_find(u64 bio) {
  if (BIO_BUCKETS) {
    u32 number = bio_bucket_number(bio);
    struct fb_bio_bucket* bucket = bpf_map_lookup_elem(&bio_buckets, &number);
    if (bucket) {
      for (u32 way = 0; way < FB_BIO_WAYS; ++way)
        if (bucket->bio[way] == bio) return origin_at(number, way);
    }
    if (!live.spilled) return 0;
  }
  return bpf_map_lookup_elem(&bios, &bio);
}

/* Only what is used of an origin: most have one share. */
static __always_inline void copy_origin(struct fb_origin* to, const struct fb_origin* from) {
  __builtin_memcpy(to, from, __builtin_offsetof(struct fb_origin, share[1]));
  to->sector = from->sector;
  to->opf = from->opf;
  to->issuer_tid = from->issuer_tid;
  to->top = from->top;
  if (from->shares > 1)
    for (u32 i = 1; i < FB_SHARES; ++i) to->share[i] = from->share[i];
}

/* Puts a bio that is not in the table into it. */
static __always_inline bool bio_put(u64 bio, const struct fb_origin* origin) {
  if (BIO_BUCKETS) {
    u32 number = bio_bucket_number(bio);
    struct fb_bio_bucket* bucket = bpf_map_lookup_elem(&bio_buckets, &number);
    if (bucket) {
      for (u32 way = 0; way < FB_BIO_WAYS; ++way) {
        if (bucket->bio[way] || !CLAIM(&bucket->bio[way], bio)) continue;
        struct fb_origin* place = origin_at(number, way);
        if (!place) break;
        copy_origin(place, origin);
        return true;
      }
    }
    live.spilled = 1;
  }
  return bpf_map_update_elem(&bios, &bio, origin, BPF_ANY) == 0;
}

static __always_inline void bio_remove(u64 bio) {
  if (BIO_BUCKETS) {
    u32 number = bio_bucket_number(bio);
    struct fb_bio_bucket* bucket = bpf_map_lookup_elem(&bio_buckets, &number);
    if (bucket) {
      for (u32 way = 0; way < FB_BIO_WAYS; ++way) {
        if (bucket->bio[way] != bio) continue;
        struct fb_origin* origin = origin_at(number, way);
        /* Until its next owner has filled it in, user space is to see that this is nobody's. */
        if (origin) origin->dev = 0;
        bucket->bio[way] = 0;
        return;
      }
    }
    if (!live.spilled) return;
  }
  bpf_map_delete_elem(&bios, &bio);
}

#endif /* BPF_BIO_TABLE_BPF_H_ */
