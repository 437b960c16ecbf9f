/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From a bio at the top of the block layer to the shares of those who caused it.
 */
#ifndef BPF_BIO_BPF_H_
#define BPF_BIO_BPF_H_

#include "bpf/ledger.bpf.h"

/* Request operations and flags: part of the kernel's stable on-the-wire habits, equal 5.10 to 7.x.
 */
#define REQ_OP_MASK 0xffu
#define REQ_OP_READ 0u
#define REQ_OP_WRITE 1u
#define REQ_OP_FLUSH 2u
#define REQ_OP_DISCARD 3u
#define REQ_OP_SECURE_ERASE 5u
#define REQ_OP_ZONE_APPEND 7u
#define REQ_OP_WRITE_ZEROES 9u
#define REQ_META (1u << 12)
#define REQ_PREFLUSH (1u << 18)

static __always_inline u32 operation_of(u32 opf, u32 bytes) {
  switch (opf & REQ_OP_MASK) {
    case REQ_OP_READ:
      return FB_OP_READ;
    case REQ_OP_WRITE:
      if (!bytes && (opf & REQ_PREFLUSH)) return FB_OP_FLUSH;
      return FB_OP_WRITE;
    case REQ_OP_ZONE_APPEND:
      return FB_OP_WRITE;
    case REQ_OP_FLUSH:
      return FB_OP_FLUSH;
    case REQ_OP_DISCARD:
      return FB_OP_DISCARD;
    case REQ_OP_SECURE_ERASE:
      return FB_OP_SECURE_ERASE;
    case REQ_OP_WRITE_ZEROES:
      return FB_OP_WRITE_ZEROES;
  }
  return FB_OP_OTHER;
}

/* --- Shares --- */

/* Adds bytes to a share. The last one is kept for those that find no place. */
__noinline int share_add(u32 level, u32 act, u32 bytes, u32 tid, u32 confidence) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s || !bytes) return 0;
  struct fb_origin* o = &s->origin;
  u32 n = o->shares;
  for (u32 i = 0; i < FB_SHARES - 1; ++i) {
    if (i >= n) {
      o->share[i].act = act;
      o->share[i].bytes = bytes;
      o->share[i].tid = tid;
      o->share[i].confidence = confidence;
      o->shares = i + 1;
      return 0;
    }
    if (o->share[i].act == act && o->share[i].confidence == confidence) {
      o->share[i].bytes += bytes;
      return 0;
    }
  }
  if (confidence == FB_CONF_JOURNAL) {
    /* An estimate anyway: the share of the same actor takes it, else the first estimate. */
    struct fb_act* mine = act_of(act);
    struct fb_share* place = 0;
    for (u32 i = 0; i < FB_SHARES - 1; ++i) {
      if (o->share[i].confidence != FB_CONF_JOURNAL) continue;
      if (!place) place = &o->share[i];
      struct fb_act* other = act_of(o->share[i].act);
      if (mine && other && other->key.actor == mine->key.actor) {
        place = &o->share[i];
        break;
      }
    }
    if (place) {
      place->bytes += bytes;
      return 0;
    }
  }
  count(FB_COUNTER_share_overflow);
  struct fb_share* rest = &o->share[FB_SHARES - 1];
  if (n < FB_SHARES) {
    rest->act = s->walk.inode_act;
    rest->tid = s->walk.inode_tid;
    rest->confidence = s->walk.inode_act ? FB_CONF_INODE : FB_CONF_LOST;
    rest->bytes = 0;
    o->shares = FB_SHARES;
  }
  rest->bytes += bytes;
  return 0;
}

/* A bio has no room for more participants of a ledger than those that have a part in so many, and
 * one. */
#define LEDGER_PARTS 6u
#define SOMEBODY (1ull << 40)

/* Weight of the act at a place of scratch->ledger if that is less than one part of the total, and,
 * as SOMEBODY, whether there is anybody. Apart, so that the verifier needs not tell them from each
 * other. */
__noinline u64 least_of_ledger(u32 level, u32 place, u64 total) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s || place >= FB_LEDGER_ACTS) return 0;
  u32 weight = s->ledger.weight[place];
  if (!weight) return 0;
  return SOMEBODY | (weight * (u64)LEDGER_PARTS < total ? weight : 0);
}

