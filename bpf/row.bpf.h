/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sums finished bios into rows, and IOs that were asked for into trace records.
 */
#ifndef BPF_ROW_BPF_H_
#define BPF_ROW_BPF_H_

#include "bpf/bio.bpf.h"
#include "bpf/bio_table.bpf.h"
#include "bpf/histogram.bpf.h"

/* Of a piece of a request that is done. */
#define COMPLETE_FIRST 1u /* the request ends with this piece: count the IO here */
#define COMPLETE_ALL 2u   /* the bio ends with this piece */
#define COMPLETE_TRACE 4u

/* What came of the end of a bio. */
enum completed {
  BIO_UNKNOWN = 0, /* its beginning was not seen */
  BIO_DONE = 1,
  BIO_FAILED = 2, /* it was skipped (sample.bpf.h), and failed */
};

static __always_inline void count_lost_of(const struct fb_device* device, u32 op, u64 bytes,
                                          u64 ios, u64 errors) {
  u32 index = device->index * FB_OP_COUNT + (op & (FB_OP_COUNT - 1));
  struct fb_lost* cell = bpf_map_lookup_elem(&lost, &index);
  if (!cell) return;
  if (bytes) ADD(cell->bytes, bytes);
  /* Adding a constant 0 becomes an atomic or, which kernels before 5.12 refuse. */
  if (ios) ADD(cell->ios, ios);
  if (errors) ADD(cell->errors, errors);
}
static __always_inline void count_lost(u32 dev, u32 op, u64 bytes, u64 ios, u64 errors) {
  const struct fb_device* device = device_of(dev);
  if (device) count_lost_of(device, op, bytes, ios, errors);
}

static __always_inline struct fb_row* row_get(const struct fb_row_key* key) {
  void* table = live.active ? (void*)&rows1 : (void*)&rows0;
  struct fb_row* row = bpf_map_lookup_elem(table, key);
  if (row) return row;
  const struct blank* empty = blank();
  if (!empty) return 0;
  bpf_map_update_elem(table, key, &empty->row, BPF_NOEXIST);
  return bpf_map_lookup_elem(table, key);
}

/* The copy of a row that belongs to this CPU alone; 0 if others have taken its places. */
static __always_inline struct fb_row* hot_row_get(const struct fb_row_key* key) {
  const u64* words = (const void*)key;
  u64 mix = (words[0] ^ (words[1] << 5) ^ (words[2] << 9) ^ words[3]) * 0x9E3779B97F4A7C15ull;
  mix ^= (words[0] >> 32) ^ words[2];
  mix *= 0x9E3779B97F4A7C15ull;
  u32 base = (bpf_get_smp_processor_id() * 2 + (live.active & 1)) * config.hot_rows;
  for (u32 probe = 0; probe < FB_HOT_PROBES; ++probe) {
    u32 place = base + (((u32)(mix >> 40) + probe) & (config.hot_rows - 1));
    struct fb_hot_row* hot = bpf_map_lookup_elem(&hot_rows, &place);
    if (!hot) return 0;
    if (!hot->used) {
      hot->key = *key;
      hot->used = 1;
      return &hot->row;
    }
    const u64* there = (const void*)&hot->key;
    if (there[0] == words[0] && there[1] == words[1] && there[2] == words[2] &&
        there[3] == words[3])
      return &hot->row;
  }
  return 0;
}

/* What charge_share adds to a row: with ADD where others add to it at the same time. Who knows that
 * there was no wait must not add it: see count_lost. */
#define ADD_IO(row, o, end, bytes, with_io, ADD)              \
  do {                                                        \
    ADD((row)->bytes, bytes);                                 \
    if (with_io) {                                            \
      ADD((row)->ios, 1);                                     \
      if ((end)->wait_ns) ADD((row)->wait_ns, (end)->wait_ns); \
      ADD((row)->io_ns, (end)->io_ns);                        \
      u32 wait = histogram_bucket((end)->wait_ns);            \
      u32 io = histogram_bucket((end)->io_ns);                \
      if (wait < FB_HIST_BUCKETS) ADD((row)->wait[wait], 1);  \
      if (io < FB_HIST_BUCKETS) ADD((row)->io[io], 1);        \
      if ((end)->error) ADD((row)->errors, 1);                \
      if ((o)->requeues) ADD((row)->requeues, (o)->requeues); \
    }                                                         \
  } while (0)
#define ADD_ALONE(place, amount) ((place) += (amount))

