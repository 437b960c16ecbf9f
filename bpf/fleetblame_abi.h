/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the BPF programs and user space agree on: layouts of map keys and values, and the constants
 * behind them. Plain C with fixed-width types, included by both sides; node-agent/tracer/bpf
 * checks that the histogram here equals common/histogram.h.
 *
 * Units: _ns nanoseconds of CLOCK_BOOTTIME, _bytes bytes, sectors of 512 bytes.
 */
#ifndef BPF_FLEETBLAME_ABI_H_
#define BPF_FLEETBLAME_ABI_H_

#ifdef __cplusplus
#include <cstdint>
typedef uint64_t fb_u64;
typedef uint32_t fb_u32;
typedef uint16_t fb_u16;
typedef uint8_t fb_u8;
#else
#include <linux/types.h>
typedef __u64 fb_u64;
typedef __u32 fb_u32;
typedef __u16 fb_u16;
typedef __u8 fb_u8;
#endif

/* --- Histogram: see common/histogram.h --- */
#define FB_HIST_FIRST_OCTAVE 10
#define FB_HIST_OCTAVES 24
#define FB_HIST_SUB_BUCKETS 8
#define FB_HIST_BUCKETS (2 + FB_HIST_OCTAVES * FB_HIST_SUB_BUCKETS)

/* --- Operations and confidence: values of fleetblame.v1 --- */
enum fb_op {
  FB_OP_READ = 1,
  FB_OP_WRITE = 2,
  FB_OP_DISCARD = 3,
  FB_OP_WRITE_ZEROES = 4,
  FB_OP_FLUSH = 5,
  FB_OP_SECURE_ERASE = 6,
  FB_OP_OTHER = 7,
  FB_OP_COUNT = 8,
};

enum fb_confidence {
  FB_CONF_EXACT = 1,
  FB_CONF_INODE = 2,
  FB_CONF_JOURNAL = 3,
  FB_CONF_CGROUP = 4,
  FB_CONF_ISSUER = 5,
  FB_CONF_LOST = 6,
  /* Pages that were not looked at: user space shares them out. */
  FB_CONF_UNSEEN = 8,
};

/* --- Stacks: numbers 0 and 1 are special, see tracer.h --- */
#define FB_STACK_NONE 0
#define FB_STACK_LOST 1
#define FB_STACK_FIRST 2
#define FB_MAX_FRAMES 64

/* Runs on behalf of everybody, whoever called it: committing a transaction, for instance. */
#define FB_STACK_FOR_ALL 1u
/* Writes to a block device itself, past any filesystem. */
#define FB_STACK_RAW_DEVICE 2u

struct fb_stack {
  fb_u32 frames; /* 0 until the entry is complete */
  fb_u32 flags;
  fb_u64 address[FB_MAX_FRAMES]; /* innermost first */
};

/*
 * Actor and act ids: an index into an array and a generation, so that an id that outlived its
 * entry is seen to be stale and can never name somebody else. Index 0 is never used.
 */
#define FB_ID_INDEX_BITS 20
#define FB_ID_INDEX_MASK ((1u << FB_ID_INDEX_BITS) - 1)

#define FB_ACTOR_KTHREAD 1u
/* The cgroup id is of a version 1 hierarchy. */
#define FB_ACTOR_CGROUP_V1 2u

struct fb_actor_key {
  fb_u64 cgroup_id;
  char comm[16];
  fb_u32 flags;
  fb_u32 reserved;
};

struct fb_actor {
  struct fb_actor_key key;
  fb_u32 id; /* 0 = free */
  fb_u32 epoch;
};

/* Who dirtied, and through which stack. */
struct fb_act_key {
  fb_u32 actor;
  fb_u32 stack;
};

struct fb_act {
  struct fb_act_key key;
  fb_u32 id; /* 0 = free */
  fb_u32 epoch;
};

/* --- Inodes --- */
struct fb_inode_key {
  fb_u64 ino;
  fb_u32 dev; /* kernel dev_t: major << 20 | minor */
  fb_u32 generation;
};

struct fb_inode {
  fb_u32 act; /* last dirtier; 0 = unknown */
  fb_u32 tid;
  fb_u32 file;   /* index into files, 0 = none */
  fb_u32 window; /* last window in which rows may name this file */
  fb_u32 epoch;
  fb_u32 reserved;
};

