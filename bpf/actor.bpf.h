/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who runs: actors (comm and cgroup) and acts (actor and stack), as small numbers.
 *
 * Numbers come from queues that user space fills, so nothing is counted in the kernel and an
 * exhausted table is a fact, not a race. A number carries a generation; see fleetblame_abi.h.
 */
#ifndef BPF_ACTOR_BPF_H_
#define BPF_ACTOR_BPF_H_

#include "bpf/stack.bpf.h"

/* Small per-CPU caches before the tables: the same few threads run again and again. They hold ids
 * alone; whose these are is asked of the entry itself, so it does not matter who else writes here.
 */
#define ACTOR_CACHE 64
#define ACT_CACHE 128
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, ACTOR_CACHE);
  __type(key, u32);
  __type(value, u32);
} actor_cache SEC(".maps");
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, ACT_CACHE);
  __type(key, u32);
  __type(value, u32);
} act_cache SEC(".maps");

static __always_inline bool same_actor(const struct fb_actor_key* a, const struct fb_actor_key* b) {
  const u64* x = (const void*)a;
  const u64* y = (const void*)b;
  return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

/* Marks an entry as used in this epoch, without writing to memory that others read for nothing. */
static __always_inline void touch(u32* epoch) {
  u32 now = live.epoch;
  if (*epoch != now) *epoch = now;
}

/* Number of the actor in scratch->actor.key. */
__noinline u32 intern_actor(u32 level) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  u32* old = bpf_map_lookup_elem(&actor_ids, &s->actor.key);
  if (old) {
    u32 id = *old;
    u32 index = id & FB_ID_INDEX_MASK;
    struct fb_actor* actor = bpf_map_lookup_elem(&actors, &index);
    if (actor) touch(&actor->epoch);
    return id;
  }
  u32 id = 0;
  if (bpf_map_pop_elem(&free_actors, &id)) {
    count(FB_COUNTER_actor_nomem);
    return 0;
  }
  u32 index = id & FB_ID_INDEX_MASK;
  s->actor.id = id;
  s->actor.epoch = live.epoch;
  bpf_map_update_elem(&actors, &index, &s->actor, BPF_ANY);
  if (bpf_map_update_elem(&actor_ids, &s->actor.key, &id, BPF_NOEXIST)) {
    bpf_map_push_elem(&free_actors, &id, BPF_ANY);
    old = bpf_map_lookup_elem(&actor_ids, &s->actor.key);
    return old ? *old : 0;
  }
  return id;
}

/* The version 2 cgroup when it says more than "root", else that of one version 1 controller. */
static __always_inline void fill_cgroup_typed(struct task_struct* task, struct fb_actor_key* key) {
  struct css_set* set = task->cgroups;
  struct cgroup* cgroup = set->dfl_cgrp;
  u32 v1 = config.cgroup_v1_subsystem;
  if (v1 < 12 && cgroup->level == 0) {
    struct cgroup* old = set->subsys[v1]->cgroup;
    if (old->level > 0) {
      key->cgroup_id = old->kn->id;
      key->flags |= FB_ACTOR_CGROUP_V1;
      return;
    }
  }
  key->cgroup_id = cgroup->kn->id;
}

static __always_inline void fill_cgroup_plain(struct task_struct* task, struct fb_actor_key* key) {
  struct css_set* set = BPF_CORE_READ(task, cgroups);
  struct cgroup* cgroup = BPF_CORE_READ(set, dfl_cgrp);
  u32 v1 = config.cgroup_v1_subsystem;
  if (v1 < 12 && BPF_CORE_READ(cgroup, level) == 0) {
    struct cgroup_subsys_state* css = 0;
    bpf_core_read(&css, sizeof(css), &set->subsys[v1]);
    struct cgroup* old = BPF_CORE_READ(css, cgroup);
    if (old && BPF_CORE_READ(old, level) > 0) {
      cgroup = old;
      key->flags |= FB_ACTOR_CGROUP_V1;
    }
  }
  key->cgroup_id = BPF_CORE_READ(cgroup, kn, id);
}

/* Zeroes what follows the first zero byte of a name of two words. */
static __always_inline void zero_after_end(u64* words) {
  u64 low = 0x0101010101010101ull;
  u64 zeros = (words[0] - low) & ~words[0] & (low << 7);
  if (zeros) {
    /* The lowest bit that is set belongs to the first zero byte. */
    words[0] &= (zeros & -zeros) - 1;
    words[1] = 0;
    return;
  }
  zeros = (words[1] - low) & ~words[1] & (low << 7);
  if (zeros) words[1] &= (zeros & -zeros) - 1;
}

/* As bpf_get_current_comm, where that can be had by loads. What follows the end of the name is
 * zeroed, as the helper does: threads with equal names are one actor. */
