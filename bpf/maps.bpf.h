/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All tables, the settings, the scratch memory and the loss counters. Everything is allocated
 * before the first program runs. Sizes written here are small; the loader sets the real ones.
 */
#ifndef BPF_MAPS_BPF_H_
#define BPF_MAPS_BPF_H_

#include "bpf/kernel_read.bpf.h"

struct fb_live live = {.window = 1, .page_regime = 1};

#define FB_HASH(name, key_type, value_type, entries) \
  struct {                                           \
    __uint(type, BPF_MAP_TYPE_HASH);                 \
    __uint(max_entries, entries);                    \
    __type(key, key_type);                           \
    __type(value, value_type);                       \
  } name SEC(".maps")

#define FB_ARRAY(name, value_type, entries) \
  struct {                                  \
    __uint(type, BPF_MAP_TYPE_ARRAY);       \
    __uint(max_entries, entries);           \
    __type(key, u32);                       \
    __type(value, value_type);              \
  } name SEC(".maps")

/* User space reads and writes it in place. */
#define FB_MAPPED_ARRAY(name, value_type, entries) \
  struct {                                         \
    __uint(type, BPF_MAP_TYPE_ARRAY);              \
    __uint(max_entries, entries);                  \
    __uint(map_flags, BPF_F_MMAPABLE);             \
    __type(key, u32);                              \
    __type(value, value_type);                     \
  } name SEC(".maps")

/* Numbers that nothing uses. User space fills it. */
#define FB_FREE_IDS(name, entries)    \
  struct {                            \
    __uint(type, BPF_MAP_TYPE_QUEUE); \
    __uint(max_entries, entries);     \
    __uint(key_size, 0);              \
    __uint(value_size, sizeof(u32));  \
  } name SEC(".maps")

FB_HASH(stack_ids, u64, u32, 1024);
FB_ARRAY(stacks, struct fb_stack, 1024);
FB_FREE_IDS(free_stacks, 1024);

FB_HASH(actor_ids, struct fb_actor_key, u32, 1024);
FB_ARRAY(actors, struct fb_actor, 1024);
FB_FREE_IDS(free_actors, 1024);

FB_HASH(act_ids, struct fb_act_key, u32, 1024);
FB_ARRAY(acts, struct fb_act, 1024);
FB_FREE_IDS(free_acts, 1024);

FB_HASH(inodes, struct fb_inode_key, struct fb_inode, 1024);
FB_ARRAY(files, struct fb_file, 1024);
FB_FREE_IDS(free_files, 1024);

FB_HASH(pages, struct fb_page_key, struct fb_page_group, 1024);
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct fb_block_key);
  __type(value, struct fb_block_group);
} blocks SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 8192);
  __type(key, struct fb_ledger_key);
  __type(value, struct fb_ledger);
} ledgers SEC(".maps");

FB_MAPPED_ARRAY(bio_buckets, struct fb_bio_bucket, 1024);
FB_MAPPED_ARRAY(origins, struct fb_origin, 1024); /* mapped: so it begins a cache line */
FB_HASH(bios, u64, struct fb_origin, 1024); /* those that found their set full */
FB_MAPPED_ARRAY(hot_rows, struct fb_hot_row, 1024);
FB_HASH(rows0, struct fb_row_key, struct fb_row, 1024);
FB_HASH(rows1, struct fb_row_key, struct fb_row, 1024);
FB_ARRAY(lost, struct fb_lost, FB_MAX_DEVICES* FB_OP_COUNT);
FB_ARRAY(devices, struct fb_device, FB_DEVICE_PLACES);

FB_HASH(ranges, struct fb_range_key, struct fb_range, 16384);

/* Path of a multipath head -> that head, both as the kernel numbers them. */
FB_HASH(paths, u32, u32, 1024);

FB_HASH(loop_files, struct fb_loop_file, struct fb_loop, 1024);

FB_HASH(journals, u32, struct fb_journal, 1024);

/* Which filesystem logs its buffers on a block device now (xfs): a mark made of its id. */
FB_HASH(owners, u32, u32, 1024);

/* Where on which disk a block device begins, and who `owners` says it belongs to. Only filled where the types of
 * xfs are not described. */
struct fb_place {
  u64 start; /* bytes */
  u32 disk;
  u32 owner;
};
FB_HASH(places, u32, struct fb_place, 1024);

/* Filesystem (its s_dev) of a block device, where the two have different numbers: btrfs. */
FB_HASH(fs_of_device, u32, u32, 1024);