/*
 * If there are more than a bio has room for: of those in scratch->ledger with less than one part,
 * one stands for all. It is chosen by lot, the more likely the more it has, so that over many bios
 * each gets what is its.
 */
__noinline int draw_least_of_ledger(u32 level, u64 total) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u64 sum = 0;
  for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) sum += least_of_ledger(level, i, total);
  if (sum / SOMEBODY <= LEDGER_PARTS) return 0;
  u64 rest = sum % SOMEBODY;
  u64 lot = (bpf_get_prandom_u32() >> 8) * rest >> 24;
  for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) {
    u64 weight = least_of_ledger(level, i, total) % SOMEBODY;
    if (!weight) continue;
    s->ledger.weight[i] = lot >= weight ? 0 : rest < ~0u ? rest : ~0u;
    /* Once it has fallen it is less than 0, which is more than any weight. */
    lot -= weight;
  }
  return 0;
}

/*
 * Splits bytes over a ledger; what rounding leaves goes to the greatest participant. False when
 * nobody is known in it.
 */
__noinline int share_ledger(u32 level, u32 dev, u32 tid, u32 bytes) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  struct fb_ledger* ledger = ledger_get(dev, tid);
  if (!s || !ledger) return 0;
  struct fb_ledger* copy = &s->ledger;
  *copy = *ledger;
  u64 total = 0;
  for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) {
    /* A weight that has faded away still is somebody. */
    u32 weight = copy->act[i] ? copy->weight[i] + 1 : 0;
    copy->weight[i] = weight;
    total += weight;
  }
  if (!total) return 0;
  draw_least_of_ledger(level, total);
  u32 most_weight = 0;
  u32 most_act = 0;
  for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) {
    if (copy->weight[i] > most_weight) {
      most_weight = copy->weight[i];
      most_act = copy->act[i];
    }
  }
  if (!tid || tid == LEDGER_WRITERS) ledger->charged_ns = bpf_ktime_get_boot_ns();
  u32 left = bytes;
  for (u32 i = 0; i < FB_LEDGER_ACTS; ++i) {
    u32 act = copy->act[i];
    if (act == most_act || !act) continue;
    u32 part = (u64)bytes * copy->weight[i] / total;
    if (part > left) part = left;
    if (!part) continue;
    share_add(level, act, part, 0, FB_CONF_JOURNAL);
    left -= part;
  }
  share_add(level, most_act, left, 0, FB_CONF_JOURNAL);
  return 1;
}

/* The cgroup that writeback attached to the bio, as an act without a stack; 0 = none but the root.
 */
__noinline u32 act_of_cgroup(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  struct bio* probe = 0;
  if (!s || !bpf_core_field_exists(probe->bi_blkg)) return 0;
  /* With version 1 hierarchies the block controller may have one of its own. */
  if (config.cgroup_v1_subsystem < 12) return 0;
  u64 group = (u64)LOAD(struct bio, s->walk.bio, bi_blkg);
  if (!group) return 0;
  u64 cgroup = (u64)LOAD(struct blkcg, LOAD(struct blkcg_gq, group, blkcg), css.cgroup);
  if (!cgroup || LOAD(struct cgroup, cgroup, level) <= 0) return 0;
  struct fb_actor_key key = {.cgroup_id =
                                 LOAD(struct kernfs_node, LOAD(struct cgroup, cgroup, kn), id)};
  s->actor.key = key;
  return intern_act(intern_actor(level), FB_STACK_NONE);
}

/* False when writeback was done for no cgroup in particular. */
__noinline int share_cgroup(u32 level, u32 bytes) {
  u32 act = act_of_cgroup(level);
  if (!act) return 0;
  share_add(level, act, bytes, 0, FB_CONF_CGROUP);
  return 1;
}

/* Bytes of metadata of which no exact dirtier is known. */
__noinline int share_unknown_metadata(u32 level, u32 bytes) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s || !bytes) return 0;
  if (s->walk.commit_dev && share_ledger(level, s->walk.commit_dev, s->walk.commit_tid, bytes))
    return 0;
  if (s->walk.writers && share_ledger(level, s->walk.writers, LEDGER_WRITERS, bytes)) return 0;
  if (share_ledger(level, s->walk.dev, 0, bytes)) return 0;
  if (s->walk.worker && share_cgroup(level, bytes)) return 0;
  share_add(level, 0, bytes, 0, s->walk.worker ? FB_CONF_LOST : FB_CONF_ISSUER);
  return 0;
}

