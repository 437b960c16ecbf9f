/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The number of the kernel stack that a hook runs on.
 *
 * Walking a stack costs microseconds, so a walk is remembered together with the places at which its
 * return addresses lay in stack memory. When the hook comes again in the same system call, every
 * remembered place is compared: in place, or where the kernel does not allow that, in a copy. Equal
 * means: the same frames. Seen from the innermost frame outwards, each return address decides the
 * size of its frame and so where the next one lies; if all are equal, the walk would go the same
 * way. Nothing is guessed.
 */
#ifndef BPF_STACK_BPF_H_
#define BPF_STACK_BPF_H_

#include "bpf/maps.bpf.h"

#define THREAD_STACK_ALIGN 16384u

static __always_inline u32 table_slot(u32 which, u64 address) {
  u32 low = (u32)address;
  return (which ? low * 0x9E3779B1u : low * 0x85EBCA77u) >> 22; /* 10 bits */
}

/* Notes how deep the stack is; 0: not on the thread's stack, or too deep. */
static __always_inline void measure_stack(struct scratch* s, struct task_struct* task) {
  u64 base = plain_address(s, (void*)TASK_READ(task, stack));
  u64 used = s->owner - base;
  u64 depth = THREAD_STACK_ALIGN - (used & (THREAD_STACK_ALIGN - 1));
  if (used >= 4 * THREAD_STACK_ALIGN || depth > STACK_COPY_BYTES - 8) depth = 0;
  s->depth = depth & (STACK_COPY_BYTES - 8);
}

/* Copies the used part of the stack into scratch. */
static __always_inline bool copy_stack(struct scratch* s) {
  u64 depth = s->depth & (STACK_COPY_BYTES - 8);
  return bpf_probe_read_kernel(s->copy, depth, (void*)s->owner) == 0;
}

/* The word at `at` bytes from the innermost frame outwards: in place, or of the copy. */
static __always_inline u64 stack_word(const struct scratch* s, u32 at) {
  if (config.in_place) return word_in_place(s->owner + at);
  return *(u64*)(s->copy + (at & (STACK_COPY_BYTES - 8)));
}

/* Bytes at the top of a user thread's stack that no random offset moves: the saved registers and
 * the frames around the dispatch of system calls. */
#ifdef __TARGET_ARCH_arm64
#define STACK_TOP_BYTES 496u
#else
#define STACK_TOP_BYTES 192u
#endif

static __always_inline u32 known_set_index(u64 key) {
  return (u32)((key * 0x9E3779B97F4A7C15ull) >> 40) & (KNOWN_SETS - 1);
}

static __always_inline bool same_stack(const struct scratch* s, const struct known_stack* known,
                                       u32 depth) {
  u32 marks = known->marks;
  for (u32 i = 0; i < STACK_MARKS; ++i) {
    if (i >= marks) break;
    if ((u32)stack_word(s, known->offset[i]) != known->address[i]) return false;
  }
  u32 top_marks = known->top_marks;
  for (u32 i = 0; i < STACK_TOP_MARKS; ++i) {
    if (i >= top_marks) break;
    if ((u32)stack_word(s, depth - known->top_offset[i]) != known->top_address[i]) return false;
  }
  return marks + top_marks > 0;
}

/* Compares one way of a set. The stack number if it is the current stack, else 0. */
static __always_inline u32 way_matches(const struct scratch* s, const struct known_set* set,
                                       u32 way) {
  const struct known_stack* known = &set->way[way & (KNOWN_WAYS - 1)];
  if (known->key != s->key) return 0;
  u32 stack = known->stack;
  if (!same_stack(s, known, s->depth)) return 0;
  /* An interrupt may have put another stack here meanwhile. */
  return known->key == s->key && known->stack == stack ? stack : 0;
}
__noinline u32 try_way(u32 level, u32 index, u32 way) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  struct known_set* set = bpf_map_lookup_elem(&known_sets, &index);
  return s && set ? way_matches(s, set, way) : 0;
}

/* Stack number if this very stack is known, else 0. Prepares scratch for learn_stack. */
__noinline u32 known_stack(u32 level, u32 hook) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  s->key = 0;
  u32 depth = s->depth;
  if (!depth) return 0;
  if (!config.in_place && !copy_stack(s)) return 0;
  u64 key = (u64)hook << 48;
  if (s->task_flags & PF_KTHREAD) {
    s->top_from = depth;
    key |= 1ull << 63 | depth;
  } else {
    s->top_from = depth > STACK_TOP_BYTES ? depth - STACK_TOP_BYTES : 0;
    /* The number of the system call lies at a fixed place below the top. */
    if (depth > 64) key |= (u32)stack_word(s, depth - 48);
  }
  s->key = key;
  u32 index = known_set_index(key);
  struct known_set* set = bpf_map_lookup_elem(&known_sets, &index);
  if (!set) return 0;
  u32 recent = set->recent;
  u32 stack = way_matches(s, set, recent);
  if (stack) return stack;
  for (u32 i = 1; i < KNOWN_WAYS; ++i) {
    u32 way = (recent + i) & (KNOWN_WAYS - 1);
    stack = try_way(level, index, way);
    if (!stack) continue;
    set->recent = way;
    return stack;
  }
  return 0;
}

