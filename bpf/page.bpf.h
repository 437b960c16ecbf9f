/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who dirtied which page of which inode, and who dirtied an inode last.
 *
 * A slot is written and read as one 64-bit word. It carries a tag of its own key: a group that
 * another CPU takes out of the table and gives to other pages while we write to it can then not
 * mislead the reader, who sees a wrong tag and treats the page as unknown.
 */
#ifndef BPF_PAGE_BPF_H_
#define BPF_PAGE_BPF_H_

#include "bpf/actor.bpf.h"
#include "bpf/page_sample.bpf.h"

#define SLOT_TID_MASK 0x3fffffu

static __always_inline u32 page_tag(const struct fb_page_key* key) {
  return (u32)(page_mix(key) >> 54); /* 10 bits */
}

static __always_inline u64 slot_make(u32 act, u32 tid, u32 tag) {
  return (u64)act | ((u64)(tid & SLOT_TID_MASK) << 32) | ((u64)tag << 54);
}
static __always_inline u32 slot_act(u64 slot) { return (u32)slot; }
static __always_inline u32 slot_tid(u64 slot) { return (u32)(slot >> 32) & SLOT_TID_MASK; }
static __always_inline u32 slot_tag(u64 slot) { return (u32)(slot >> 54); }

static __always_inline bool is_block_device(unsigned short mode) {
  return (mode & S_IFMT) == S_IFBLK;
}

/* An inode that holds no file but the filesystem's own blocks, which all its users change. */
static __always_inline bool is_shared_inode(u64 magic, u64 ino) {
  return (magic == BTRFS_SUPER_MAGIC && ino == BTRFS_BTREE_INODE) ||
         (magic == F2FS_SUPER_MAGIC && ino <= F2FS_META_INODE);
}

/* Key of an inode whose address came from memory. */
static __always_inline void inode_key(struct inode* inode, struct fb_inode_key* key) {
  key->ino = LOAD(struct inode, inode, i_ino);
  key->dev = LOAD(struct super_block, LOAD(struct inode, inode, i_sb), s_dev);
  key->generation = LOAD(struct inode, inode, i_generation);
}

static __always_inline u64 dentry_of_alias(u64 alias) {
  struct dentry___flat* flat = 0;
  if (bpf_core_field_exists(flat->d_alias)) return alias - bpf_core_field_offset(flat->d_alias);
  return alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
}

/* Names of an inode and the directories above it, into scratch->file. */
__noinline int read_path(u32 level, u64 address) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct inode* inode = (void*)address;
  struct hlist_node* alias = BPF_CORE_READ(inode, i_dentry.first);
  u32 used = 0;
  s->file.complete = 0;
  if (alias) {
    struct dentry* dentry = (void*)dentry_of_alias((u64)alias);
    for (int i = 0; i < 16; ++i) {
      struct dentry* parent = BPF_CORE_READ(dentry, d_parent);
      if (parent == dentry || !parent) {
        s->file.complete = parent == dentry;
        break;
      }
      if (used > FB_PATH_BYTES - 64) break;
      const unsigned char* name = BPF_CORE_READ(dentry, d_name.name);
      long size = bpf_probe_read_kernel_str(s->file.path + used, 64, name);
      if (size <= 0) break;
      if (size > 64) size = 64;
      used += size;
      dentry = parent;
    }
  }
  s->file.path_bytes = used;
  return 0;
}

/* Makes the entry of an inode. */
__noinline int inode_make(u32 level, u64 address) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct fb_inode_key key = s->file.key;
  struct fb_inode entry = {.epoch = live.epoch};
  u32 index = 0;
  if (bpf_map_pop_elem(&free_files, &index) == 0) {
    read_path(level, address);
    s->file.id = index;
    bpf_map_update_elem(&files, &index, &s->file, BPF_ANY);
    entry.file = index;
  }
  if (bpf_map_update_elem(&inodes, &key, &entry, BPF_NOEXIST)) {
    if (index) bpf_map_push_elem(&free_files, &index, BPF_ANY);
    if (!bpf_map_lookup_elem(&inodes, &key)) count(FB_COUNTER_inode_nomem);
  }
  return 0;
}