/* Pages that are not looked at. Their file's last dirtier goes along, in case nobody else is known.
 */
__noinline int share_unseen_pages(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s || !s->walk.unseen) return 0;
  bool known = s->walk.inode_act && act_of(s->walk.inode_act);
  share_add(level, known ? s->walk.inode_act : 0, s->walk.unseen, known ? s->walk.inode_tid : 0,
            FB_CONF_UNSEEN | s->walk.page_level << FB_WEIGHT_SHIFT);
  return 0;
}

/* What the walk over the pages of a file found no dirtier for. Writeback keeps files of different
 * cgroups apart, so it knows more than the ledger, which tells who changed metadata lately. */
__noinline int share_unknown_pages(u32 level, u32 metadata) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s || !s->walk.unknown) return 0;
  if (!metadata && s->walk.worker && !s->walk.commit_dev && share_cgroup(level, s->walk.unknown))
    return 0;
  share_unknown_metadata(level, s->walk.unknown);
  return 0;
}

/* What the walk over the pages of a file left. */
static __always_inline void share_pages(u32 level, u32 metadata) {
  share_unknown_pages(level, metadata);
  share_unseen_pages(level);
}

/* Ends the run of pages of one dirtier. */
__noinline int flush_run(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 bytes = s->walk.run_bytes;
  u64 slot = s->walk.run_slot;
  s->walk.run_bytes = 0;
  if (!bytes) return 0;
  u32 weight = s->walk.weight << FB_WEIGHT_SHIFT;
  if (slot) {
    if (act_of(slot_act(slot))) {
      share_add(level, slot_act(slot), bytes, slot_tid(slot), FB_CONF_EXACT | weight);
      return 0;
    }
    count(FB_COUNTER_act_stale);
  }
  if (s->walk.inode_act && act_of(s->walk.inode_act))
    share_add(level, s->walk.inode_act, bytes, s->walk.inode_tid, FB_CONF_INODE | weight);
  else
    s->walk.unknown += bytes;
  return 0;
}

/* Charges the next page of the walk. 1: its slot is to be emptied. */
__noinline int charge_page(u32 level, u64 slot, u32 tag) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 page = 1u << (config.page_shift & 31);
  u32 part = s->walk.page_left;
  u32 left = s->walk.left;
  u32 whole = part == page && left >= page;
  if (part > left) part = left;
  u32 page_left = s->walk.page_left - part;
  s->walk.page_left = page_left ? page_left : page;
  s->walk.left = left - part;
  if (slot_tag(slot) != tag) slot = 0;
  if (!slot && s->walk.maybe_unseen) {
    s->walk.unseen += part;
    return 0;
  }
  if (slot != s->walk.run_slot) {
    flush_run(level);
    s->walk.run_slot = slot;
  }
  s->walk.run_bytes += part;
  return s->walk.consume & whole;
}

/* Charges the pages of one group, from page `in` on. */
__noinline int charge_group(u32 level, u64 index, u32 in) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  s->walk.key.group = index;
  u32 page_level = s->walk.page_level;
  u64 mix = page_mix(&s->walk.key);
  bool seen = !page_level || group_is_seen(&s->walk.key, mix, page_level);
  s->walk.maybe_unseen = !seen;
  u32 weight = index && seen ? page_level : 0;
  if (weight != s->walk.weight) flush_run(level);
  s->walk.weight = weight;
  struct fb_page_group* group = 0;
  if (seen || group_is_seen(&s->walk.key, mix, live.page_level))
    group = bpf_map_lookup_elem(&pages, &s->walk.key);
  if (!group) {
    /* Nothing is known of the whole group: one step for all of it. */
    u32 shift = config.page_shift & 31;
    u64 bytes = s->walk.page_left + ((u64)(FB_GROUP_PAGES - 1 - in) << shift);
    if (bytes > s->walk.left) bytes = s->walk.left;
    if (!seen) {
      s->walk.unseen += bytes;
    } else {
      if (s->walk.run_slot) flush_run(level);
      s->walk.run_slot = 0;
      s->walk.run_bytes += bytes;
    }
    s->walk.left -= bytes;
    s->walk.page_left = 1u << shift;
    return 0;
  }
  if (s->walk.sampled && group->regime != live.page_regime) renew_group(group, &s->walk.key);
  u32 tag = page_tag(&s->walk.key);
  u64 remains = 0;
  for (u32 i = 0; i < FB_GROUP_PAGES; ++i) {
    u64 slot = group->slot[i];
    if (i >= in && s->walk.left && charge_page(level, slot, tag)) {
      group->slot[i] = 0;
      slot = 0;
    }
    remains |= slot;
  }
  if (!remains) bpf_map_delete_elem(&pages, &s->walk.key);
  return 0;
}