#define FB_PATH_BYTES 256

/* Names from the inode up to the root of its filesystem, each ended by a zero. */
struct fb_file {
  struct fb_inode_key key;
  fb_u16 path_bytes;
  fb_u8 complete;     /* the root was reached */
  fb_u8 reserved;
  fb_u32 id; /* own index once complete, 0 before */
  char path[FB_PATH_BYTES];
};

/* --- Pages: 16 of one inode in a group --- */
#define FB_GROUP_PAGES 16

struct fb_page_key {
  struct fb_inode_key inode;
  fb_u64 group; /* page index / 16 */
};

/* Slot: act id, tid << 32, and a tag of the key << 54 (see page.bpf.h). */
struct fb_page_group {
  fb_u64 slot[FB_GROUP_PAGES];
  fb_u32 epoch;
  fb_u32 regime; /* fb_live.page_regime when it was recorded */
};

/* Levels of the sampling of pages: at level n one group in 2^n is looked at. */
#define FB_PAGE_LEVELS 9

/* --- Metadata blocks by place on the disk, in units of a sector --- */
#define FB_BLOCK_SHIFT 9
#define FB_BLOCK_GROUP_SHIFT (FB_BLOCK_SHIFT + 4)

struct fb_block_key {
  fb_u32 dev;
  fb_u32 reserved;
  fb_u64 group; /* byte >> FB_BLOCK_GROUP_SHIFT */
};

struct fb_block {
  fb_u32 act;        /* exact dirtier, or 0 */
  fb_u32 tid;        /* its thread */
  fb_u32 ledger_dev; /* act == 0: split over this transaction */
  fb_u32 ledger_tid;
  fb_u32 owner; /* 0: a buffer of the block device; else the filesystem (xfs) it was logged by */
};

struct fb_block_group {
  struct fb_block block[FB_GROUP_PAGES];
  fb_u64 group; /* copy of the key, against entries that are reused */
  fb_u32 dev;
  fb_u32 watch; /* fb_device.watch when this was recorded */
};

/* --- Ledgers: who took part in a transaction --- */
#define FB_LEDGER_ACTS 16

struct fb_ledger_key {
  fb_u32 dev;
  fb_u32 tid; /* transaction */
};

struct fb_ledger {
  fb_u64 owner;      /* which filesystem under this number; 0 = not known */
  fb_u64 decayed_ns; /* fading ledgers only, as the next two */
  fb_u64 added_ns;
  fb_u64 charged_ns;
  fb_u32 act[FB_LEDGER_ACTS];
  fb_u32 actor[FB_LEDGER_ACTS];
  fb_u32 weight[FB_LEDGER_ACTS];
};

/* What is known of a journal, by the device of its filesystem. */
struct fb_journal {
  fb_u32 committed; /* transaction */
  fb_u32 era;       /* grows when transactions start anew: another filesystem */
};

/* --- IOs on their way --- */
#define FB_SHARES 8

/* fb_origin.flags. LINKED: a device above made this bio, and it is not yet queued below. KNOWN: whose
 * it is came with it. STACKED: `dev` makes no requests; it ends with the bio. DOUBLE: the very bio
 * that the device above got: the origin there is at its address + 1. */
#define FB_ORIGIN_LINKED 1u
#define FB_ORIGIN_KNOWN 2u
#define FB_ORIGIN_STACKED 4u
#define FB_ORIGIN_DOUBLE 8u
#define FB_ORIGIN_BELOW 16u /* `top` holds */
#define FB_ORIGIN_NOTED 32u /* of a loop device: found by its sectors like those of STACKED ones */
#define FB_ORIGIN_HEAD 64u  /* of a multipath head: it may end without ever becoming a request */
/* From here on: logarithm of how many IOs a sampled one stands for. */
#define FB_ORIGIN_WEIGHT_SHIFT 8

struct fb_share {
  fb_u32 act; /* 0 = the issuer (confidence issuer) or nobody (lost) */
  fb_u32 bytes;
  fb_u32 tid;
  fb_u32 confidence;
};

/* Known once a bio is done. */
struct fb_end {
  fb_u32 ios; /* 1 if an IO ends with this bio */
  fb_u32 error;
  fb_u64 wait_ns;
  fb_u64 io_ns;
};

