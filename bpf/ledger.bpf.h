/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who took part in a transaction, and who last changed a metadata block.
 *
 * jbd2 tells at the end of each handle how many blocks it used, in the context of whoever ran it:
 * one ledger for each transaction. Filesystems without such a number (xfs, btrfs) and everything
 * outside a transaction have one fading ledger for the filesystem: its weights halve with time, and
 * shrink at once when new work arrives after the old was written out.
 */
#ifndef BPF_LEDGER_BPF_H_
#define BPF_LEDGER_BPF_H_

#include "bpf/page.bpf.h"

#define LEDGER_HALF_LIFE_NS 4000000000ull
#define LEDGER_PAUSE_NS 2000000ull
#define LEDGER_WRITTEN_SHIFT 4
#define LEDGER_UNIT 256u
#define LEDGER_MAX_WEIGHT 0x3fffffffu
/* Instead of a transaction: the ledger of those who write to a stacked device. It fades too. */
#define LEDGER_WRITERS 0xffffffffu

static __always_inline struct fb_ledger* ledger_get(u32 dev, u32 tid) {
  struct fb_ledger_key key = {.dev = dev, .tid = tid};
  return bpf_map_lookup_elem(&ledgers, &key);
}

/* The first half of a filesystem's own id. */
static __always_inline u64 fs_owner(struct super_block* sb) {
  return load_word((u64)sb + bpf_core_field_offset(sb->s_uuid));
}

/*
 * tid 0: the fading ledger of the filesystem. `owner` tells filesystems apart that follow one
 * another under the same device number; 0 = not known here.
 */
__noinline int ledger_add(u32 dev, u32 tid, u32 act, u32 weight, u64 owner) {
  if (!act || !dev) return 0;
  struct fb_ledger_key key = {.dev = dev, .tid = tid};
  struct fb_ledger* ledger = bpf_map_lookup_elem(&ledgers, &key);
  if (!ledger) {
    const struct blank* empty = blank();
    if (!empty) return 0;
    bpf_map_update_elem(&ledgers, &key, &empty->ledger, BPF_NOEXIST);
    ledger = bpf_map_lookup_elem(&ledgers, &key);
    if (!ledger) return 0;
  }
  if (owner && ledger->owner != owner) {
    const struct blank* empty = blank();
    if (!empty) return 0;
    if (ledger->owner) *ledger = empty->ledger;
    ledger->owner = owner;
  }
  if (!tid || tid == LEDGER_WRITERS) {
    u64 now = bpf_ktime_get_boot_ns();
    u64 age = now - ledger->decayed_ns;
    u64 shift = 0;
    if (age > LEDGER_HALF_LIFE_NS) {
      shift = age / LEDGER_HALF_LIFE_NS;
      ledger->decayed_ns = now;
    }
    if (ledger->charged_ns > ledger->added_ns && now - ledger->charged_ns > LEDGER_PAUSE_NS)
      shift += LEDGER_WRITTEN_SHIFT;
    ledger->added_ns = now;
    if (shift > 12) shift = 12;
    if (shift)
      for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) ledger->weight[i] >>= shift;
  }
  weight *= LEDGER_UNIT;
  struct fb_act* mine = act_of(act);
  if (!mine) return 0;
  u32 actor = mine->key.actor;
  u32 least = 0;
  u32 least_weight = ~0u;
  for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) {
    u32 have = ledger->weight[i];
    if (ledger->act[i] == act) {
      if (have < LEDGER_MAX_WEIGHT) ledger->weight[i] = have + weight;
      return 0;
    }
    if (!ledger->act[i]) have = 0;
    if (have < least_weight) {
      least = i;
      least_weight = have;
    }
  }
  if (least_weight >= LEDGER_UNIT) {
    /* Full: another act of the same actor stands for this one too. */
    for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) {
      if (ledger->actor[i] != actor) continue;
      if (ledger->weight[i] < LEDGER_MAX_WEIGHT) ledger->weight[i] += weight;
      return 0;
    }
    count(FB_COUNTER_ledger_overflow);
  }
  /* The newcomer takes the place, but not the weight, of the least one. */
  ledger->act[least & (FB_LEDGER_ACTS - 1)] = act;
  ledger->actor[least & (FB_LEDGER_ACTS - 1)] = actor;
  ledger->weight[least & (FB_LEDGER_ACTS - 1)] = weight;
  return 0;
}

/* Byte 0 of the disk that a block device is (part of), and the disk's number. */
static __always_inline u64 device_start(struct block_device* bdev, u32* disk_dev) {
  struct gendisk* disk = LOAD(struct block_device, bdev, bd_disk);
  *disk_dev =
      ((u32)LOAD(struct gendisk, disk, major) << 20) | (u32)LOAD(struct gendisk, disk, first_minor);
  if (bpf_core_field_exists(bdev->bd_start_sect))
    return LOAD(struct block_device, bdev, bd_start_sect) * 512;
  struct block_device___part* old = (void*)bdev;
  if (bpf_core_field_exists(old->bd_part))
    return BPF_CORE_READ(old, bd_part, start_sect) * 512;
  return 0;
}

/* Records who changed the bytes [at, at + bytes) of a disk: an act, or else a transaction.
 * `bytes_owner` is the size and fb_block.owner << 32. */
__noinline int record_blocks(u32 dev, u64 at, u64 bytes_owner, u64 who, u64 ledger) {
  u32 bytes = bytes_owner;
  /* Who writes to a disk that is not watched would never be taken out again. */
  const struct fb_device* device = device_of(dev);
  if (!device || !device->watched) return 0;
  u32 watch = device->watch;
  struct fb_block_key key = {.dev = dev};
  u64 unit = at >> FB_BLOCK_SHIFT;
  u64 last = (at + bytes - 1) >> FB_BLOCK_SHIFT;
  if (!bytes) return 0;
  struct fb_block block = {.act = (u32)who,
                           .tid = who >> 32,
                           .ledger_dev = (u32)ledger,
                           .ledger_tid = ledger >> 32,
                           .owner = bytes_owner >> 32};
  struct fb_block_group* group = 0;
  for (u32 i = 0; i < 128; ++i, ++unit) {
    if (unit > last) break;
    if (!group || !(unit & (FB_GROUP_PAGES - 1))) {
      key.group = unit / FB_GROUP_PAGES;
      group = bpf_map_lookup_elem(&blocks, &key);
      if (!group) {
        const struct blank* empty = blank();
        if (!empty) return 0;
        bpf_map_update_elem(&blocks, &key, &empty->blocks, BPF_NOEXIST);
        group = bpf_map_lookup_elem(&blocks, &key);
        if (!group) return 0;
      }
      if (group->group != key.group || group->dev != dev || group->watch != watch) {
        const struct blank* empty = blank();
        if (!empty) return 0;
        *group = empty->blocks;
        group->group = key.group;
        group->dev = dev;
        group->watch = watch;
      }
    }
    group->block[unit & (FB_GROUP_PAGES - 1)] = block;
  }
  return 0;
}

#endif /* BPF_LEDGER_BPF_H_ */