static __always_inline struct fb_inode* inode_get(struct scratch* s, struct inode* inode,
                                                  const struct fb_inode_key* key) {
  struct fb_inode* entry = bpf_map_lookup_elem(&inodes, key);
  if (!entry) {
    s->file.key = *key;
    inode_make(s->level, plain_address(s, inode));
    entry = bpf_map_lookup_elem(&inodes, key);
    if (!entry) return 0;
  }
  touch(&entry->epoch);
  return entry;
}

/* Number of the file for rows of this window, 0 when the window has enough files. */
static __always_inline u32 admit_file(struct fb_inode* entry) {
  u32 window = live.window;
  if (entry->window == window) return entry->file;
  if (live.files >= config.max_files) {
    count(FB_COUNTER_files_capped);
    return 0;
  }
  entry->window = window;
  __sync_fetch_and_add(&live.files, 1);
  return entry->file;
}

/*
 * Records the dirtier of pages first..last of one group of the inode in scratch->dirty.
 * `who` is act and tid << 32.
 */
enum record_mode {
  RECORD_SET,
  RECORD_IF_EMPTY, /* an older dirtier stays */
  RECORD_FORGET,   /* the dirtier is not known, and an older one has nothing to do with it */
};
__noinline int record_group(u32 level, u64 index, u32 range, u64 who, u32 mode) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct fb_page_key* key = &s->dirty;
  key->group = index;
  u32 sampled = s->dirty_sampled;
  if (sampled && !group_is_seen(key, page_mix(key), live.page_level)) return 0;
  struct fb_page_group* group = bpf_map_lookup_elem(&pages, key);
  if (!group) {
    const struct blank* empty = blank();
    if (!empty || mode == RECORD_FORGET) return 0;
    bpf_map_update_elem(&pages, key, &empty->pages, BPF_NOEXIST);
    group = bpf_map_lookup_elem(&pages, key);
    if (!group) {
      count(FB_COUNTER_pgtree_nomem);
      return 0;
    }
  }
  if (sampled && group->regime != live.page_regime) renew_group(group, key);
  u32 first = range & 0xff;
  u32 last = range >> 8;
  u64 slot = mode == RECORD_FORGET ? 0 : slot_make((u32)who, who >> 32, page_tag(key));
  for (u32 i = 0; i < FB_GROUP_PAGES; ++i) {
    if (i < first) continue;
    if (i > last) break;
    u64 old = group->slot[i];
    if (old == slot || (mode == RECORD_IF_EMPTY && slot_act(old))) continue;
    group->slot[i] = slot;
  }
  touch(&group->epoch);
  return 0;
}

/* A function of its own, so that the verifier goes through the loop once and not once for every way
 * that leads there. */
__noinline int record_groups(u32 level, u64 first, u64 last, u64 who, u32 mode) {
  u64 group_first = first / FB_GROUP_PAGES;
  u64 group_last = last / FB_GROUP_PAGES;
  u32 low = first & (FB_GROUP_PAGES - 1);
  for (u32 i = 0; i < 129; ++i) {
    u64 at = group_first + i;
    if (at > group_last) break;
    u32 high = at == group_last ? last & (FB_GROUP_PAGES - 1) : FB_GROUP_PAGES - 1;
    record_group(level, at, low | (high << 8), who, mode);
    low = 0;
  }
  return 0;
}

/*
 * Records pages [first, last] of an inode, at most 128 groups of them (8 MiB with 4 KiB pages):
 * more than any folio, and larger writes meet the rest as their folios turn dirty.
 */
static __always_inline void record_pages(struct scratch* s, const struct fb_inode_key* inode,
                                         u64 first, u64 last, u32 act, u32 tid, u32 mode) {
  s->dirty.inode = *inode;
  record_groups(s->level, first, last, (u64)act | ((u64)tid << 32), mode);
}

#endif /* BPF_PAGE_BPF_H_ */
