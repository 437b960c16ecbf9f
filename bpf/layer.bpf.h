/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stacked devices: device mapper, md, multipath heads.
 *
 * Such a device turns a bio into bios of its own for the devices below. Who caused them is known of
 * the bio above, whose pages still have an owner; below there may be ciphertext, copies or parity.
 * block_bio_remap tells of each new bio which device and sector above it is for. So bios of stacked
 * devices are also noted by the sectors that they cover, and a bio from above takes over the origin
 * of the one whose sectors it carries on. Each layer counts its own bytes; a row of the lower one
 * says through which top-most device it came.
 */
#ifndef BPF_LAYER_BPF_H_
#define BPF_LAYER_BPF_H_

#include "bpf/row.bpf.h"

/* An entry older than this many seconds belongs to bios whose end was not seen. */
#define RANGE_STALE_SECONDS 60

static __always_inline u32 disk_number(const struct gendisk* disk) {
  return ((u32)disk->major << 20) | (u32)disk->first_minor;
}

static __always_inline struct gendisk* bio_disk(const struct bio* bio) {
  const struct bio___disk* old = (const void*)bio;
  if (bpf_core_field_exists(old->bi_disk)) return old->bi_disk;
  return bio->bi_bdev->bd_disk;
}

static __always_inline u32 disk_of_plain_bio(u64 bio) {
  struct bio___disk* old = 0;
  u64 disk;
  if (bpf_core_field_exists(old->bi_disk)) {
    disk = (u64)LOAD(struct bio___disk, bio, bi_disk);
  } else {
    u64 bdev = (u64)LOAD(struct bio, bio, bi_bdev);
    disk = (u64)LOAD(struct block_device, bdev, bd_disk);
  }
  return ((u32)LOAD(struct gendisk, disk, major) << 20) |
         (u32)LOAD(struct gendisk, disk, first_minor);
}

/* Partition that a bio was sent to. */
static __always_inline u8 partition_of(struct bio* bio) {
  struct block_device___flags* newer = (void*)bio->bi_bdev;
  if (bpf_core_field_exists(newer->__bd_flags)) return (u8)newer->__bd_flags.counter;
  struct block_device___partno* older = (void*)bio->bi_bdev;
  if (bpf_core_field_exists(older->bd_partno)) return older->bd_partno;
  return 0;
}

/* --- Bios by sectors --- */

__noinline int range_put(u32 dev, u32 level, u64 at, u64 bio) {
  struct fb_range_key key = {.dev = dev, .level = level, .at = at};
  u32 now = live.epoch;
  struct fb_range* there = bpf_map_lookup_elem(&ranges, &key);
  if (there && there->holders && now - there->epoch <= RANGE_STALE_SECONDS) {
    if (there->bio != bio) there->bio = 0;
    ADD(there->holders, 1);
    return 0;
  }
  struct fb_range fresh = {.bio = bio, .holders = 1, .epoch = now};
  if (bpf_map_update_elem(&ranges, &key, &fresh, BPF_ANY)) count(FB_COUNTER_range_nomem);
  live.range_levels |= 1u << (key.level & 31);
  return 0;
}

__noinline int range_take(u32 dev, u32 level, u64 at) {
  struct fb_range_key key = {.dev = dev, .level = level, .at = at};
  struct fb_range* there = bpf_map_lookup_elem(&ranges, &key);
  if (!there) return 0;
  if (there->holders > 1)
    ADD(there->holders, -1);
  else
    bpf_map_delete_elem(&ranges, &key);
  return 0;
}

/* Level of the largest block that begins at a sector and ends before `end`. */
__noinline u32 range_level(u64 sector, u64 end) {
  u64 length = end - sector;
  u32 level = 0;
  for (u32 step = 16; step; step >>= 1) {
    u64 size = 1ull << (level + step);
    if (level + step < FB_RANGE_LEVELS && length >= size && !(sector & (size - 1))) level += step;
  }
  return level;
}