/* Logarithm of how many IOs this one stands for: see sample.bpf.h. */
static __always_inline u8 weight_of(const struct fb_origin* o) {
  return o->flags >> FB_ORIGIN_WEIGHT_SHIFT;
}

/*
 * Charges share `i`; with_io: the IO itself is its too. Hooks that may be interrupted by the end of
 * another IO must not be `alone`.
 */
static __always_inline int charge_share(const struct fb_origin* o, const struct fb_end* end, u32 i,
                                        bool with_io, bool alone) {
  const struct fb_share* share = &o->share[i & (FB_SHARES - 1)];
  u32 bytes = share->bytes;
  struct fb_row_key key = {.issuer_stack = o->issuer_stack,
                           .issuer_actor = o->issuer_actor,
                           .dev = o->dev,
                           .file = o->file,
                           .op = o->op | weight_of(o) << FB_WEIGHT_SHIFT,
                           .confidence = share->confidence,
                           .reason = o->reason,
                           .part = o->part,
                           .top = o->flags & FB_ORIGIN_BELOW ? o->top : 0};
  if (share->act) {
    struct fb_act* act = act_of(share->act);
    if (act) {
      key.dirtier_stack = act->key.stack;
      key.dirtier_actor = act->key.actor;
    } else if ((share->confidence & FB_CONFIDENCE_MASK) != FB_CONF_UNSEEN) {
      count(FB_COUNTER_act_stale);
      key.confidence = FB_CONF_LOST;
      key.dirtier_stack = FB_STACK_LOST;
    }
  } else if (share->confidence == FB_CONF_ISSUER) {
    key.dirtier_stack = o->issuer_stack;
    key.dirtier_actor = o->issuer_actor;
  }
  if (alone && config.hot_rows) {
    struct fb_row* hot = hot_row_get(&key);
    if (hot) {
      ADD_IO(hot, o, end, bytes, with_io, ADD_ALONE);
      return 0;
    }
  }
  struct fb_row* row = row_get(&key);
  if (!row) {
    count(FB_COUNTER_rows_nomem);
    count_lost(o->dev, o->op, bytes, with_io, with_io && end->error);
    return 0;
  }
  ADD_IO(row, o, end, bytes, with_io, ADD);
  return 0;
}

__noinline int charge_nth(u64 bio, u32 i, u32 with_io, u32 alone) {
  struct fb_origin* o = bio_find(bio);
  if (o) charge_share(o, &o->end, i, with_io, alone);
  return 0;
}

static __always_inline u32 largest_share(const struct fb_origin* o) {
  u32 n = o->shares;
  u32 most = 0;
  u32 most_bytes = o->share[0].bytes;
  for (u32 i = 1; i < FB_SHARES; ++i) {
    if (i >= n) break;
    u32 bytes = o->share[i].bytes;
    if (bytes > most_bytes) {
      most = i;
      most_bytes = bytes;
    }
  }
  return most;
}

/* Charges a whole origin. The IO itself goes to the largest share. */
static __always_inline int charge_origin(struct fb_origin* o, const struct fb_end* end, u64 bio,
                                         bool alone) {
  u32 n = o->shares;
  bool with_io = end->ios;
  if (n <= 1) return charge_share(o, end, 0, with_io, alone);
  o->end = *end;
  u32 most = largest_share(o);
  for (u32 i = 0; i < FB_SHARES; ++i) {
    if (i >= n) break;
    charge_nth(bio, i, with_io && i == most, alone);
  }
  return 0;
}

/* Makes the shares of an origin add up to `bytes`. */
static __noinline int rescale(struct fb_origin* o, u32 bytes) {
  u64 old = o->bytes;
  u32 left = bytes;
  u32 n = o->shares;
  for (u32 i = 0; i < FB_SHARES; ++i) {
    if (i >= n) break;
    u32 part = old ? (u64)o->share[i].bytes * bytes / old : 0;
    if (part > left) part = left;
    if (i + 1 == n) part = left;
    o->share[i].bytes = part;
    left -= part;
  }
  o->bytes = bytes;
  return 0;
}

/*
 * An IO that must have ended, though the kernel did not tell us: its bytes are known, its time is
 * not, so it counts as no IO in any row. Some kernels run no programs in the context of certain
 * tasks, and so hide the ends of the IOs that interrupt these.
 */
__noinline int charge_missed(u64 bio) {
  struct fb_origin* o = bio_find(bio);
  if (!o) return 0;
  count(FB_COUNTER_end_missed);
  struct fb_end end = {};
  if (o->bytes) charge_origin(o, &end, bio, false);
  return 0;
}

#endif /* BPF_ROW_BPF_H_ */