/* See task.bpf.h. */
struct task_state {
  u32 reason;    /* writeback: wb_reason + 1 */
  u32 taken_act; /* working on an inode for this dirtier */
  u32 taken_tid;
  u32 commit_dev; /* jbd2: transaction being committed */
  u32 commit_tid;
  u32 logging;  /* jbd2: writing to the journal now */
  u32 hint_act; /* kernel thread: dirtier of the inode it has just come across */
  u32 hint_tid;
  u64 hint_ns;
  /* The range that was recorded last: its own clean-to-dirty events say nothing new. */
  u64 range_inode;
  u64 range_first;
  u64 range_last;
  /* Inode whose last dirtier was recorded last. Not its address, which the next inode may get. */
  struct fb_inode_key touched;
  u32 touched_act;
  u32 touched_epoch;
};

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} trace_ring SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, FB_COUNTER_COUNT);
  __type(key, u32);
  __type(value, u64);
} counters SEC(".maps");

/*
 * Before 5.12 the kernel refuses a program that holds a compare-and-swap anywhere, even where it
 * never runs. So everything is compiled twice, the second time without; the loader takes that
 * object for such kernels.
 */
#ifdef FB_NO_COMPARE_AND_SWAP
#define CAN_CLAIM 0
#define CLAIM(place, value) false
#else
#define CAN_CLAIM 1
#define CLAIM(place, value) (__sync_val_compare_and_swap(place, 0, value) == 0)
#endif

static __always_inline void count(u32 which) {
  u64* counter = bpf_map_lookup_elem(&counters, &which);
  if (counter) *counter += 1;
}

/* --- Scratch memory: one piece for each hook that is running on this CPU --- */
#define STACK_COPY_BYTES 8192
#define STACK_TABLE 1024
#define STACK_TABLES 2
#define STACK_MARKS 72
#define STACK_TOP_MARKS 4

/*
 * A stack that was walked once, and where its return addresses lay: counted from the innermost
 * frame, but for those next to the top of stack memory, which are counted from there. Between the
 * two, the kernel moves the stack of each system call by a random number of bytes.
 */
struct known_stack {
  u64 key;
  u32 stack;
  u16 marks;
  u16 top_marks;
  u32 top_address[STACK_TOP_MARKS]; /* low halves */
  u16 top_offset[STACK_TOP_MARKS];
  u32 address[STACK_MARKS];
  u16 offset[STACK_MARKS];
};
/* Candidates for one hook in one system call. */
#define KNOWN_WAYS 8
struct known_set {
  u32 learning; /* somebody is writing to it */
  u32 recent;   /* way that was right last */
  u32 next;     /* way to give up next */
  struct known_stack way[KNOWN_WAYS];
};
#define KNOWN_SETS 64
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, KNOWN_SETS);
  __type(key, u32);
  __type(value, struct known_set);
} known_sets SEC(".maps");