/* Charges `bytes` from `offset` in page `first` of walk.key's inode on. */
__noinline int charge_pages(u32 level, u64 first, u32 offset, u32 bytes) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 shift = config.page_shift & 31;
  first += offset >> shift;
  s->walk.left = bytes;
  s->walk.page_left = (1u << shift) - (offset & ((1u << shift) - 1));
  u64 group = first / FB_GROUP_PAGES;
  u32 in = first & (FB_GROUP_PAGES - 1);
  for (u32 i = 0; i < 1024; ++i) {
    if (!s->walk.left) break;
    charge_group(level, group + i, in);
    in = 0;
  }
  if (s->walk.left) {
    count(FB_COUNTER_bvec_cut);
    flush_run(level);
    s->walk.run_slot = 0;
    s->walk.run_bytes = s->walk.left;
    s->walk.left = 0;
  }
  return 0;
}

/* Ends the run of metadata that belongs to one act or one transaction. */
__noinline int flush_blocks(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 bytes = s->walk.run_bytes;
  s->walk.run_bytes = 0;
  if (!bytes) return 0;
  u32 act = s->walk.run.act;
  if (act && act_of(act)) {
    share_add(level, act, bytes, s->walk.run.tid, FB_CONF_EXACT);
    return 0;
  }
  if (act) count(FB_COUNTER_act_stale);
  u32 dev = s->walk.run.ledger_dev;
  if (!dev || !share_ledger(level, dev, s->walk.run.ledger_tid, bytes)) s->walk.unknown += bytes;
  return 0;
}

/* One unit of the walk, or a whole group of which nothing is known. 0 at the end of the bio. */
__noinline int charge_step(u32 level, u32 dev) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 left = s->walk.left;
  if (!left) return 0;
  u64 at = s->walk.at;
  u32 unit = (at >> FB_BLOCK_SHIFT) & (FB_GROUP_PAGES - 1);
  u32 part = (1u << FB_BLOCK_SHIFT) - (at & ((1u << FB_BLOCK_SHIFT) - 1));
  struct fb_block_key key = {.dev = dev, .group = at >> FB_BLOCK_GROUP_SHIFT};
  struct fb_block block = {};
  struct fb_block_group* group = bpf_map_lookup_elem(&blocks, &key);
  if (group && group->group == key.group && group->dev == dev && group->watch == s->walk.watch) {
    struct fb_block* there = &group->block[unit];
    /* What another filesystem left behind at this place says nothing. */
    if (there->owner == s->walk.owner) block = *there;
    /* Clean from now on: what is written here next has another cause. */
    there->act = 0;
    there->ledger_dev = 0;
  } else {
    part = (1u << FB_BLOCK_GROUP_SHIFT) - (at & ((1u << FB_BLOCK_GROUP_SHIFT) - 1));
  }
  if (part > left) part = left;
  if (block.act != s->walk.run.act || block.ledger_dev != s->walk.run.ledger_dev ||
      block.ledger_tid != s->walk.run.ledger_tid) {
    flush_blocks(level);
    s->walk.run = block;
  }
  s->walk.run_bytes += part;
  s->walk.at = at + part;
  s->walk.left = left - part;
  return 1;
}

/* Charges metadata by its place on the disk. */
__noinline int charge_blocks(u32 level, u32 dev, u64 at, u32 bytes) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  s->walk.at = at;
  s->walk.left = bytes;
  s->walk.unknown = 0;
  s->walk.run_bytes = 0;
  s->walk.run.act = 0;
  s->walk.run.ledger_dev = 0;
  for (u32 i = 0; i < 2048; ++i)
    if (!charge_step(level, dev)) break;
  flush_blocks(level);
  share_unknown_metadata(level, s->walk.unknown + s->walk.left);
  s->walk.left = 0;
  return 0;
}

