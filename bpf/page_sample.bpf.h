/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which dirtied pages are looked at. All of them, until a CPU dirties more than it may cost to look
 * at; from then on one group of pages in 2^level, chosen by a hash of its place. So whoever dirties
 * a page, and whoever writes it out, comes to the same answer, without a table. Of the pages that
 * are not looked at, user space is told how many bytes of which file an IO wrote, and shares them
 * out among those that dirtied the pages of this file that were. (Of IOs that write a single one of
 * them only some are looked at: see sample.bpf.h.)
 *
 * The beginning of each file is always looked at, or of most small files nobody would be known.
 *
 * What was recorded of a group before a time in which it was not looked at is not to be trusted
 * after it: somebody else may have dirtied its pages. A regime is a time with one level; each group
 * says in which regime it was recorded, and `live` when groups of each kind were last not looked
 * at.
 */
#ifndef BPF_PAGE_SAMPLE_BPF_H_
#define BPF_PAGE_SAMPLE_BPF_H_

#include "bpf/sample_rate.bpf.h"

/* config.page_calm looked-at hooks in a row have to come too fast before pages are first left out.
 * The level is that of all CPUs: the busiest one decides, so it falls by one at a time. */

struct page_sampler {
  u64 since_ns; /* when it began to count */
  u32 looked_at;
  u32 reserved;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct page_sampler);
} page_samplers SEC(".maps");

static __always_inline u64 page_mix(const struct fb_page_key* key) {
  u64 mix = key->inode.ino * 0x9E3779B97F4A7C15ull;
  mix ^= ((u64)key->inode.dev << 32) | key->inode.generation;
  mix *= 0xC2B2AE3D27D4EB4Full;
  mix ^= key->group;
  return mix * 0x9E3779B97F4A7C15ull;
}
/* The bits of it that decide. Others are the tag: see page.bpf.h. */
static __always_inline u32 page_lot(u64 mix) { return (u32)(mix >> 36) & 0xffff; }

static __always_inline bool group_is_seen(const struct fb_page_key* key, u64 mix, u32 level) {
  return !key->group || !(page_lot(mix) & ((1u << (level & 15)) - 1));
}

/* The last regime in which a group was not looked at; 0 = it always was. */
static __always_inline u32 last_unseen(const struct fb_page_key* key, u64 mix) {
  if (!key->group) return 0;
  u32 lot = page_lot(mix);
  u32 level = 0;
  while (level < FB_PAGE_LEVELS - 1 && !(lot & 1)) {
    lot >>= 1;
    level++;
  }
  return live.page_unseen[level];
}

/* With the kernel's defaults pages are written sooner than this after they were dirtied. Of those
 * that are not, what was not looked at goes to the file's last known dirtier: a weaker answer,
 * never a wrong `exact`. */
#define PAGE_RECENT_NS 60000000000ull

/* The highest level at which pages that are written now may have been dirtied. */
__noinline u32 recent_page_level(u64 now) {
  u32 level = live.page_level;
  if (level > FB_PAGE_LEVELS - 1) return 0;
  for (u32 i = 0; i < FB_PAGE_LEVELS - 1; ++i) {
    u64 ended = live.page_unseen_ns[i];
    if (ended && now - ended < PAGE_RECENT_NS && i >= level) level = i + 1;
  }
  return level;
}

/* Empties a group of what is not to be trusted any more. */
static __noinline int renew_group(struct fb_page_group* group, const struct fb_page_key* key) {
  u32 now = live.page_regime;
  if (group->regime <= last_unseen(key, page_mix(key)))
    for (u32 i = 0; i < FB_GROUP_PAGES; ++i) group->slot[i] = 0;
  group->regime = now;
  return 0;
}

static __always_inline void set_page_level(u32 level, u64 now) {
  live.page_changed_ns = now;
  u32 regime = live.page_regime + 1;
  for (u32 i = 0; i < FB_PAGE_LEVELS; ++i)
    if (i < live.page_level) live.page_unseen_ns[i] = now;
  for (u32 i = 0; i < FB_PAGE_LEVELS; ++i)
    if (i < level) live.page_unseen[i] = regime;
  /* The end of what was trusted is seen by all before anything is left out. */
  __sync_fetch_and_add(&live.page_regime, 1);
  live.page_level = level;
}

/* After some hooks that looked: whether there are too many, or fewer than need be. */
__noinline int adapt_page_level(u64 now) {
  u32 zero = 0;
  struct page_sampler* my = bpf_map_lookup_elem(&page_samplers, &zero);
  if (!my) return 0;
  u64 since = my->since_ns;
  u32 looked_at = my->looked_at;
  my->looked_at = 0;
  my->since_ns = now;
  u32 level = live.page_level;
  if (live.trace) {
    if (level) set_page_level(0, now);
    return 0;
  }
  if (since < live.page_changed_ns) return 0; /* partly at another level */
  u64 took = now - since;
  u32 fit = sufficient_shift(level, FB_PAGE_LEVELS - 1, looked_at, took);
  if (is_needed(level, looked_at, took)) live.page_needed_ns = now;
  if (fit > level) {
    set_page_level(fit, now);
  } else if (level && now - live.page_needed_ns > SAMPLE_PATIENCE_NS &&
             now - live.page_changed_ns > SAMPLE_WHILE_NS) {
    set_page_level(level - 1, now);
  }
  return 0;
}

/* A hook has looked at pages. */
static __always_inline void count_pages_seen(void) {
  if (!config.sample_ns) return;
  u32 zero = 0;
  struct page_sampler* my = bpf_map_lookup_elem(&page_samplers, &zero);
  if (!my) return;
  u32 looked_at = ++my->looked_at;
  if (!live.page_level) {
    if (looked_at == 1) my->since_ns = bpf_ktime_get_boot_ns();
    if (looked_at >= config.page_calm) adapt_page_level(bpf_ktime_get_boot_ns());
    return;
  }
  u64 now = bpf_ktime_get_boot_ns();
  if (live.trace || is_time_to_adapt(looked_at, my->since_ns, now)) adapt_page_level(now);
}

/* btrfs and f2fs keep their metadata in pages of inodes too, and their ledgers count each page. */
static __always_inline bool is_sampled_filesystem(u64 magic) {
  return config.sample_ns && magic != BTRFS_SUPER_MAGIC && magic != F2FS_SUPER_MAGIC;
}

/* Whether pages [first, last] of an inode on such a filesystem are of one group that is not looked
 * at. A function of its own for the sake of its callers' stack. */
static __noinline int pages_unseen(const struct fb_inode_key* inode, u64 first, u64 last) {
  u32 level = live.page_level;
  if (!level || first / FB_GROUP_PAGES != last / FB_GROUP_PAGES) return 0;
  struct fb_page_key key = {.inode = *inode, .group = first / FB_GROUP_PAGES};
  return !group_is_seen(&key, page_mix(&key), level);
}

#endif /* BPF_PAGE_SAMPLE_BPF_H_ */
