// SPDX-License-Identifier: GPL-2.0
//
// Who sleeps for a tag, for how long, and which disks hold the tags meanwhile.
//
// One stay in blk_mq_get_tag() whose pool is empty looks so:
//
//   tracepoint, prepare       a round begins
//     (a last try; a tag: finish, and out)
//     sleep, finish           the round is over
//   prepare ...               the tag went to somebody else: another round
//   finish                    got a tag
//
// so a finish that follows a finish is the end, and so is a finish in a round that never slept.
// "prepare" and "finish" are prepare_to_wait_exclusive() and finish_wait(): the functions of
// sbitmap that call them cannot be hooked. Nobody calls the first on the way of an IO that finds a
// tag; others do call the second, so user space attaches to it only while there are waits.
#include "bpf/actor.bpf.h"
#include "bpf/histogram.bpf.h"
#include "bpf/tagwait_abi.h"
#include "bpf/tagwait_types.h"

char LICENSE[] SEC("license") = "GPL";

const volatile struct fb_tag_config tag_config = {};
struct fb_tag_live tag_live = {.window = 1};

FB_HASH(tag_waits, u32, struct fb_tag_wait, 16384);
FB_HASH(tag_rows, struct fb_tag_key, struct fb_tag_row, 1024);
FB_HASH(tag_holders, struct fb_tag_holder_key, struct fb_tag_holder, 4096);
FB_HASH(tag_sets, u64, struct fb_tag_set, 256);

/* A word in it: somebody waits, and the hook for the end is wanted. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} tag_wake SEC(".maps");

/* struct fb_tag_ended, where tag_config.stream asks for it; user space makes it large then. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} tag_stream SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, FB_TAG_COUNTER_COUNT);
  __type(key, u32);
  __type(value, u64);
} tag_counters SEC(".maps");

/* What one hook is about, beside the scratch memory of its level. */
struct tag_scratch {
  u64 queue;
  u64 hctx;
  u64 pool;  /* the sbitmap_queue that ran dry; 0 = not known */
  u64 place; /* of the entry in the wait queue; 0 = not known */
  u64 set;
  u32 flags; /* of the set */
  u32 kind;
  u32 reserved_pool;
  u32 nr_tags;
  u32 queue_num;
  u32 dev;
  u32 active;
  u32 request_flags;
  struct fb_tag_wait wait;
  struct fb_tag_holder_key holder;
  struct fb_tag_set tag_set;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, SCRATCH_LEVELS);
  __type(key, u32);
  __type(value, struct tag_scratch);
} tag_scratches SEC(".maps");

/* Never written. */
struct tag_blank {
  struct fb_tag_row row;
  struct fb_tag_holder holder;
};
FB_ARRAY(tag_blanks, struct tag_blank, 1);

enum tag_hook {
  HOOK_TAG_EVENT = 32,
  HOOK_TAG_FENTRY,
  HOOK_TAG_KPROBE,
  HOOK_TAG_SWITCH,
};

static __always_inline void tag_count(u32 which) {
  u64* counter = bpf_map_lookup_elem(&tag_counters, &which);
  if (counter) *counter += 1;
}

#define PEEK(type, address, field)                                                       \
  ({                                                                                     \
    typeof(((type*)0)->field) peeked = 0;                                                \
    bpf_probe_read_kernel(&peeked,                                                       \
                          bpf_core_field_size(((type*)0)->field) > sizeof(peeked)        \
                              ? sizeof(peeked)                                           \
                              : bpf_core_field_size(((type*)0)->field),                  \
                          (void*)((u64)(address) + bpf_core_field_offset(type, field))); \
    peeked;                                                                              \
  })
#define PLACE(type, address, field) ((u64)(address) + bpf_core_field_offset(type, field))

/* An atomic_t, which has no name to look up its field by. */
static __always_inline u32 counter_at(u64 address) {
  u32 counter = 0;
  bpf_probe_read_kernel(&counter, sizeof(counter), (void*)address);
  return counter;
}

static __always_inline u64 own_switches(void) {
  return PEEK(struct task_struct___tag, bpf_get_current_task(), nvcsw);
}