/* 1 + the number of a walked frame with this address; 0 = none. */
static __always_inline u32 frame_of(const struct scratch* s, u64 address) {
#pragma unroll
  for (u32 which = 0; which < STACK_TABLES; ++which) {
    u32 number = s->table[which][table_slot(which, address) & (STACK_TABLE - 1)];
    if (number && s->raw[(number - 1) & (FB_MAX_FRAMES - 1)] == address) return number;
  }
  return 0;
}

/* Notes one word of the stack if it is one of the walked addresses. */
__noinline int note_word(u32 level, u32 at) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  /* Beyond the stack lies what an earlier, deeper copy left there. */
  if (!s || at >= s->depth) return 0;
  u64 word = *(u64*)(s->copy + (at & (STACK_COPY_BYTES - 8)));
  u32 frame = frame_of(s, word);
  if (!frame) return 0;
  s->found[(frame - 1) & (FB_MAX_FRAMES - 1)] = 1;
  if (at >= s->top_from) {
    u32 marks = s->learnt.top_marks;
    if (marks < STACK_TOP_MARKS) {
      s->learnt.top_offset[marks] = s->depth - at;
      s->learnt.top_address[marks] = (u32)word;
    }
    s->learnt.top_marks = marks + 1;
    return 0;
  }
  u32 marks = s->learnt.marks;
  if (marks < STACK_MARKS) {
    s->learnt.offset[marks] = at;
    s->learnt.address[marks] = (u32)word;
  }
  s->learnt.marks = marks + 1;
  return 0;
}

/* What the functions on the stack in scratch->stack say about it. */
__noinline u32 stack_flags(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 frames = s->stack.frames;
  u32 flags = 0;
  for (u32 i = 0; i < FB_MAX_FRAMES; ++i) {
    if (i >= frames) break;
    u64 address = s->stack.address[i];
    for (u32 k = 0; k < FB_MARKED_FUNCTIONS; ++k)
      if (address >= config.marked[k].first && address < config.marked[k].last)
        flags |= config.marked[k].flag;
  }
  return flags;
}

/* Number of the stack in scratch->stack: an old one or a new one. */
__noinline u32 intern_stack(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return FB_STACK_LOST;
  u32 frames = s->stack.frames;
  u64 hash = frames + 1;
  for (u32 i = 0; i < FB_MAX_FRAMES; ++i) {
    if (i >= frames) break;
    hash ^= s->stack.address[i];
    hash *= 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  u32* old = bpf_map_lookup_elem(&stack_ids, &hash);
  if (old) {
    u32 id = *old;
    struct fb_stack* entry = bpf_map_lookup_elem(&stacks, &id);
    if (!entry || entry->frames != frames) goto lost;
    for (u32 i = 0; i < FB_MAX_FRAMES; ++i) {
      if (i >= frames) break;
      if (entry->address[i] != s->stack.address[i]) goto lost;
    }
    return id;
  }
  s->stack.flags = stack_flags(level);
  u32 id = 0;
  if (bpf_map_pop_elem(&free_stacks, &id)) goto lost;
  if (bpf_map_update_elem(&stacks, &id, &s->stack, BPF_ANY)) goto lost;
  if (bpf_map_update_elem(&stack_ids, &hash, &id, BPF_NOEXIST)) {
    /* Another CPU was faster. */
    bpf_map_push_elem(&free_stacks, &id, BPF_ANY);
    old = bpf_map_lookup_elem(&stack_ids, &hash);
    if (!old) goto lost;
    return *old;
  }
  return id;
lost:
  count(FB_COUNTER_stack_nomem);
  return FB_STACK_LOST;
}

/* Fills the tables of scratch, which find walked addresses by value. */
__noinline int index_frames(u32 level, u32 frames) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  const struct blank* empty = blank();
  if (!s || !empty) return 0;
  bpf_probe_read_kernel(s->table, sizeof(s->table), empty->table);
  bpf_probe_read_kernel(s->found, sizeof(s->found), empty->table);
  s->learnt.marks = 0;
  s->learnt.top_marks = 0;
  for (u32 i = 0; i < FB_MAX_FRAMES; ++i) {
    if (i >= frames) break;
    u64 address = s->raw[i];
    if (frame_of(s, address)) continue; /* recursion */
    u32 first = table_slot(0, address) & (STACK_TABLE - 1);
    u32 second = table_slot(1, address) & (STACK_TABLE - 1);
    if (!s->table[0][first])
      s->table[0][first] = i + 1;
    else if (!s->table[1][second])
      s->table[1][second] = i + 1;
  }
  return 0;
}