static __always_inline void read_own_comm(struct task_struct* task, struct fb_actor_key* key) {
  if (!TYPED_TASK) {
    bpf_get_current_comm(key->comm, sizeof(key->comm));
    return;
  }
  u64* words = (void*)key->comm;
  words[0] = *(u64*)&task->comm[0];
  words[1] = *(u64*)&task->comm[8];
  zero_after_end(words);
}

/* Number of the actor that runs now; 0 when there is none free. */
static __always_inline u32 current_actor(struct scratch* s, struct task_struct* task) {
  u32 flags = TASK_READ(task, flags);
  struct fb_actor_key* key = &s->actor.key;
  key->flags = 0;
  key->reserved = 0;
  if (TYPED_TASK)
    fill_cgroup_typed(task, key);
  else
    fill_cgroup_plain(task, key);
  if (flags & PF_IO_WORKER) {
    /* A worker of io_uring works for its process. */
    struct task_struct* leader = (void*)TASK_READ(task, group_leader);
    bpf_core_read(key->comm, sizeof(key->comm), &leader->comm);
  } else {
    read_own_comm(task, key);
    if (flags & PF_KTHREAD) {
      key->flags |= FB_ACTOR_KTHREAD;
      /* "kworker/u8:3" and its brothers are one actor: what they do is in the stack. */
      if (*(u64*)key->comm == 0x2f72656b726f776bull) { /* "kworker/" */
        key->comm[7] = 0;
        *(u64*)(key->comm + 8) = 0;
      }
    }
  }
  const u64* words = (const void*)key;
  u64 mix = (words[0] ^ words[1] ^ (words[2] << 7) ^ words[3]) * 0x9E3779B97F4A7C15ull;
  u32 slot = (mix >> 40) & (ACTOR_CACHE - 1);
  u32* cached = bpf_map_lookup_elem(&actor_cache, &slot);
  if (!cached) return 0;
  u32 id = *cached;
  u32 index = id & FB_ID_INDEX_MASK;
  struct fb_actor* actor = bpf_map_lookup_elem(&actors, &index);
  if (actor && id && actor->id == id && same_actor(&actor->key, key)) {
    touch(&actor->epoch);
    return id;
  }
  id = intern_actor(s->level);
  *cached = id;
  return id;
}

__noinline u32 intern_act_slow(u32 actor, u32 stack) {
  struct fb_act_key key = {.actor = actor, .stack = stack};
  u32* old = bpf_map_lookup_elem(&act_ids, &key);
  if (old) {
    u32 id = *old;
    u32 index = id & FB_ID_INDEX_MASK;
    struct fb_act* act = bpf_map_lookup_elem(&acts, &index);
    if (act) touch(&act->epoch);
    return id;
  }
  u32 id = 0;
  if (bpf_map_pop_elem(&free_acts, &id)) {
    count(FB_COUNTER_act_nomem);
    return 0;
  }
  u32 index = id & FB_ID_INDEX_MASK;
  struct fb_act act = {.key = key, .id = id, .epoch = live.epoch};
  bpf_map_update_elem(&acts, &index, &act, BPF_ANY);
  if (bpf_map_update_elem(&act_ids, &key, &id, BPF_NOEXIST)) {
    bpf_map_push_elem(&free_acts, &id, BPF_ANY);
    old = bpf_map_lookup_elem(&act_ids, &key);
    return old ? *old : 0;
  }
  return id;
}

/* What an act id stands for; 0 when it was reclaimed. */
static __always_inline struct fb_act* act_of(u32 id) {
  u32 index = id & FB_ID_INDEX_MASK;
  if (!index) return 0;
  struct fb_act* act = bpf_map_lookup_elem(&acts, &index);
  if (!act || act->id != id) return 0;
  touch(&act->epoch);
  return act;
}

static __always_inline u32 intern_act(u32 actor, u32 stack) {
  if (!actor) return 0;
  u32 slot = ((actor * 0x9E3779B1u) ^ (stack * 0x85EBCA77u)) >> 25;
  u32* cached = bpf_map_lookup_elem(&act_cache, &slot);
  if (!cached) return 0;
  u32 id = *cached;
  struct fb_act* act = act_of(id);
  if (act && act->key.actor == actor && act->key.stack == stack) return id;
  id = intern_act_slow(actor, stack);
  *cached = id;
  return id;
}

/* The act of the running thread at this hook. */
static __always_inline u32 act_from(void* ctx, u64 from, struct scratch* s,
                                    struct task_struct* task, u32 hook) {
  u32 actor = current_actor(s, task);
  u32 stack = stack_from(ctx, from, s, task, hook);
  return intern_act(actor, stack);
}
static __always_inline u32 current_act(void* ctx, struct scratch* s, struct task_struct* task,
                                       u32 hook) {
  return act_from(ctx, (u64)ctx, s, task, hook);
}

#endif /* BPF_ACTOR_BPF_H_ */
