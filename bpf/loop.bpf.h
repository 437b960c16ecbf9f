/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loop devices on files of a filesystem that is on a disk itself.
 *
 * A thread of the loop driver writes to the file what others wrote to the device. The place in the
 * file tells which IO of the device it carries on (bios of loop devices are noted by sectors, as
 * those of stacked devices are), and so who is the dirtier of the file's pages. Exact where the IO
 * has one cause that is exactly known; else the pages are nobody's, and the file's last dirtier is
 * the greatest one of the IO.
 */
#ifndef BPF_LOOP_BPF_H_
#define BPF_LOOP_BPF_H_

#include "bpf/layer.bpf.h"

/* A request is smaller by far. */
#define CARRY_MOST (1u << 30)

/* The next bio's part of the write in scratch->carry to the file in scratch->dirty. 0 at its end. */
__noinline int carry_bio(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s || !s->carry.left) return 0;
  u64 at = s->carry.at;
  u32 shift = config.page_shift & 31;
  u32 dev = s->carry.dev;
  u64 sector = (at - s->carry.offset) >> 9;
  u64 bio = range_find(dev, sector, 512, REQ_OP_WRITE);
  struct fb_origin* o = bio ? origin_above(bio, dev) : 0;
  u32 part = (1u << shift) - (at & ((1u << shift) - 1));
  u64 who = 0;
  if (o) {
    u64 rest = o->bytes - ((sector - o->sector) << 9);
    if (rest && rest <= o->bytes) part = rest;
    const struct fb_share* share = &o->share[largest_share(o) & (FB_SHARES - 1)];
    u32 act = share->act;
    u32 tid = share->tid;
    u32 confidence = share->confidence & FB_CONFIDENCE_MASK;
    if (!act && confidence == FB_CONF_ISSUER) {
      act = intern_act(o->issuer_actor, o->issuer_stack);
      tid = o->issuer_tid;
    }
    if (act && act_of(act)) {
      s->carry.act = act;
      s->carry.tid = tid;
      if (o->shares == 1 && (confidence == FB_CONF_EXACT || confidence == FB_CONF_ISSUER))
        who = (u64)act | ((u64)tid << 32);
    }
  }
  if (part > s->carry.left) part = s->carry.left;
  s->carry.at = at + part;
  s->carry.left -= part;
  record_groups(level, at >> shift, (at + part - 1) >> shift, who, who ? RECORD_SET : RECORD_FORGET);
  return 1;
}

/* A kernel thread fills bytes [at, at + bytes) of the file in scratch->dirty. False if no loop device
 * stands on it; else scratch->carry says who is to be the file's last dirtier. */
__noinline int carry_write(u32 level, u64 at, u64 bytes) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct fb_loop_file key = {.ino = s->dirty.inode.ino, .dev = s->dirty.inode.dev};
  struct fb_loop* loop = bpf_map_lookup_elem(&loop_files, &key);
  if (!loop) return 0;
  s->carry.dev = loop->dev;
  s->carry.offset = loop->offset;
  s->carry.act = 0;
  s->carry.tid = 0;
  s->carry.at = at;
  s->carry.left = bytes < CARRY_MOST ? bytes : CARRY_MOST;
  for (u32 i = 0; i < 512; ++i)
    if (!carry_bio(level)) break;
  return 1;
}

#endif /* BPF_LOOP_BPF_H_ */