/* Notes the sectors of a bio (bio != 0), or no longer. */
__noinline int range_mark(u32 dev, u64 sector, u32 bytes, u64 bio) {
  u64 end = sector + bytes / 512;
  for (u32 i = 0; i < 64; ++i) {
    if (sector >= end) break;
    u32 level = range_level(sector, end) & 31;
    if (bio)
      range_put(dev, level, sector >> level, bio);
    else
      range_take(dev, level, sector >> level);
    sector += 1ull << level;
  }
  return 0;
}

/* The origin of a bio as its stacked or loop device `dev` got it. */
static __always_inline struct fb_origin* origin_above(u64 bio, u32 dev) {
  struct fb_origin* o = bio_find(bio);
  if (o && o->dev == dev && (o->flags & (FB_ORIGIN_STACKED | FB_ORIGIN_NOTED))) return o;
  o = bio_find(bio + 1);
  return o && o->dev == dev ? o : 0;
}

/* The bio that is noted for a block, if it holds all these sectors. */
__noinline u64 range_get(u32 dev, u32 level, u64 sector, u32 bytes) {
  struct fb_range_key key = {.dev = dev, .level = level, .at = sector >> (level & 31)};
  struct fb_range* there = bpf_map_lookup_elem(&ranges, &key);
  if (!there || !there->bio) return 0;
  u64 bio = there->bio;
  struct fb_origin* o = origin_above(bio, dev);
  if (!o || sector < o->sector || sector + bytes / 512 > o->sector + o->bytes / 512) return 0;
  return bio;
}

__noinline u32 operation_above(u64 bio, u32 dev) {
  struct fb_origin* o = origin_above(bio, dev);
  return o ? o->opf & REQ_OP_MASK : ~0u;
}

/* The bio of a stacked device that holds all these sectors, by preference one of this operation. */
__noinline u64 range_find(u32 dev, u64 sector, u32 bytes, u32 opf) {
  u64 other = 0;
  for (u32 level = 0; level < FB_RANGE_LEVELS; ++level) {
    if (!(live.range_levels & (1u << level))) continue;
    u64 bio = range_get(dev, level, sector, bytes);
    if (!bio) continue;
    if (operation_above(bio, dev) == (opf & REQ_OP_MASK)) return bio;
    other = bio;
  }
  return other;
}

/* --- From one layer to the next --- */

/* A bio that is linked to one above arrives at its device. */
static __always_inline void settle(struct fb_origin* o, u64 bio, u32 dev,
                                   const struct fb_device* device) {
  u32 bytes = LOAD(struct bio, bio, bi_iter.bi_size);
  o->dev = dev;
  o->part = 0;
  o->queue_ns = bpf_ktime_get_boot_ns();
  o->issue_ns = 0;
  o->done_bytes = 0;
  o->requeues = 0;
  o->sector = LOAD(struct bio, bio, bi_iter.bi_sector);
  o->opf = LOAD(struct bio, bio, bi_opf);
  o->op = operation_of(o->opf, bytes);
  o->flags &= FB_ORIGIN_DOUBLE | FB_ORIGIN_BELOW;
  if (device && (device->flags & FB_DEVICE_HEAD)) o->flags |= FB_ORIGIN_HEAD;
  if (bytes != o->bytes) rescale(o, bytes);
  if (device && (device->flags & (FB_DEVICE_BIOS | FB_DEVICE_LOOP))) {
    o->flags |= device->flags & FB_DEVICE_BIOS ? FB_ORIGIN_STACKED : FB_ORIGIN_NOTED;
    range_mark(dev, o->sector, bytes, bio);
  }
}

__noinline int drop_bio(u64 bio) {
  bio_remove(bio);
  return 0;
}

/* Puts the origin in scratch memory into the table. */
__noinline int store_origin(u32 level, u64 bio) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (s && !bio_put(bio, &s->origin)) count(FB_COUNTER_bio_nomem);
  return 0;
}

/* Copies the origin of a bio of a stacked device to scratch memory. */
__noinline int fetch_origin(u32 level, u64 bio, u32 dev) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  struct fb_origin* above = origin_above(bio, dev);
  if (!s || !above) return 0;
  copy_origin(&s->origin, above);
  return 1;
}