struct scratch {
  u64 owner; /* address of the hook's context: also the lowest stack address of interest */
  u64 plain; /* see plain_address */
  u64 key;
  u32 level; /* index of this piece */
  u32 task_flags; /* of the thread whose stack it is */
  u32 depth;
  u64 raw[FB_MAX_FRAMES];
  struct known_stack learnt;
  u32 top_from; /* where the part counted from the top begins */
  struct fb_stack stack;
  u8 table[STACK_TABLES][STACK_TABLE];
  u8 found[FB_MAX_FRAMES];
  u8 copy[STACK_COPY_BYTES];
  struct fb_origin origin;
  struct fb_file file;
  struct fb_actor actor;
  struct fb_page_key dirty;
  u32 dirty_sampled; /* `dirty` is of a filesystem whose pages are sampled */
  struct fb_ledger ledger;
  /* A write to the file behind a loop device. */
  struct {
    u64 offset;
    u32 dev;
    u32 left; /* bytes to go */
    u64 at;   /* byte of the file */
    u32 act;  /* of whom the last part was */
    u32 tid;
  } carry;
  /* The walk over the pages or blocks of one bio. */
  struct {
    struct fb_page_key key;
    u64 bio;             /* its address */
    u64 at;              /* byte on the disk */
    struct fb_block run; /* what the last run_bytes of metadata belong to */
    u32 unknown;         /* metadata bytes without a dirtier so far */
    u64 vec_page;        /* of the segment at hand: page of the file, and byte in it */
    u32 vec_offset;
    u32 unseen;          /* bytes of pages that are not looked at */
    u32 sampled;         /* the pages are of a filesystem that is sampled */
    u32 page_level;      /* at which the pages may have been dirtied; 0 if not sampled */
    u32 maybe_unseen;    /* the pages of the group at hand may have been dirtied unseen */
    u32 weight;          /* level of the pages of the run; 0: they stand for themselves alone */
    u32 owner;           /* what fb_block.owner has to be */
    u32 part;            /* the block device of the bio */
    u32 dev;             /* of the filesystem: its ledger */
    u32 writers;         /* stacked device whose writers the driver works for; 0 = it does not */
    u32 left;            /* bytes not yet charged */
    u32 page_left;       /* of these in the page at hand */
    u32 run_bytes;       /* charged to run_slot once the run ends */
    u64 run_slot;
    u32 inode_act; /* last dirtier of the inode, for pages that nobody is known for */
    u32 inode_tid;
    u32 consume;    /* the pages leave the table: they are clean after this write */
    u32 journal;    /* this is a copy in the journal */
    u32 commit_dev; /* transaction that is being committed, or 0 */
    u32 commit_tid;
    u32 worker; /* the issuer is a kernel thread */
    u32 watch;  /* of the disk: what was recorded before it was watched does not count */
  } walk;
};
#define SCRATCH_LEVELS 4
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, SCRATCH_LEVELS);
  __type(key, u32);
  __type(value, struct scratch);
} scratches SEC(".maps");
/* Which pieces are taken. */
struct scratch_use {
  u32 taken[SCRATCH_LEVELS];
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct scratch_use);
} scratch_uses SEC(".maps");

/* Never written: what new entries are made from. */
struct blank {
  struct fb_row row;
  struct fb_page_group pages;
  struct fb_block_group blocks;
  struct fb_ledger ledger;
  struct task_state task;
  u8 table[STACK_TABLES][STACK_TABLE];
};
FB_ARRAY(blanks, struct blank, 1);

static __always_inline const struct blank* blank(void) {
  u32 zero = 0;
  return bpf_map_lookup_elem(&blanks, &zero);
}

/* Takes a piece of scratch memory. Every hook that got one gives it back with leave(). */
static __always_inline struct scratch* enter(void) {
  u32 zero = 0;
  struct scratch_use* use = bpf_map_lookup_elem(&scratch_uses, &zero);
  if (!use) return 0;
  for (u32 level = 0; level < SCRATCH_LEVELS; ++level) {
    if (use->taken[level]) continue;
    if (config.preemptible) {
      /* Another thread's hook may come in between, and outlast this one. */
      if (!CLAIM(&use->taken[level], 1)) continue;
    } else {
      /* Only an interrupt's hook may, and it has gone when we go on. */
      use->taken[level] = 1;
    }
    u32 mine = level;
    struct scratch* s = bpf_map_lookup_elem(&scratches, &mine);
    if (s) s->level = mine;
    return s;
  }
  count(FB_COUNTER_nested);
  return 0;
}

static __always_inline void leave(const struct scratch* s) {
  u32 zero = 0;
  struct scratch_use* use = bpf_map_lookup_elem(&scratch_uses, &zero);
  if (use) use->taken[s->level & (SCRATCH_LEVELS - 1)] = 0;
}

/* The address in a typed pointer as a plain number, which may be handed to global functions. */
static __always_inline u64 plain_address(struct scratch* s, const void* pointer) {
  *(volatile u64*)&s->plain = (u64)pointer;
  return *(volatile u64*)&s->plain;
}

/* The entry of a disk that is or was watched. */
static __always_inline const struct fb_device* device_of(u32 dev) {
  for (u32 i = 0; i < FB_DEVICE_PROBES; ++i) {
    u32 place = fb_device_place(dev, i);
    const struct fb_device* device = bpf_map_lookup_elem(&devices, &place);
    if (!device || !device->dev) return 0;
    if (device->dev == dev) return device;
  }
  return 0;
}

/* The disk for which a request to `dev` counts. */
static __always_inline const struct fb_device* device_of_request(u32 dev) {
  const struct fb_device* device = device_of(dev);
  u32* head = device ? 0 : bpf_map_lookup_elem(&paths, &dev);
  return head ? device_of(*head) : device;
}

static __always_inline bool is_watched(u32 dev) {
  const struct fb_device* device = device_of(dev);
  return device && device->watched;
}

#endif /* BPF_MAPS_BPF_H_ */