/*
 * Each face of a structure that some kernels lack is read in a function of its own: the compiler
 * might move the offset of a field before the question whether there is one, and an offset of
 * nothing makes the kernel refuse the program.
 */
static __noinline u32 state_old(u64 task) {
  return (u32)PEEK(struct task_struct___old, task, state);
}
static __noinline u32 state_now(u64 task) { return PEEK(struct task_struct___tag, task, __state); }
static __always_inline u32 state_of(u64 task) {
  struct task_struct___old* old = 0;
  return bpf_core_field_exists(old->state) ? state_old(task) : state_now(task);
}

/* --- The pool --- */

/* Tags taken of a pool. */
__noinline u32 pool_weight(u64 pool) {
  u64 bitmap = PLACE(struct sbitmap_queue___tag, pool, sb);
  u32 words = PEEK(struct sbitmap___tag, bitmap, map_nr);
  u64 map = (u64)PEEK(struct sbitmap___tag, bitmap, map);
  u32 size = bpf_core_type_size(struct sbitmap_word___tag);
  u32 taken = 0;
  for (u32 i = 0; i < FB_TAG_WORDS; ++i) {
    if (i >= words) break;
    u64 at = map + (u64)i * size;
    u64 set = PEEK(struct sbitmap_word___tag, at, word);
    set &= ~PEEK(struct sbitmap_word___tag, at, cleared);
    set -= (set >> 1) & 0x5555555555555555ull;
    set = (set & 0x3333333333333333ull) + ((set >> 2) & 0x3333333333333333ull);
    taken += (((set + (set >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull) >> 56;
  }
  if (words > FB_TAG_WORDS) tag_count(FB_COUNTER_tagwait_holders_cut);
  return taken;
}

/* The pool of normal or reserved tags. */
static __noinline u64 pool_behind(u64 tags, u32 reserved) {
  if (reserved) return (u64)PEEK(struct blk_mq_tags___old, tags, breserved_tags);
  return (u64)PEEK(struct blk_mq_tags___old, tags, bitmap_tags);
}
static __noinline u64 pool_within(u64 tags, u32 reserved) {
  if (reserved) return PLACE(struct blk_mq_tags___tag, tags, breserved_tags);
  return PLACE(struct blk_mq_tags___tag, tags, bitmap_tags);
}
static __always_inline u64 pool_of(u64 tags, u32 reserved) {
  /* A field of the other kind, structure or pointer, does not match. */
  struct blk_mq_tags___old* old = 0;
  if (!tags) return 0;
  return bpf_core_field_exists(old->bitmap_tags) ? pool_behind(tags, reserved)
                                                 : pool_within(tags, reserved);
}

static __noinline u64 disk_now(u64 queue) {
  return (u64)PEEK(struct request_queue___disk, queue, disk);
}
/* 0 before 5.15. */
static __always_inline u64 disk_of(u64 queue) {
  struct request_queue___disk* newer = 0;
  return bpf_core_field_exists(newer->disk) ? disk_now(queue) : 0;
}

static __noinline u32 dev_by_parent(u64 queue) {
  u64 own = PLACE(struct request_queue___tag, queue, kobj);
  u64 parent = (u64)PEEK(struct kobject___tag, own, parent);
  if (!parent) return 0;
  u64 device = parent - bpf_core_field_offset(struct device___tag, kobj);
  return PEEK(struct device___tag, device, devt);
}
static __noinline u32 dev_by_disk(u64 queue) {
  u64 disk = disk_now(queue);
  if (!disk) return 0;
  return ((u32)PEEK(struct gendisk___tag, disk, major) << 20) |
         (u32)PEEK(struct gendisk___tag, disk, first_minor);
}
static __always_inline u32 queue_dev(u64 queue) {
  struct request_queue___disk* newer = 0;
  return bpf_core_field_exists(newer->disk) ? dev_by_disk(queue) : dev_by_parent(queue);
}

/* Fills in what follows from queue, hctx and, when they are known, pool, kind and reserved_pool. */
__noinline int resolve_pool(u32 level) {
  struct tag_scratch* t = bpf_map_lookup_elem(&tag_scratches, &level);
  if (!t) return 0;
  u64 hctx = t->hctx;
  u64 hardware = (u64)PEEK(struct blk_mq_hw_ctx___tag, hctx, tags);
  u64 scheduler = (u64)PEEK(struct blk_mq_hw_ctx___tag, hctx, sched_tags);
  if (t->pool) {
    u64 pool = t->pool;
    t->kind = 0;
    t->reserved_pool = 0;
    if (pool == pool_of(hardware, false)) t->kind = FB_TAG_HARDWARE;
    if (pool == pool_of(scheduler, false)) t->kind = FB_TAG_SCHEDULER;
    if (!t->kind) {
      t->reserved_pool = 1;
      if (pool == pool_of(hardware, true)) t->kind = FB_TAG_HARDWARE;
      if (pool == pool_of(scheduler, true)) t->kind = FB_TAG_SCHEDULER;
    }
    if (!t->kind) return 0;
  } else {
    if (!t->kind) t->kind = scheduler ? FB_TAG_SCHEDULER : FB_TAG_HARDWARE;
    u64 tags = t->kind == FB_TAG_SCHEDULER ? scheduler : hardware;
    t->pool = t->reserved_pool ? pool_of(tags, true) : pool_of(tags, false);
    if (!t->pool) return 0;
  }
  t->nr_tags = PEEK(struct sbitmap___tag, PLACE(struct sbitmap_queue___tag, t->pool, sb), depth);
  t->queue_num = PEEK(struct blk_mq_hw_ctx___tag, hctx, queue_num);
  t->dev = queue_dev(t->queue);
  t->set = (u64)PEEK(struct request_queue___tag, t->queue, tag_set);
  t->flags = t->set ? PEEK(struct blk_mq_tag_set___tag, t->set, flags) : 0;
  return 1;
}

/* --- The holders --- */

/* Hardware queue `number` of a request queue, or 0. */
static __noinline u64 hctx_in_array(u64 queue, u32 number) {
  u64 hctx = 0;
  u64 table = (u64)PEEK(struct request_queue___array, queue, queue_hw_ctx);
  if (table) bpf_probe_read_kernel(&hctx, sizeof(hctx), (void*)(table + (u64)number * 8));
  return hctx;
}
static __noinline u64 hctx_in_xarray(u64 queue, u32 number) {
  u64 table = PLACE(struct request_queue___xarray, queue, hctx_table);
  u64 node = (u64)PEEK(struct xarray___tag, table, xa_head);
  /* Inner nodes are marked with 2; each looks at six bits of the index. */
  for (u32 depth = 0; depth < 3; ++depth) {
    if ((node & 3) != 2) break;
    node -= 2;
    u32 slot = (number >> (PEEK(struct xa_node___tag, node, shift) & 31)) & 63;
    u64 at = PLACE(struct xa_node___tag, node, slots) + slot * 8;
    node = 0;
    bpf_probe_read_kernel(&node, sizeof(node), (void*)at);
    if ((node & 3) != 2) return node;
  }
  return number ? 0 : node;
}
static __always_inline u64 hctx_of(u64 queue, u32 number) {
  struct request_queue___array* array = 0;
  struct request_queue___xarray* tree = 0;
  if (bpf_core_field_exists(array->queue_hw_ctx)) return hctx_in_array(queue, number);
  return bpf_core_field_exists(tree->hctx_table) ? hctx_in_xarray(queue, number) : 0;
}

/* Hardware tags that a queue of a shared set holds. */
static __noinline u32 active_shared(u64 queue) {
  u64 at = PLACE(struct request_queue___shared, queue, nr_active_requests_shared_tags);
  return counter_at(at);
}
static __noinline u32 active_bitmap(u64 queue) {
  u64 at = PLACE(struct request_queue___bitmap, queue, nr_active_requests_shared_sbitmap);
  return counter_at(at);
}
static __always_inline u32 active_of(const struct tag_scratch* t, u64 queue) {
  if (t->flags & tag_config.host_wide) {
    struct request_queue___shared* now = 0;
    struct request_queue___bitmap* old = 0;
    if (bpf_core_field_exists(now->nr_active_requests_shared_tags)) return active_shared(queue);
    return bpf_core_field_exists(old->nr_active_requests_shared_sbitmap) ? active_bitmap(queue) : 0;
  }
  u64 hctx = queue == t->queue ? t->hctx : hctx_of(queue, t->queue_num);
  if (!hctx) return 0;
  return counter_at(PLACE(struct blk_mq_hw_ctx___tag, hctx, nr_active));
}

static __always_inline void add_holder(struct tag_scratch* t, u32 holder, u32 tags) {
  struct fb_tag_holder_key* key = &t->holder;
  key->set = t->set;
  key->waiter = t->dev;
  key->holder = holder;
  key->kind = t->kind;
  key->reserved_pool = t->reserved_pool;
  struct fb_tag_holder* entry = bpf_map_lookup_elem(&tag_holders, key);
  if (!entry) {
    u32 zero = 0;
    struct tag_blank* empty = bpf_map_lookup_elem(&tag_blanks, &zero);
    if (!empty) return;
    bpf_map_update_elem(&tag_holders, key, &empty->holder, BPF_NOEXIST);
    entry = bpf_map_lookup_elem(&tag_holders, key);
    if (!entry) {
      tag_count(FB_COUNTER_tagwait_holders_nomem);
      return;
    }
  }
  u64 pool = t->nr_tags;
  u64 held = tags;
  ADD(entry->samples, 1);
  if (held) ADD(entry->tags_sum, held);
  if (pool) ADD(entry->nr_tags_sum, pool);
  if (entry->window != tag_live.window) {
    entry->window = tag_live.window;
    entry->tags_max = 0;
  }
  if (held > entry->tags_max) entry->tags_max = held;
}

/* One queue of the set; returns the tags that it holds. */
__noinline u32 note_queue(u32 level, u64 queue) {
  struct tag_scratch* t = bpf_map_lookup_elem(&tag_scratches, &level);
  if (!t) return 0;
  s32 tags = active_of(t, queue);
  if (tags < 0) tags = 0;
  if (queue == t->queue) t->active = tags;
  add_holder(t, queue_dev(queue), tags);
  return tags;
}

/* Everything that shares the pool. */
__noinline int note_holders(u32 level) {
  struct tag_scratch* t = bpf_map_lookup_elem(&tag_scratches, &level);
  if (!t) return 0;
  u32 taken = pool_weight(t->pool);
  u32 disks = 1;
  bool shared = t->set && t->kind == FB_TAG_HARDWARE && (t->flags & tag_config.queue_shared);
  /* The flag of the set came late: before 5.16 each hardware queue has it. */
  if (t->set && t->kind == FB_TAG_HARDWARE && !shared)
    shared = PEEK(struct blk_mq_hw_ctx___tag, t->hctx, flags) & tag_config.queue_shared;
  t->active = taken;
  if (!shared || t->reserved_pool) {
    /* Nobody counts who holds reserved tags of a shared set. */
    add_holder(t, shared ? 0 : t->dev, taken);
  }
  if (shared) {
    u64 head = PLACE(struct blk_mq_tag_set___tag, t->set, tag_list);
    u64 next = (u64)PEEK(struct list_head___tag, head, next);
    u32 found = 0;
    disks = 0;
    for (u32 i = 0; i < FB_TAG_QUEUES; ++i) {
      if (!next || next == head) break;
      u64 queue = next - bpf_core_field_offset(struct request_queue___tag, tag_set_list);
      if (!t->reserved_pool) found += note_queue(level, queue);
      ++disks;
      next = (u64)PEEK(struct list_head___tag, next, next);
    }
    if (next && next != head) {
      tag_count(FB_COUNTER_tagwait_holders_cut);
      if (!t->reserved_pool) add_holder(t, 0, taken > found ? taken - found : 0);
    }
  }
  if (!t->set) return 0;
  u64 set = t->set;
  struct fb_tag_set* known = bpf_map_lookup_elem(&tag_sets, &set);
  if (known && known->disks == disks && known->flags == t->flags && known->dev) return 0;
  struct fb_tag_set* entry = &t->tag_set;
  entry->flags = t->flags;
  entry->queue_depth = PEEK(struct blk_mq_tag_set___tag, set, queue_depth);
  entry->reserved_tags = PEEK(struct blk_mq_tag_set___tag, set, reserved_tags);
  entry->hw_queues = PEEK(struct blk_mq_tag_set___tag, set, nr_hw_queues);
  entry->disks = disks;
  entry->dev = t->dev;
  bpf_map_update_elem(&tag_sets, &set, entry, BPF_ANY);
  return 0;
}

/* --- Waits --- */

/* How a wait ended that has come to its end now. */
static __always_inline u32 end_of(u64 queue, u64 task) {
  if (PEEK(struct request_queue___tag, queue, queue_flags) & tag_config.queue_dying)
    return FB_TAG_END_REMOVAL;
  u64 disk = disk_of(queue);
  if (disk && (PEEK(struct gendisk___tag, disk, state) & tag_config.disk_dead))
    return FB_TAG_END_REMOVAL;
  u64 pending = 0;
  bpf_probe_read_kernel(&pending, sizeof(pending),
                        (void*)(task + bpf_core_field_offset(struct task_struct___tag, pending) +
                                bpf_core_field_offset(struct sigpending___tag, signal)));
  if (pending & SIGKILL_BIT) return FB_TAG_END_SIGNAL;
  if (PEEK(struct request_queue___tag, queue, mq_freeze_depth) > 0) return FB_TAG_END_FREEZE;
  return FB_TAG_END_TAG;
}

/* Sums a wait into its row. `now` 0: the end was not seen. */
static __noinline int add_wait(const struct fb_tag_wait* wait, u64 now, u32 end) {
  struct fb_tag_row* row = bpf_map_lookup_elem(&tag_rows, &wait->key);
  if (!row) {
    u32 zero = 0;
    struct tag_blank* empty = bpf_map_lookup_elem(&tag_blanks, &zero);
    if (!empty) return 0;
    bpf_map_update_elem(&tag_rows, &wait->key, &empty->row, BPF_NOEXIST);
    row = bpf_map_lookup_elem(&tag_rows, &wait->key);
    if (!row) {
      tag_count(FB_COUNTER_tagwait_rows_nomem);
      return 0;
    }
  }
  if (row->window != tag_live.window) {
    row->window = tag_live.window;
    row->max_wait_ns = 0;
    row->active_max = 0;
  }
  u64 rounds = wait->rounds;
  if (rounds) ADD(row->rounds, rounds);
  if (wait->active != ~0u) {
    u64 active = wait->active;
    ADD(row->active_samples, 1);
    if (active) ADD(row->active_sum, active);
    if (active > row->active_max) row->active_max = active;
  }
  if (now && !wait->slept) {
    ADD(row->woke_at_once, 1);
    return 0;
  }
  ADD(row->waits, 1);
  if (end < FB_TAG_ENDS) ADD(row->ended[end], 1);
  if (!now) return 0;
  u64 waited = now - wait->begin_ns;
  ADD(row->wait_ns, waited);
  if (waited > row->max_wait_ns) row->max_wait_ns = waited;
  u32 bucket = histogram_bucket(waited);
  if (bucket < FB_HIST_BUCKETS) ADD(row->wait[bucket], 1);
  return 0;
}

static __always_inline void close_wait(u32 tid, const struct fb_tag_wait* wait, u64 now, u32 end) {
  add_wait(wait, now, end);
  if (tag_config.stream) {
    struct fb_tag_ended ended = {
        .begin_ns = wait->begin_ns, .end_ns = now, .tid = tid, .slept = wait->slept};
    /* Nobody is woken: this may be within the scheduler. */
    bpf_ringbuf_output(&tag_stream, &ended, sizeof(ended), BPF_RB_NO_WAKEUP);
  }
  bpf_map_delete_elem(&tag_waits, &tid);
}

/* A wait was left open although its thread has gone on: a hook was skipped. */
static __always_inline void close_old(u32 tid, const struct fb_tag_wait* wait) {
  if (wait->woken)
    close_wait(tid, wait, wait->woken_ns, FB_TAG_END_TAG);
  else
    close_wait(tid, wait, 0, FB_TAG_END_UNSEEN);
}

/* The thread finds the pool empty again. False: it is a new wait. */
static __always_inline bool next_round(u32 tid) {
  struct fb_tag_wait* wait = bpf_map_lookup_elem(&tag_waits, &tid);
  if (!wait) return false;
  u64 switches = own_switches();
  /* Between two rounds nothing sleeps. */
  if (wait->woken && wait->switches == switches) {
    wait->woken = 0;
    wait->rounds++;
    return true;
  }
  close_old(tid, wait);
  return false;
}

/* Opens a wait on what tag_scratch says. */
static __always_inline int open_wait(void* ctx, struct scratch* s, u32 tid, u64 now, u32 source,
                                     u32 hook) {
  u32 level = s->level;
  struct tag_scratch* t = bpf_map_lookup_elem(&tag_scratches, &level);
  if (!t) return 0;
  if (!resolve_pool(level)) {
    tag_count(FB_COUNTER_tagwait_unknown);
    return 0;
  }
  note_holders(level);
  struct fb_tag_wait* wait = &t->wait;
  wait->key.set = t->set;
  wait->key.dev = t->dev;
  wait->key.hctx = t->queue_num;
  wait->key.nr_tags = t->nr_tags;
  struct task_struct* task = current_task();
  wait->key.stack = current_stack(ctx, s, task, hook);
  wait->key.actor = current_actor(s, task);
  wait->key.kind = t->kind;
  wait->key.reserved_pool = t->reserved_pool;
  wait->key.source = source;
  wait->begin_ns = now;
  wait->woken_ns = 0;
  wait->queue = t->queue;
  wait->place = t->place;
  wait->switches = own_switches();
  wait->rounds = 1;
  wait->active = t->active;
  wait->slept = source == FB_TAG_SOURCE_INFERRED;
  wait->woken = 0;
  if (bpf_map_update_elem(&tag_waits, &tid, wait, BPF_ANY)) {
    tag_count(FB_COUNTER_tagwait_waits_nomem);
    return 0;
  }
  ADD(tag_live.begun, 1);
  if (!tag_live.ends_seen && source != FB_TAG_SOURCE_INFERRED)
    bpf_ringbuf_output(&tag_wake, &tid, sizeof(tid), 0);
  return 1;
}

static __always_inline struct tag_scratch* tag_scratch(struct scratch* s) {
  u32 level = s->level;
  struct tag_scratch* t = bpf_map_lookup_elem(&tag_scratches, &level);
  if (!t) return 0;
  t->pool = 0;
  t->place = 0;
  t->kind = 0;
  t->reserved_pool = 0;
  return t;
}

/*
 * The blk_mq_alloc_data of the allocation that this thread is in lies on its stack, in a frame
 * outside of blk_mq_get_tag(). It is known by what it says: a queue, and a software and a hardware
 * queue that both say they belong to it. The stack is to be measured before.
 */
#define SEARCH_WORDS 512
__noinline int find_request(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  struct tag_scratch* t = bpf_map_lookup_elem(&tag_scratches, &level);
  if (!s || !t) return 0;
  if (!s->depth || !copy_stack(s)) return 0;
  u32 q_at = bpf_core_field_offset(struct blk_mq_alloc_data___tag, q);
  u32 ctx_at = bpf_core_field_offset(struct blk_mq_alloc_data___tag, ctx);
  u32 hctx_at = bpf_core_field_offset(struct blk_mq_alloc_data___tag, hctx);
  u32 flags_at = bpf_core_field_offset(struct blk_mq_alloc_data___tag, flags);
  u32 depth = s->depth;
  for (u32 i = 0; i < SEARCH_WORDS; ++i) {
    u32 at = i * 8;
    if (at + 128 > depth) break;
    u64 queue = *(u64*)(s->copy + ((at + q_at) & (STACK_COPY_BYTES - 8)));
    if (queue < (1ull << 63) || (queue & 7)) continue;
    u64 hctx = *(u64*)(s->copy + ((at + hctx_at) & (STACK_COPY_BYTES - 8)));
    u64 ctx = *(u64*)(s->copy + ((at + ctx_at) & (STACK_COPY_BYTES - 8)));
    if (hctx < (1ull << 63) || ctx < (1ull << 63)) continue;
    if ((u64)PEEK(struct blk_mq_hw_ctx___tag, hctx, queue) != queue) continue;
    if ((u64)PEEK(struct blk_mq_ctx___tag, ctx, queue) != queue) continue;
    t->queue = queue;
    t->hctx = hctx;
    t->request_flags = *(u32*)(s->copy + ((at + flags_at) & (STACK_COPY_BYTES - 4)));
    return 1;
  }
  return 0;
}

/* An argument as a plain number: the kernel allows no arithmetic with the typed pointer. */
static __always_inline u64 argument(const u64* ctx, u32 number) {
  u64 value = 0;
  bpf_probe_read_kernel(&value, sizeof(value), ctx + number);
  return value;
}

/* --- The kernel's own tracepoint, fired before prepare --- */

static __always_inline int on_event(void* ctx, u64 queue, u64 hctx, u32 kind, u32 reserved) {
  u64 now = bpf_ktime_get_boot_ns();
  u32 tid = (u32)bpf_get_current_pid_tgid();
  if (next_round(tid)) return 0;
  struct scratch* s = enter();
  if (!s) return 0;
  struct tag_scratch* t = tag_scratch(s);
  if (t) {
    t->queue = queue;
    t->hctx = hctx;
    t->kind = kind;
    t->reserved_pool = reserved;
    open_wait(ctx, s, tid, now, FB_TAG_SOURCE_TRACEPOINT, HOOK_TAG_EVENT);
  }
  leave(s);
  return 0;
}
SEC("tp_btf/block_rq_tag_wait")
int tag_event(u64* ctx) {
  return on_event(ctx, argument(ctx, 0), argument(ctx, 1),
                  (u8)ctx[2] ? FB_TAG_SCHEDULER : FB_TAG_HARDWARE,
                  ((u32)ctx[3] & tag_config.reserved_flag) != 0);
}
/* The form with queue and hardware queue alone, fired just before the sleep. */
SEC("tp_btf/block_rq_tag_wait")
int tag_event_short(u64* ctx) { return on_event(ctx, argument(ctx, 0), argument(ctx, 1), 0, 0); }

/* --- The functions around the sleep --- */

#define INFER_FRAMES 16
static __always_inline bool in_get_tag(void* ctx, struct scratch* s) {
  long bytes = bpf_get_stack(ctx, s->raw, INFER_FRAMES * sizeof(u64), 0);
  for (u32 i = 0; i < INFER_FRAMES; ++i) {
    if ((long)(i * sizeof(u64)) >= bytes) break;
    if (s->raw[i] > tag_config.get_tag_first && s->raw[i] <= tag_config.get_tag_last) return true;
  }
  return false;
}

static __always_inline int on_prepare(void* ctx, u64 entry, u64 state, u32 source, u32 hook) {
  if ((u32)state != TASK_UNINTERRUPTIBLE) return 0;
  u64 now = bpf_ktime_get_boot_ns();
  struct scratch* s = enter();
  if (!s) return 0;
  struct tag_scratch* t = tag_scratch(s);
  u32 tid = (u32)bpf_get_current_pid_tgid();
  if (t && in_get_tag(ctx, s) && !next_round(tid)) {
    /* The entry lies in the frame of blk_mq_get_tag(). */
    *(volatile u64*)&s->owner = entry & ~7ull;
    measure_stack(s, current_task());
    t->place = entry;
    u64 wait = entry - bpf_core_field_offset(struct sbq_wait___tag, wait);
    t->pool = (u64)PEEK(struct sbq_wait___tag, wait, sbq);
    if (find_request(s->level))
      open_wait(ctx, s, tid, now, source, hook);
    else
      tag_count(FB_COUNTER_tagwait_unknown);
  }
  leave(s);
  return 0;
}

static __always_inline int on_finish(u64 entry) {
  u32 tid = (u32)bpf_get_current_pid_tgid();
  struct fb_tag_wait* wait = bpf_map_lookup_elem(&tag_waits, &tid);
  if (!wait || (wait->place && wait->place != entry)) return 0;
  u64 task = bpf_get_current_task();
  u64 now = bpf_ktime_get_boot_ns();
  u64 switches = own_switches();
  if (!wait->woken && wait->switches != switches) {
    /* Out of the sleep; whether with a tag the next hook tells. */
    wait->slept = 1;
    wait->woken = 1;
    wait->woken_ns = now;
    wait->switches = switches;
    return 0;
  }
  close_wait(tid, wait, now, end_of(wait->queue, task));
  return 0;
}

SEC("fentry/prepare_to_wait_exclusive")
int tag_prepare_fentry(u64* ctx) {
  return on_prepare(ctx, argument(ctx, 1), ctx[2], FB_TAG_SOURCE_FENTRY, HOOK_TAG_FENTRY);
}
SEC("fentry/finish_wait")
int tag_finish_fentry(u64* ctx) { return on_finish(argument(ctx, 1)); }

#ifdef __TARGET_ARCH_arm64
#define ARGUMENT_2(ctx) (((struct user_pt_regs___tag*)(ctx))->regs[1])
#define ARGUMENT_3(ctx) (((struct user_pt_regs___tag*)(ctx))->regs[2])
#else
#define ARGUMENT_2(ctx) (((struct pt_regs___tag*)(ctx))->si)
#define ARGUMENT_3(ctx) (((struct pt_regs___tag*)(ctx))->dx)
#endif
SEC("kprobe/prepare_to_wait_exclusive")
int tag_prepare_kprobe(void* ctx) {
  return on_prepare(ctx, ARGUMENT_2(ctx), ARGUMENT_3(ctx), FB_TAG_SOURCE_KPROBE, HOOK_TAG_KPROBE);
}
SEC("kprobe/finish_wait")
int tag_finish_kprobe(void* ctx) { return on_finish(ARGUMENT_2(ctx)); }

/* --- Inference: a thread that goes to sleep within blk_mq_get_tag() --- */

SEC("tp_btf/sched_switch")
int tag_switch(u64* ctx) {
  u64 next = argument(ctx, 2);
  if (tag_live.open_inferred) {
    u32 tid = PEEK(struct task_struct, next, pid);
    struct fb_tag_wait* wait = bpf_map_lookup_elem(&tag_waits, &tid);
    if (wait) {
      close_wait(tid, wait, bpf_ktime_get_boot_ns(), end_of(wait->queue, next));
      __sync_fetch_and_add(&tag_live.open_inferred, -1);
    }
  }
  u64 previous = argument(ctx, 1);
  if (!(state_of(previous) & TASK_UNINTERRUPTIBLE)) return 0;
  struct task_struct___tag* task = (void*)previous;
  if (!BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait)) return 0;
  u64 now = bpf_ktime_get_boot_ns();
  struct scratch* s = enter();
  if (!s) return 0;
  struct tag_scratch* t = tag_scratch(s);
  if (t && in_get_tag(ctx, s)) {
    u32 tid = (u32)bpf_get_current_pid_tgid();
    *(volatile u64*)&s->owner = (u64)ctx;
    measure_stack(s, current_task());
    if (!find_request(s->level)) {
      tag_count(FB_COUNTER_tagwait_unknown);
    } else {
      t->reserved_pool = (t->request_flags & tag_config.reserved_flag) != 0;
      if (open_wait(ctx, s, tid, now, FB_TAG_SOURCE_INFERRED, HOOK_TAG_SWITCH))
        __sync_fetch_and_add(&tag_live.open_inferred, 1);
    }
  }
  leave(s);
  return 0;
}