/* Whether a bio is one that a stacked device was given and has not ended. */
__noinline int is_bio_of(u64 bio, u32 dev) {
  struct fb_origin* o = bio_find(bio);
  return o && o->dev == dev && (o->flags & FB_ORIGIN_STACKED);
}

__noinline int settle_scratch(u32 level, u64 bio) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  u32 below = disk_of_plain_bio(bio);
  if (s) settle(&s->origin, bio, below, device_of(below));
  return 0;
}

/* A bio was made from one above. */
__noinline int link_bio(u32 level, u64 bio, u32 dev, u64 from) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  const struct fb_device* device = device_of(dev);
  if (!s || !device) return 0;
  struct fb_origin* o = &s->origin;
  u32 bytes = LOAD(struct bio, bio, bi_iter.bi_size);
  u32 opf = LOAD(struct bio, bio, bi_opf);
  u32 flags = FB_ORIGIN_LINKED;
  int known = 0;
  /* Queued before, it is not queued again on the disk below. */
  bool queued = config.bio_queued && (LOAD(struct bio, bio, bi_flags) & config.bio_queued);
  if (is_bio_of(bio, dev)) {
    /* The bio itself goes on. It is not queued again, and its end is that of the request below. */
    known = fetch_origin(level, bio, dev);
    drop_bio(bio);
    drop_bio(bio + 1);
    store_origin(level, bio + 1);
    flags |= FB_ORIGIN_DOUBLE;
    queued = true;
  } else {
    drop_bio(bio);
    u64 above = 0;
    /* Parity belongs to no sector above; md says 0. */
    if (bytes && (from || !(device->flags & FB_DEVICE_PARITY)))
      above = range_find(dev, from, bytes, opf);
    if (above) known = fetch_origin(level, above, dev);
  }
  u32 top = dev;
  if (known) {
    flags |= FB_ORIGIN_KNOWN;
    if (o->flags & FB_ORIGIN_BELOW) top = o->top;
  } else {
    o->shares = 0;
    o->bytes = bytes;
    o->dev = dev;
  }
  o->top = top;
  o->flags = flags | FB_ORIGIN_BELOW;
  o->issue_ns = 0;
  o->queue_ns = bpf_ktime_get_boot_ns();
  if (queued && !known) return 0; /* its bytes are lost, and counted */
  if (queued) settle_scratch(level, bio);
  store_origin(level, bio);
  return 0;
}

/* What may be an address of the kernel, or anything else: 5.10 says so in its log if it is none. */
static __always_inline bool may_be_address(u64 word) { return word >> 56 == 0xff; }
static __always_inline u64 follow(u64 record, u32 offset) {
  return may_be_address(record) ? load_word(record + offset) : 0;
}

/*
 * Kernels before 5.18 do not tell of the bios that dm-crypt makes, nor of those that a target puts
 * off. There a bio of device mapper lies in a record that leads to the bio above: five words before
 * the bio, and there the fourth. A wrong turn does no harm: what is found must be a bio that is on its
 * way to a stacked device, does the same, and is no smaller.
 */
static __always_inline u64 bio_above_clone(u64 clone) {
  return follow(load_word(clone - 40), 24);
}

/* The origin of a bio that is on its way to a stacked device, wholly or a part of it still. */
static __always_inline struct fb_origin* on_its_way(u64 bio) {
  struct fb_origin* o = bio ? bio_find(bio) : 0;
  if (!o || !(o->flags & FB_ORIGIN_STACKED)) return 0;
  /* What another bio has left behind under this address is somewhere else. */
  u64 sector = LOAD(struct bio, bio, bi_iter.bi_sector);
  return sector - o->sector < o->bytes / 512 ? o : 0;
}

