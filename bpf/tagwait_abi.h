/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What bpf/tagwait.bpf.c and user space agree on. Included after bpf/fleetblame_abi.h.
 *
 * Rows and holders are cumulative since the programs were loaded: user space subtracts what it saw
 * before. Maxima are those of the window whose number the entry holds.
 *
 * Units: _ns nanoseconds of CLOCK_BOOTTIME. Devices: major << 20 | minor.
 */
#ifndef BPF_TAGWAIT_ABI_H_
#define BPF_TAGWAIT_ABI_H_

#include "bpf/fleetblame_abi.h"

/* Values of fleetblame.v1.TagWaitSource and .TagKind. */
enum fb_tag_source {
  FB_TAG_SOURCE_TRACEPOINT = 1,
  FB_TAG_SOURCE_FENTRY = 2,
  FB_TAG_SOURCE_KPROBE = 3,
  FB_TAG_SOURCE_INFERRED = 4,
};
enum fb_tag_kind {
  FB_TAG_HARDWARE = 1,
  FB_TAG_SCHEDULER = 2,
};

enum fb_tag_end {
  FB_TAG_END_TAG = 0,
  FB_TAG_END_SIGNAL = 1,
  FB_TAG_END_REMOVAL = 2,
  FB_TAG_END_FREEZE = 3,
  FB_TAG_END_UNSEEN = 4,
  FB_TAG_ENDS = 5,
};

struct fb_tag_key {
  fb_u64 set; /* address of the tag set: tells sets apart, nothing else */
  fb_u32 dev;
  fb_u32 hctx;
  fb_u32 nr_tags; /* of the pool */
  fb_u32 stack;
  fb_u32 actor;
  fb_u8 kind;
  fb_u8 reserved_pool;
  fb_u8 source;
  fb_u8 padding;
};

struct fb_tag_row {
  fb_u64 waits;
  fb_u64 woke_at_once;
  fb_u64 rounds;
  fb_u64 wait_ns;
  fb_u64 max_wait_ns;
  fb_u64 ended[FB_TAG_ENDS];
  fb_u64 active_sum;
  fb_u64 active_samples;
  fb_u64 active_max;
  fb_u32 window;
  fb_u32 padding;
  fb_u32 wait[FB_HIST_BUCKETS];
};

/* A wait under way, by thread. */
struct fb_tag_wait {
  struct fb_tag_key key;
  fb_u64 begin_ns;
  fb_u64 woken_ns;
  fb_u64 queue;    /* address */
  fb_u64 place;    /* of the entry in the wait queue; 0 = not known */
  fb_u64 switches; /* voluntary context switches when the last round began, or ended */
  fb_u32 rounds;
  fb_u32 active; /* ~0 = not known */
  fb_u8 slept;
  fb_u8 woken; /* out of the sleep, without a tag as yet */
  fb_u8 padding[6];
};

struct fb_tag_holder_key {
  fb_u64 set;
  fb_u32 waiter;
  fb_u32 holder; /* 0 = not told apart */
  fb_u8 kind;
  fb_u8 reserved_pool;
  fb_u8 padding[6];
};

struct fb_tag_holder {
  fb_u64 tags_sum;
  fb_u64 samples;
  fb_u64 tags_max;
  fb_u64 nr_tags_sum;
  fb_u32 window;
  fb_u32 padding;
};

struct fb_tag_set {
  fb_u32 flags; /* BLK_MQ_F_* */
  fb_u32 queue_depth;
  fb_u32 reserved_tags;
  fb_u32 hw_queues;
  fb_u32 disks; /* queues that were found on its list */
  fb_u32 dev;   /* one of its disks */
};

/* One wait that ended, for a test that compares sources wait by wait (fb_tag_config.stream). */
struct fb_tag_ended {
  fb_u64 begin_ns;
  fb_u64 end_ns; /* 0 = not seen */
  fb_u32 tid;
  fb_u32 slept;
};

/* Queues of one set that are looked at when a wait begins. */
#define FB_TAG_QUEUES 64
/* Words of one bitmap that are counted: up to 16,384 tags. */
#define FB_TAG_WORDS 256

#define FB_TAG_COUNTERS(X)                                                          \
  X(tagwait_unknown)       /* a wait whose queue was not found */                   \
  X(tagwait_waits_nomem)   /* table of waits under way full */                      \
  X(tagwait_rows_nomem)    /* row table full */                                     \
  X(tagwait_holders_nomem) /* holder table full */                                  \
  X(tagwait_holders_cut)   /* more disks in a set, or tags, than are looked at */

enum fb_tag_counter {
#define FB_TAG_COUNTER_ENUM(name) FB_COUNTER_##name,
  FB_TAG_COUNTERS(FB_TAG_COUNTER_ENUM)
#undef FB_TAG_COUNTER_ENUM
      FB_TAG_COUNTER_COUNT
};

struct fb_tag_config {
  fb_u64 get_tag_first; /* blk_mq_get_tag, as [first, last) */
  fb_u64 get_tag_last;
  fb_u32 queue_dying; /* bits of request_queue.queue_flags */
  fb_u32 disk_dead;   /* bits of gendisk.state; 0 = this kernel has none */
  fb_u32 queue_shared; /* BLK_MQ_F_TAG_QUEUE_SHARED */
  fb_u32 host_wide;    /* BLK_MQ_F_TAG_HCTX_SHARED */
  fb_u32 reserved_flag; /* BLK_MQ_REQ_RESERVED */
  fb_u32 stream;        /* each wait that ends goes to tag_stream as well */
};

struct fb_tag_live {
  fb_u32 window;
  fb_u32 open_inferred; /* waits under way that sched_switch has to look for */
  fb_u32 ends_seen;     /* the hook for the end of waits is attached */
  fb_u32 padding;
  fb_u64 begun; /* waits */
};

#endif /* BPF_TAGWAIT_ABI_H_ */