/*
 * A bio begins on one CPU and often ends on another: what its end needs, when it has one share as
 * nearly all have, lies in the first 64 bytes, so that one cache line travels.
 */
#define FB_CACHE_LINE 64
struct fb_origin {
  fb_u64 queue_ns;
  fb_u64 issue_ns; /* 0 = not yet given to the driver */
  fb_u32 bytes;
  fb_u32 done_bytes;
  fb_u32 dev; /* whole disk */
  fb_u32 issuer_actor;
  fb_u32 issuer_stack;
  fb_u32 file;
  fb_u16 requeues;
  fb_u16 flags;
  fb_u8 op;
  fb_u8 reason;
  fb_u8 shares;
  fb_u8 part; /* number of the partition; 0 = the whole disk, or not known */
  struct fb_share share[FB_SHARES];
  fb_u64 sector;
  fb_u32 opf; /* bi_opf */
  fb_u32 issuer_tid;
  fb_u32 top; /* the top-most device that this came through; see flags */
  struct fb_end end; /* only where there are several shares */
} __attribute__((aligned(FB_CACHE_LINE)));

/*
 * The table of bios on their way: sets of few places each over an array, because an entry lives for
 * microseconds and a hash map's locks would cost more than all the rest. The keys lie apart from the
 * origins, so that a search touches one cache line. A bio that finds its set full goes to a hash map.
 */
#define FB_BIO_WAYS 4

struct fb_bio_bucket {
  fb_u64 bio[FB_BIO_WAYS]; /* 0 = free; the origin is at bucket * FB_BIO_WAYS + way */
};

/* --- Rows --- */
struct fb_row_key {
  fb_u32 dirtier_stack;
  fb_u32 issuer_stack;
  fb_u32 dirtier_actor;
  fb_u32 issuer_actor;
  fb_u32 dev;
  fb_u32 file;
  fb_u8 op; /* low bits; from FB_WEIGHT_SHIFT on the logarithm of how many IOs one stands for */
  fb_u8 confidence; /* low bits; from FB_WEIGHT_SHIFT on that of how many groups of pages one does */
  fb_u8 reason;
  fb_u8 part;
  fb_u32 top; /* as in fb_origin */
};
#define FB_WEIGHT_SHIFT 4
#define FB_CONFIDENCE_MASK 15u
#define FB_OP_MASK 15u

struct fb_row {
  fb_u64 ios;
  fb_u64 bytes;
  fb_u64 wait_ns;
  fb_u64 io_ns;
  fb_u64 errors;
  fb_u64 requeues;
  fb_u32 wait[FB_HIST_BUCKETS];
  fb_u32 io[FB_HIST_BUCKETS];
};

/*
 * The rows that a CPU adds to most have a copy of their own on that CPU, which needs no atomic
 * operations and no other CPU's cache lines. Place: ((cpu * 2 + window's table) * hot_rows + place).
 * A place belongs to the first row that takes it in a window.
 */
#define FB_HOT_PROBES 2

struct fb_hot_row {
  struct fb_row_key key;
  fb_u32 used;
  struct fb_row row;
};

/* Per device and operation, since the tracer started. */
#define FB_MAX_DEVICES 1024
#define FB_DEVICE_PLACES 4096
#define FB_DEVICE_PROBES 8
struct fb_lost {
  fb_u64 ios;
  fb_u64 bytes;
  fb_u64 errors;
};

/* Per CPU, device and kind, since the tracer started: IOs that were not looked at. Place: index of the
 * device * FB_SKIPPED_KINDS + kind. */
enum fb_skipped_kind {
  FB_SKIPPED_READ,
  FB_SKIPPED_DIRECT_WRITE,
  FB_SKIPPED_PAGE_WRITE, /* of one page that was not looked at when it was dirtied */
  FB_SKIPPED_KINDS,
};
struct fb_skipped {
  fb_u64 ios;
  fb_u64 bytes;
};

/* A place in the table of devices: open addressing from fb_device_place on. */
struct fb_device {
  fb_u32 dev;     /* kernel dev_t; 0 = free */
  fb_u32 index;   /* into the lost array, times FB_OP_COUNT */
  fb_u32 watched; /* 0: bios already on their way still count */
  fb_u32 watch;   /* grows each time the disk is watched anew */
  fb_u32 flags;
  fb_u32 upper; /* the top-most device on this whole disk; `dev` = one of several; 0 = none */
  fb_u32 writers; /* whose ledger says for whom a driver writes here of its own; 0 = nobody's */
};