__noinline int adopt_from(u32 level, u64 bio, u64 above) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  struct fb_origin* o = s ? on_its_way(above) : 0;
  if (s && may_be_address(above) && !o) {
    /* The front part of a bio, which leads to the whole. */
    above = (u64)LOAD(struct bio, above, bi_private);
    o = on_its_way(above);
  }
  if (!o) return 0;
  u32 opf = LOAD(struct bio, bio, bi_opf);
  if ((o->opf ^ opf) & REQ_OP_MASK) return 0;
  if (LOAD(struct bio, bio, bi_iter.bi_size) > o->bytes) return 0;
  u32 dev = o->dev;
  u32 top = o->flags & FB_ORIGIN_BELOW ? o->top : dev;
  if (!fetch_origin(level, above, dev)) return 0;
  s->origin.top = top;
  s->origin.flags = FB_ORIGIN_BELOW;
  settle_scratch(level, bio);
  store_origin(level, bio);
  return 1;
}

/* A bio that nobody has told of comes to a disk on which something stands. */
static __always_inline int adopt_bio(u32 level, u64 bio) {
  if (adopt_from(level, bio, bio_above_clone(bio))) return 1;
  /* dm-crypt has a record of its own, whose second word is the bio of device mapper. */
  u64 record = (u64)LOAD(struct bio, bio, bi_private);
  return adopt_from(level, bio, bio_above_clone(follow(record, 8)));
}

/* Those who are known to have caused a write take part in what the driver writes besides. */
__noinline int note_writers(u64 bio, u32 writers) {
  struct fb_origin* o = bio_find(bio);
  if (!o || o->op != FB_OP_WRITE) return 0;
  u32 n = o->shares;
  for (u32 i = 0; i < FB_SHARES; ++i) {
    if (i >= n) break;
    u32 act = o->share[i].act;
    u32 confidence = o->share[i].confidence & FB_CONFIDENCE_MASK;
    if (confidence == FB_CONF_ISSUER && !act) act = intern_act(o->issuer_actor, o->issuer_stack);
    if (confidence == FB_CONF_JOURNAL || !act) continue;
    ledger_add(writers, LEDGER_WRITERS, act, 1 + (o->share[i].bytes >> (config.page_shift & 31)),
               0);
  }
  return 0;
}

/* A bio that is used anew, for whatever disk, has ended before. */
static __always_inline void forget_old_bio(u64 key) {
  struct fb_origin* old = bio_find(key);
  if (!old) return;
  count(FB_COUNTER_bio_reused);
  if (old->flags & FB_ORIGIN_NOTED) range_mark(old->dev, old->sector, old->bytes, 0);
  if (old->issue_ns) charge_missed(key);
  bio_remove(key);
}

#define LINK_NONE 0u /* a bio like any other */
#define LINK_DONE 1u /* nothing is left to do for it */

/* A bio is queued that is in the table. Returns one of the above, or the top-most device if that is
 * all that is known. */
__noinline u32 queue_known(u64 bio, u32 dev) {
  struct fb_origin* o = bio_find(bio);
  if (!o) return LINK_NONE;
  if (!(o->flags & FB_ORIGIN_LINKED)) {
    forget_old_bio(bio);
    return LINK_NONE;
  }
  const struct fb_device* device = device_of(dev);
  bool watched = device && device->watched;
  if (watched && (o->flags & FB_ORIGIN_KNOWN)) {
    settle(o, bio, dev, device);
    if (device->flags & FB_DEVICE_NOTED) note_writers(bio, device->writers);
    return LINK_DONE;
  }
  u32 top = o->top;
  drop_bio(bio);
  return watched ? top : LINK_DONE;
}

/*
 * The end of a bio of a device that makes no requests, or of a multipath head that had no path left
 * for it: then it has failed. What ends as a request is no longer in the table, or, as the driver of
 * NVMe announces it before, has not failed yet.
 */
__noinline int complete_stacked(u64 bio, u32 error, u64 now) {
  struct fb_origin* o = bio_find(bio);
  if (!o || !(o->flags & (error ? FB_ORIGIN_STACKED | FB_ORIGIN_HEAD : FB_ORIGIN_STACKED)))
    return 0;
  if (o->flags & FB_ORIGIN_STACKED) range_mark(o->dev, o->sector, o->bytes, 0);
  struct fb_end end = {.ios = 1, .error = error, .io_ns = now - o->queue_ns};
  charge_origin(o, &end, bio, false);
  bio_remove(bio);
  return 0;
}

#endif /* BPF_LAYER_BPF_H_ */