/* Looks through 64 words of the copy, from byte `from` on. */
__noinline int scan_words(u32 level, u32 from) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  for (u32 i = 0; i < 64; ++i) {
    u32 at = from + i * 8;
    u64 word = *(u64*)(s->copy + (at & (STACK_COPY_BYTES - 8)));
    if (s->table[0][table_slot(0, word) & (STACK_TABLE - 1)] |
        s->table[1][table_slot(1, word) & (STACK_TABLE - 1)])
      note_word(level, at);
  }
  return 0;
}

/*
 * Moves the walked frames to scratch->stack, without the tracer's own, which come first and lie
 * below the copy. True if every frame was found in the copy.
 */
__noinline u32 keep_frames(u32 level, u32 frames) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32 kept = 0;
  u32 skipped = 0;
  u32 complete = s->key != 0 && s->learnt.marks > 0 && s->learnt.marks <= STACK_MARKS &&
                 s->learnt.top_marks <= STACK_TOP_MARKS;
  bool trimmed = s->key != 0;
  for (u32 i = 0; i < FB_MAX_FRAMES; ++i) {
    if (i >= frames) break;
    u32 number = frame_of(s, s->raw[i]);
    bool found = number && s->found[(number - 1) & (FB_MAX_FRAMES - 1)];
    if (!kept && !found && trimmed && skipped < 3) {
      skipped++;
      continue;
    }
    if (!found) complete = 0;
    s->stack.address[kept & (FB_MAX_FRAMES - 1)] = s->raw[i];
    kept++;
  }
  s->stack.frames = kept;
  return complete;
}

/* Takes in the frames that bpf_get_stack left in scratch->raw. */
__noinline u32 learn_stack(u32 level, int bytes) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return FB_STACK_LOST;
  count(FB_COUNTER_stack_walks);
  if (bytes <= 0) {
    count(FB_COUNTER_stack_nomem);
    return FB_STACK_LOST;
  }
  u32 frames = (u32)bytes / 8;
  if (frames > FB_MAX_FRAMES) frames = FB_MAX_FRAMES;
  index_frames(level, frames);
  /* To learn, every word is looked at: those are taken from a copy. */
  if (s->key && config.in_place && !copy_stack(s)) s->key = 0;
  if (s->key) {
    u32 depth = s->depth;
    for (u32 from = 0; from < STACK_COPY_BYTES; from += 512) {
      if (from >= depth) break;
      scan_words(level, from);
    }
  }
  u32 complete = keep_frames(level, frames);
  u32 stack = intern_stack(level);
  if (!complete) {
    count(FB_COUNTER_stack_uncached);
    return stack;
  }
  u32 index = known_set_index(s->key);
  struct known_set* set = bpf_map_lookup_elem(&known_sets, &index);
  if (!set) return stack;
  if (config.preemptible && !CLAIM(&set->learning, 1)) return stack;
  u32 way = set->next & (KNOWN_WAYS - 1);
  set->next = way + 1;
  struct known_stack* known = &set->way[way];
  s->learnt.key = s->key;
  s->learnt.stack = stack;
  known->key = 0;
  bpf_probe_read_kernel(&known->stack, sizeof(*known) - sizeof(known->key), &s->learnt.stack);
  known->key = s->key;
  set->learning = 0;
  return stack;
}

/* The number of the current stack. `ctx` is the hook's context, `from` where the frames of interest
 * begin. */
static __always_inline u32 stack_from(void* ctx, u64 from, struct scratch* s,
                                      struct task_struct* task, u32 hook) {
  u32 level = s->level;
  *(volatile u64*)&s->owner = from;
  s->task_flags = TASK_READ(task, flags);
  measure_stack(s, task);
  u32 stack = known_stack(level, hook);
  if (stack) return stack;
  int bytes = bpf_get_stack(ctx, s->raw, sizeof(s->raw), 0);
  return learn_stack(level, bytes);
}

/* The context of a raw tracepoint lies in the frame of its trampoline: its address is the depth. */
static __always_inline u32 current_stack(void* ctx, struct scratch* s, struct task_struct* task,
                                         u32 hook) {
  return stack_from(ctx, (u64)ctx, s, task, hook);
}

static __always_inline bool stack_has_flag(u32 id, u32 flag) {
  struct fb_stack* stack = bpf_map_lookup_elem(&stacks, &id);
  return stack && (stack->flags & flag);
}

#endif /* BPF_STACK_BPF_H_ */