/* fb_device.flags. BIOS: makes no requests; its IOs are bios from beginning to end. PARITY: what it
 * writes below is not only what it was given (RAID 4, 5, 6). */
#define FB_DEVICE_BIOS 1u
#define FB_DEVICE_PARITY 2u
/* Writes to this device make its driver write besides (parity, old blocks for a snapshot, tables of a
 * pool): they are noted in the ledger of fb_device.writers. */
#define FB_DEVICE_NOTED 4u
#define FB_DEVICE_LOOP 8u /* a loop device on a file in loop_files */
/* Head of a multipath namespace: it makes no requests, but its IOs are those of its paths, which are
 * nobody's disks. */
#define FB_DEVICE_HEAD 16u

/*
 * Bios of stacked devices by the sectors they cover, for those that look for the bio they were made
 * from: blocks of 2^level sectors, as few as cover the bio.
 */
#define FB_RANGE_LEVELS 24

struct fb_range_key {
  fb_u32 dev;
  fb_u32 level;
  fb_u64 at; /* sector >> level */
};

struct fb_range {
  fb_u64 bio; /* 0 = several, and not known which */
  fb_u32 holders;
  fb_u32 epoch;
};

/* The file behind a loop device. */
struct fb_loop_file {
  fb_u64 ino;
  fb_u32 dev; /* of its filesystem, as the kernel numbers it */
  fb_u32 reserved;
};

struct fb_loop {
  fb_u64 offset; /* byte of the file at which the device begins */
  fb_u32 dev;
  fb_u32 reserved;
};

static inline fb_u32 fb_device_place(fb_u32 dev, fb_u32 probe) {
  return ((dev * 0x9E3779B1u >> 16) + probe) & (FB_DEVICE_PLACES - 1);
}

/* --- Trace mode --- */
struct fb_trace {
  fb_u64 complete_ns;
  fb_u64 sector;
  fb_u64 wait_ns;
  fb_u64 io_ns;
  fb_u64 bytes;
  fb_u64 other_bytes;
  fb_u32 dev;
  fb_u32 opf;
  fb_u32 error;
  fb_u32 dirtier_stack;
  fb_u32 dirtier_actor;
  fb_u32 dirtier_tid;
  fb_u32 issuer_stack;
  fb_u32 issuer_actor;
  fb_u32 issuer_tid;
  fb_u32 file;
  fb_u32 requeues;
  fb_u32 merged_bios;
  fb_u8 op;
  fb_u8 confidence;
  fb_u8 reason;
  fb_u8 reserved[5];
};

/* --- Loss counters: docs/counters.md explains each --- */
#define FB_COUNTERS(X)                                                                    \
  X(stack_nomem)     /* no free stack number, or two stacks with one hash */              \
  X(stack_uncached)  /* a walked stack that cannot be verified again */                   \
  X(stack_walks)     /* full stack walks */                                               \
  X(actor_nomem)     /* no free actor number */                                           \
  X(act_nomem)       /* no free act number */                                             \
  X(act_stale)       /* an act was reclaimed before its IO */                             \
  X(pgtree_nomem)    /* page table full */                                                \
  X(inode_nomem)     /* inode table full */                                               \
  X(task_nomem)      /* task table full */                                                \
  X(bio_nomem)       /* bio table full */                                                 \
  X(bio_reused)      /* a bio came again before its end was seen */                       \
  X(end_missed)      /* of these, those whose IO had been issued */                       \
  X(bio_expired)     /* a bio never ended through a request */                            \
  X(bio_unknown)     /* an IO ended whose beginning was not seen */                       \
  X(skipped_failed)  /* an IO that was not looked at failed */                            \
  X(bio_resized)     /* an IO ended with another size than it began with */               \
  X(range_nomem)     /* no room to note where a stacked device's IO lies */              \
  X(bvec_cut)        /* a bio with more segments than are looked at */                    \
  X(share_overflow)  /* more dirtiers in one bio than shares */                           \
  X(ledger_overflow) /* more participants in a transaction than a ledger holds */         \
  X(chain_cut)       /* a request with more bios than are looked at */                    \
  X(rows_nomem)      /* row table full */                                                 \
  X(trace_dropped)   /* trace ring full */                                                \
  X(nested)          /* hooks nested too deep */                                          \
  X(files_capped)    /* files without rows of their own in this window */

