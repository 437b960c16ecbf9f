/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The settings, and how to read the kernel's memory.
 *
 * A helper call for each field costs more than all the rest of a hook. From 6.2 on the kernel turns
 * an address into a pointer through which programs may load (bpf_rdonly_cast): a load from a bad
 * address gives 0, as the helpers do, and costs a nanosecond. Older kernels get the helper calls;
 * the verifier removes what is not used.
 */
#ifndef BPF_KERNEL_READ_BPF_H_
#define BPF_KERNEL_READ_BPF_H_

#include "bpf/kernel_types.h"
/* linux/bpf.h after the types above, helpers after linux/bpf.h */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>

#include "bpf/fleetblame_abi.h"

const volatile struct fb_config config = {.page_shift = 12, .cgroup_v1_subsystem = ~0u};

extern void* bpf_rdonly_cast(const void* address, u32 type) __ksym __weak;

/* A word of memory, through the first field of some structure that every kernel has. */
static __always_inline u64 word_in_place(u64 address) {
  struct timespec64* word =
      bpf_rdonly_cast((const void*)address, bpf_core_type_id_kernel(struct timespec64));
  return word->tv_sec;
}

static __always_inline u64 load_word(u64 address) {
  if (config.in_place) return word_in_place(address);
  u64 word = 0;
  bpf_probe_read_kernel(&word, sizeof(word), (const void*)address);
  return word;
}

/* One field of the structure at an address. The field may lie in a structure within, but not behind
 * a pointer. */
#define LOAD(type, address, field) \
  ((typeof(((type*)0)->field))load_word((u64)(address) + bpf_core_field_offset(type, field)))

/*
 * The running thread. From 5.11 on the kernel hands out a typed pointer, through which a field is
 * one load; before, each step is a call. To ask for the pointer is a call as well, so a hook does it
 * once and hands it on.
 */
#define TYPED_TASK bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)
static __always_inline struct task_struct* current_task(void) {
  if (TYPED_TASK) return bpf_get_current_task_btf();
  return (struct task_struct*)bpf_get_current_task();
}
#define TASK_READ(task, field)                    \
  ({                                              \
    u64 read_value;                               \
    if (TYPED_TASK)                               \
      read_value = (u64)((task)->field);          \
    else                                          \
      read_value = (u64)BPF_CORE_READ(task, field); \
    read_value;                                   \
  })

#endif /* BPF_KERNEL_READ_BPF_H_ */