/* --- The pages of a bio --- */

struct page_view {
  u64 flags;   /* of the folio */
  u64 mapping; /* of the folio */
  u64 index;   /* of the page */
};

static __always_inline u64 page_index_offset(void) {
  struct page___6_15* renamed = 0;
  if (bpf_core_field_exists(renamed->__folio_index))
    return bpf_core_field_offset(renamed->__folio_index);
  struct page* page = 0;
  return bpf_core_field_offset(page->index);
}

/* A folio, or a page that is no tail of one. */
static __always_inline void view_head(u64 head, struct page_view* view) {
  view->flags = load_word(head); /* always the first word, whatever its type is called */
  view->mapping = (u64)LOAD(struct page, head, mapping);
  view->index = load_word(head + page_index_offset());
}

#define HEAD_MASKS 0xffffffffc0000000ull

/* A function of its own, so that what it needs is not on the stack of those who go on calling: see
 * stack_depth_test.py. */
static __noinline int view_page(u64 page, struct page_view* view) {
  u64 compound = load_word(page + 8);
  if (!(compound & 1)) {
    view_head(page, view);
    return 0;
  }
  /* The second word of a page that is a tail is odd. The rest leads to the head: its address, or,
   * from 7.1 on in most builds, a mask over that of the tail. Folios end long before a mask could
   * be taken for an address. */
  u64 head = compound >= HEAD_MASKS ? page & compound : compound - 1;
  view_head(head, view);
  view->index += (page - head) / bpf_core_type_size(struct page);
  return 0;
}

/* fscrypt writes an encrypted copy in the stead of a page-cache page, and keeps the way back to it.
 */
__noinline u64 written_page(u64 page) {
  if (LOAD(struct page, page, mapping)) return page;
  if (!(load_word(page) & (1ull << bpf_core_enum_value(enum pageflags, PG_private)))) return page;
  u64 source = LOAD(struct page, page, private);
  if (!source || (source - page) % bpf_core_type_size(struct page)) return page;
  u64 mapping = (u64)LOAD(struct page, source, mapping);
  if (!mapping || (mapping & 3)) return page;
  /* A page that is being written, or else it is none. */
  if (!(load_word(source) & (1ull << bpf_core_enum_value(enum pageflags, PG_writeback))))
    return page;
  u64 inode = (u64)LOAD(struct address_space, mapping, host);
  return (u64)LOAD(struct inode, inode, i_mapping) == mapping ? source : page;
}

/* Segment `i` of a list of them. */
static __always_inline void view_vec(u64 vecs, u32 i, struct bio_vec* vec) {
  u64 at = vecs + (u64)i * sizeof(*vec);
  vec->bv_page = LOAD(struct bio_vec, at, bv_page);
  vec->bv_len = LOAD(struct bio_vec, at, bv_len);
  vec->bv_offset = LOAD(struct bio_vec, at, bv_offset);
}

/* Bytes of the first bvec that lie before the bio. */
static __always_inline u32 done_of_first(u64 bio) {
  struct bvec_iter___renamed* renamed = 0;
  if (bpf_core_field_exists(renamed->bi_offset))
    return LOAD(struct bvec_iter___renamed, bio + bpf_core_field_offset(struct bio, bi_iter),
                bi_offset);
  return LOAD(struct bio, bio, bi_iter.bi_bvec_done);
}

/*
 * The block layer may encrypt for a filesystem (7.x: always for fscrypt). It sends copies, and has
 * then come to the byte of the original bio after the last one it has copied. The original's
 * segment with that last byte goes to `vec`, cut there; its pages follow each other in the file.
 * False when `bio` is no such copy.
 */
static __always_inline bool encrypted_from(u64 bio, struct bio_vec* vec) {
  if (!config.encrypt_end || (u64)LOAD(struct bio, bio, bi_end_io) != config.encrypt_end)
    return false;
  u64 source = (u64)LOAD(struct bio, bio, bi_private);
  u32 at = LOAD(struct bio, source, bi_iter.bi_idx);
  u32 done = done_of_first(source);
  if (!done && !at) return false;
  view_vec((u64)LOAD(struct bio, source, bi_io_vec), done ? at : at - 1, vec);
  if (done) vec->bv_len = done;
  return true;
}

/* Which pages of a file one segment of a bio is, from byte `skip` of it on: into walk.vec_*. Says
 * how many bytes these are, at most `left`. */
