/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structures of blk-mq, reduced to what the search for tag holders reads; as in kernel_types.h
 * the loader moves every access, and what follows ___ does not count.
 */
#ifndef BPF_TAGWAIT_TYPES_H_
#define BPF_TAGWAIT_TYPES_H_

#include "bpf/kernel_types.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head___tag {
  struct list_head___tag *next;
};
struct counter___tag { /* atomic_t */
  int counter;
};
struct sbitmap_word___tag {
  unsigned long word;
  unsigned long cleared;
};
struct sbitmap___tag {
  unsigned int depth;
  unsigned int map_nr;
  struct sbitmap_word___tag *map;
};
struct sbitmap_queue___tag {
  struct sbitmap___tag sb;
};
struct wait_queue_entry___tag {
  unsigned int flags;
};
struct sbq_wait___tag {
  struct sbitmap_queue___tag *sbq;
  struct wait_queue_entry___tag wait;
};
struct blk_mq_tags___tag { /* from 5.16 on */
  struct sbitmap_queue___tag bitmap_tags;
  struct sbitmap_queue___tag breserved_tags;
};
struct blk_mq_tags___old {
  struct sbitmap_queue___tag *bitmap_tags;
  struct sbitmap_queue___tag *breserved_tags;
};
struct blk_mq_tag_set___tag {
  unsigned int nr_hw_queues;
  unsigned int queue_depth;
  unsigned int reserved_tags;
  unsigned int flags;
  struct list_head___tag tag_list;
};
struct xarray___tag {
  void *xa_head;
};
struct xa_node___tag {
  unsigned char shift;
  void *slots[64];
};
struct kobject___tag {
  struct kobject___tag *parent;
};
struct device___tag {
  struct kobject___tag kobj;
  u32 devt;
};
struct gendisk___tag {
  int major;
  int first_minor;
  unsigned long state;
};
struct request_queue___tag {
  struct blk_mq_tag_set___tag *tag_set;
  struct list_head___tag tag_set_list;
  unsigned long queue_flags;
  int mq_freeze_depth;
  struct kobject___tag kobj; /* of the queue itself: until 6.x */
};
struct request_queue___disk {
  struct gendisk___tag *disk;
};
struct request_queue___array {
  struct blk_mq_hw_ctx___tag **queue_hw_ctx;
};
struct request_queue___xarray { /* 5.19 to 6.x */
  struct xarray___tag hctx_table;
};
struct request_queue___shared { /* from 5.16 on */
  struct counter___tag nr_active_requests_shared_tags;
};
struct request_queue___bitmap { /* 5.10 to 5.15 */
  struct counter___tag nr_active_requests_shared_sbitmap;
};
struct blk_mq_hw_ctx___tag {
  unsigned long flags;
  struct request_queue___tag *queue;
  struct blk_mq_tags___tag *tags;
  struct blk_mq_tags___tag *sched_tags;
  unsigned int queue_num;
  struct counter___tag nr_active;
};
struct blk_mq_ctx___tag {
  struct request_queue___tag *queue;
};
struct blk_mq_alloc_data___tag {
  struct request_queue___tag *q;
  unsigned int flags;
  struct blk_mq_ctx___tag *ctx;
  struct blk_mq_hw_ctx___tag *hctx;
};
struct sigset___tag {
  unsigned long sig[1];
};
struct sigpending___tag {
  struct sigset___tag signal;
};
struct task_struct___tag {
  unsigned long nvcsw;
  unsigned int __state;
  struct sigpending___tag pending;
  unsigned int in_iowait : 1;
};
struct task_struct___old { /* before 5.14 */
  long state;
};
#ifdef __TARGET_ARCH_arm64
struct user_pt_regs___tag {
  u64 regs[31];
};
#else
struct pt_regs___tag {
  unsigned long si;
  unsigned long dx;
};
#endif

#pragma clang attribute pop

#define TASK_RUNNING 0u
#define TASK_UNINTERRUPTIBLE 2u
#define SIGKILL_BIT (1ul << 8)

#endif /* BPF_TAGWAIT_TYPES_H_ */
