/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a thread is in the middle of: made when first needed, gone when the thread ends.
 *
 * Nearly every hook asks for it, so most threads have a place of their own in an array, by the low
 * bits of their number; a hash map costs several times as much. Whoever finds the place taken by
 * another thread goes to the hash map.
 */
#ifndef BPF_TASK_BPF_H_
#define BPF_TASK_BPF_H_

#include "bpf/maps.bpf.h"

#define TASK_PLACES 4096u

struct task_place {
  u32 owner; /* thread number + 1; 0 = free. Only this thread's own hooks touch the rest. */
  u32 reserved;
  struct task_state state;
};
FB_ARRAY(task_places, struct task_place, TASK_PLACES);
FB_HASH(tasks, u32, struct task_state, 16384);

static __always_inline struct task_place* task_place(u32 tid) {
  u32 at = tid & (TASK_PLACES - 1);
  return bpf_map_lookup_elem(&task_places, &at);
}

static __always_inline struct task_state* task_state(u32 tid) {
  struct task_place* place = task_place(tid);
  if (place && place->owner == tid + 1) return &place->state;
  if (CAN_CLAIM && !live.task_spilled) return 0;
  return bpf_map_lookup_elem(&tasks, &tid);
}

/* As task_state, for a thread that has none yet. */
__noinline int task_state_add(u32 tid) {
  const struct blank* empty = blank();
  if (!empty) return 0;
  struct task_place* place = task_place(tid);
  if (place && !place->owner && CLAIM(&place->owner, tid + 1)) {
    place->state = empty->task;
    return 0;
  }
  live.task_spilled = 1;
  if (bpf_map_update_elem(&tasks, &tid, &empty->task, BPF_NOEXIST)) count(FB_COUNTER_task_nomem);
  return 0;
}

static __always_inline struct task_state* task_state_make(u32 tid) {
  struct task_state* task = task_state(tid);
  if (task) return task;
  task_state_add(tid);
  return task_state(tid);
}

static __always_inline void task_state_drop(u32 tid) {
  struct task_place* place = task_place(tid);
  if (place && place->owner == tid + 1)
    place->owner = 0;
  else if (!CAN_CLAIM || live.task_spilled)
    bpf_map_delete_elem(&tasks, &tid);
}

#endif /* BPF_TASK_BPF_H_ */