__noinline u32 find_vec(u32 level, u64 address, u32 skip, u32 left) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct bio_vec vec;
  view_vec(address, 0, &vec);
  if (vec.bv_len <= skip) return 0;
  u32 part = vec.bv_len - skip;
  u32 shift = config.page_shift & 31;
  u32 offset = vec.bv_offset + skip;
  u64 page = (u64)vec.bv_page + (u64)(offset >> shift) * bpf_core_type_size(struct page);
  struct page_view view = {};
  view_page(written_page(page), &view);
  s->walk.vec_page = view.index;
  s->walk.vec_offset = offset & ((1u << shift) - 1);
  return part < left ? part : left;
}

/*
 * Finds the dirtiers of a write. `address` is the bio. What it is made of tells what to ask:
 * page-cache pages under writeback know their dirtier; pages of a block device and memory without
 * an owner are metadata, known by place; a process's own pages are direct IO, which blames itself.
 */
__noinline int attribute_write(u32 level, u64 address) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct fb_origin* o = &s->origin;
  u32 bytes = o->bytes;
  u64 at = o->sector * 512;
  u32 shift = config.page_shift & 31;

  u64 vecs = (u64)LOAD(struct bio, address, bi_io_vec);
  u32 first_vec = LOAD(struct bio, address, bi_iter.bi_idx);
  u32 done = done_of_first(address);
  struct bio_vec vec;
  view_vec(vecs, first_vec, &vec);
  struct page_view view = {};
  u32 offset = vec.bv_offset + done;
  bool copied = encrypted_from(address, &vec);
  if (copied) offset = vec.bv_offset + vec.bv_len - 1;
  u64 page = (u64)vec.bv_page + (u64)(offset >> shift) * bpf_core_type_size(struct page);
  offset &= (1u << shift) - 1;
  view_page(written_page(page), &view);

  bool metadata = (o->opf & REQ_META) || s->walk.commit_dev || s->walk.worker;
  u64 swapped = bpf_core_enum_value_exists(enum pageflags, PG_swapcache)
                    ? 1ull << bpf_core_enum_value(enum pageflags, PG_swapcache)
                    : 0;
  if ((view.mapping & 3) && (view.flags & swapped)) metadata = false;
  struct inode* inode = 0;
  if (view.mapping && !(view.mapping & 3)) {
    /* Memory of the kernel's allocators has something else in this place: ask back. */
    inode = LOAD(struct address_space, view.mapping, host);
    if ((u64)LOAD(struct inode, inode, i_mapping) != view.mapping) inode = 0;
  }
  s->walk.owner = 0;
  if (!inode) {
    /* Anonymous or kernel memory. */
    u32 part = s->walk.part;
    u32* owner = bpf_map_lookup_elem(&owners, &part);
    s->walk.owner = owner ? *owner : ~0u;
    if (s->walk.commit_dev) {
      share_unknown_metadata(level, bytes);
    } else if (metadata && (view.mapping & 3) == 1) {
      /* A process's own memory, which a stacked device has put off: no metadata of a filesystem. */
      u32 writers = s->walk.writers;
      if (!(writers && share_ledger(level, writers, LEDGER_WRITERS, bytes)) &&
          !share_cgroup(level, bytes))
        share_add(level, 0, bytes, 0, FB_CONF_LOST);
    } else if (metadata) {
      charge_blocks(level, o->dev, at, bytes);
    } else {
      share_add(level, 0, bytes, 0, FB_CONF_ISSUER);
    }
    return 0;
  }
  if (is_block_device(LOAD(struct inode, inode, i_mode))) {
    if (s->walk.commit_dev)
      share_unknown_metadata(level, bytes);
    else
      charge_blocks(level, o->dev, at, bytes);
    return 0;
  }
  u64 writeback = 1ull << bpf_core_enum_value(enum pageflags, PG_writeback);
  if (!(view.flags & writeback)) {
    /* Not under writeback: a buffer that journal or filesystem writes by itself, or direct IO from
     * a mapping of another file. */
    u64 bh = (u64)LOAD(struct bio, address, bi_private);
    struct page_view bh_view = {};
    view_page((u64)LOAD(struct buffer_head, bh, b_page), &bh_view);
    if (bh_view.mapping != view.mapping) {
      share_add(level, 0, bytes, 0, FB_CONF_ISSUER);
      return 0;
    }
  }
  inode_key(inode, &s->walk.key.inode);
  u64 sb = (u64)LOAD(struct inode, inode, i_sb);
  u64 magic = LOAD(struct super_block, sb, s_magic);
  bool btrfs = magic == BTRFS_SUPER_MAGIC;
  u32 part = s->walk.part;
  if (btrfs) {
    u32 fs = s->walk.key.inode.dev;
    if (s->walk.dev != fs) bpf_map_update_elem(&fs_of_device, &part, &fs, BPF_ANY);
    live.btrfs = 1;
    s->walk.dev = fs;
  } else if (s->walk.dev != part) {
    /* The device was btrfs once and is something else now. */
    bpf_map_delete_elem(&fs_of_device, &part);
    s->walk.dev = part;
  }
  bool shared = is_shared_inode(magic, s->walk.key.inode.ino);
  if (!shared) {
    struct fb_inode* entry = inode_get(s, inode, &s->walk.key.inode);
    if (entry) {
      s->walk.inode_act = entry->act;
      s->walk.inode_tid = entry->tid;
      if (!s->walk.journal) o->file = admit_file(entry);
    }
  }
  s->walk.run_slot = 0;
  s->walk.run_bytes = 0;
  s->walk.unknown = 0;
  s->walk.unseen = 0;
  s->walk.weight = 0;
  s->walk.sampled = is_sampled_filesystem(magic);
  s->walk.page_level = s->walk.sampled && live.page_regime > 1 ? recent_page_level(o->queue_ns) : 0;

  if (copied) {
    u64 end = (view.index << shift) + offset + 1;
    charge_pages(level, (end - bytes) >> shift, (end - bytes) & ((1u << shift) - 1), bytes);
    flush_run(level);
    share_pages(level, shared);
    return 0;
  }
  /* Nearly always the pages follow each other; then only the first and the last need a look. */
  u32 count_vecs = LOAD(struct bio, address, bi_vcnt);
  bool one_run = offset + bytes <= 1u << shift; /* one page */
  if (!one_run && count_vecs > 0 && !first_vec && !done) {
    struct bio_vec last;
    struct page_view last_view = {};
    view_vec(vecs, count_vecs - 1, &last);
    u32 last_offset = last.bv_offset + last.bv_len - 1;
    page = (u64)last.bv_page + (u64)(last_offset >> shift) * bpf_core_type_size(struct page);
    view_page(written_page(page), &last_view);
    one_run = last_view.mapping == view.mapping &&
              last_view.index - view.index == ((u64)offset + bytes - 1) >> shift;
  }
  if (one_run) {
    charge_pages(level, view.index, offset, bytes);
    flush_run(level);
    share_pages(level, shared);
    return 0;
  }
  u32 left = bytes;
  for (u32 i = 0; i < 256; ++i) {
    if (!left) break;
    u32 part = find_vec(level, vecs + (u64)(first_vec + i) * sizeof(vec), i ? 0 : done, left);
    if (!part) break;
    charge_pages(level, s->walk.vec_page, s->walk.vec_offset, part);
    left -= part;
  }
  if (left) {
    count(FB_COUNTER_bvec_cut);
    flush_run(level);
    s->walk.run_slot = 0;
    s->walk.run_bytes = left;
  }
  flush_run(level);
  share_pages(level, shared);
  return 0;
}

/* The file that a read is for, if its pages belong to one. */
__noinline int file_of_read(u32 level, u64 address) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u64 vecs = (u64)LOAD(struct bio, address, bi_io_vec);
  u32 first_vec = LOAD(struct bio, address, bi_iter.bi_idx);
  struct bio_vec vec;
  struct page_view view = {};
  view_vec(vecs, first_vec, &vec);
  view_page((u64)vec.bv_page, &view);
  if (!view.mapping || (view.mapping & 3)) return 0;
  struct inode* inode = LOAD(struct address_space, view.mapping, host);
  if (is_block_device(LOAD(struct inode, inode, i_mode))) return 0;
  inode_key(inode, &s->walk.key.inode);
  struct fb_inode* entry = inode_get(s, inode, &s->walk.key.inode);
  if (entry) s->origin.file = admit_file(entry);
  return 0;
}

#endif /* BPF_BIO_BPF_H_ */