enum fb_counter {
#define FB_COUNTER_ENUM(name) FB_COUNTER_##name,
  FB_COUNTERS(FB_COUNTER_ENUM)
#undef FB_COUNTER_ENUM
      FB_COUNTER_COUNT
};

#define FB_MARKED_FUNCTIONS 4

/* --- Settings that never change while the programs run --- */
struct fb_config {
  fb_u32 page_shift;
  fb_u32 max_files;   /* files with rows of their own in one window */
  fb_u32 cgroup_v1_subsystem; /* index of the v1 controller for actors, or ~0 */
  fb_u32 bio_pinned; /* bi_flags of a bio over a process's own pages; 0 = unknown */
  fb_u32 bio_queued; /* bi_flags of a bio that block_bio_queue has told of; 0 = unknown */
  fb_u32 bio_buckets; /* of the bio table, a power of two; 0 = this kernel cannot use it */
  fb_u32 hot_rows; /* per CPU, a power of two; 0 = a hook may interrupt itself on this kernel */
  fb_u32 preemptible; /* other threads may run on a CPU while a hook does */
  fb_u32 in_place; /* the kernel has bpf_rdonly_cast */
  fb_u32 blind_journal; /* commits of jbd2 cannot be seen on this kernel, but perhaps by records */
  fb_u32 xfs_records; /* types of xfs are not described: records are read instead */
  /* Where the records of tracepoints hold what programs read of them. */
  struct {
    fb_u32 commit_dev;
    fb_u32 commit_tid;
    fb_u32 xfs_buf_dev;
    fb_u32 xfs_buf_block;
    fb_u32 xfs_buf_bytes;
    fb_u32 xfs_trans_dev;
    fb_u32 xfs_trans_flags;
    fb_u32 reserved;
  } record;
  fb_u32 sample_ns; /* a CPU skips IOs and dirtied pages that come closer than this, on average; 0 = never */
  fb_u32 page_calm; /* so many pages in a row are looked at, however fast they come */
  fb_u32 sample_step; /* see sample_rate.bpf.h */
  /* Functions that end a bio, 0 = not known: of encrypted copies; of a buffer, of a file or not. */
  fb_u64 encrypt_end;
  fb_u64 buffer_end;
  /* Functions that give a stack a flag, as [first, last) addresses; 0 = none. */
  struct {
    fb_u64 first;
    fb_u64 last;
    fb_u64 flag;
  } marked[FB_MARKED_FUNCTIONS];
};

/* What user space changes while the programs run. */
struct fb_live {
  fb_u32 active; /* which of the two row tables is written */
  fb_u32 window; /* number of the window, from 1 */
  fb_u32 epoch;  /* clock of the reclaim, in windows */
  fb_u32 trace;  /* per-IO records wanted */
  fb_u32 files;  /* files admitted in this window; written by both sides */
  fb_u32 btrfs;  /* a btrfs was seen; set by the programs */
  fb_u32 spilled; /* a bio went to the hash map; set by the programs */
  fb_u32 task_spilled; /* a thread's state did; set by the programs */
  fb_u32 sees_commits; /* records of jbd2's commits are read */
  fb_u32 loops; /* there are files in loop_files */
  fb_u32 stacks; /* a watched disk has a watched device on it */
  fb_u32 range_levels; /* bits of the levels at which ranges were noted; set by the programs */
  fb_u32 devices_changed; /* grows with each change of `devices` */
  fb_u32 skipped; /* last window in which IOs were skipped, 0 = never; set by the programs */
  /* See page_sample.bpf.h; set by the programs. */
  fb_u32 page_level;
  fb_u32 page_regime;                    /* grows with each change of the level, from 1 on */
  fb_u32 page_unseen[FB_PAGE_LEVELS];    /* last regime in which groups of a level were not looked at */
  fb_u64 page_unseen_ns[FB_PAGE_LEVELS]; /* when such a regime last ended; 0 = never */
  fb_u64 page_changed_ns;
  fb_u64 page_write_end; /* a function that ends writes of pages of files, and nothing else; 0 = not known */
  fb_u64 page_needed_ns; /* when a CPU last found that a lower level would be too low */
};

#endif /* BPF_FLEETBLAME_ABI_H_ */
