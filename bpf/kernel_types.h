/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel structures that the tracer reads, reduced to the fields it needs. The loader moves
 * every access to where the running kernel's BTF says the field is, so order and padding here mean
 * nothing. A name with ___ is an older or newer face of the same structure.
 */
#ifndef BPF_KERNEL_TYPES_H_
#define BPF_KERNEL_TYPES_H_

#include <linux/types.h>
#include <stdbool.h>

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;
typedef __s64 s64;
typedef __s32 s32;

/* Only the name counts. */
enum wb_reason { WB_REASON_BACKGROUND };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct timespec64 { /* for its first word alone: see load_word */
  s64 tv_sec;
};
struct hlist_node {
  struct hlist_node *next;
};
struct hlist_head {
  struct hlist_node *first;
};

/* --- Tasks and cgroups --- */
struct pt_regs {
  unsigned long sp;
};
struct kernfs_node {
  u64 id;
};
struct cgroup {
  int level;
  struct kernfs_node *kn;
};
struct cgroup_subsys_state {
  struct cgroup *cgroup;
};
struct css_set {
  struct cgroup_subsys_state *subsys[12];
  struct cgroup *dfl_cgrp;
};
struct task_struct {
  void *stack;
  unsigned int flags;
  int pid;
  int tgid;
  char comm[16];
  struct task_struct *group_leader;
  struct css_set *cgroups;
};

/* --- Block layer --- */
struct gendisk {
  int major;
  int first_minor;
};
struct request_queue {
  struct gendisk *disk;
};
struct block_device {
  u64 bd_start_sect;
  u32 bd_dev;
  struct gendisk *bd_disk;
};
struct block_device___part { /* before 5.11 */
  struct hd_struct *bd_part;
};
struct device {
  u32 devt;
};
struct hd_struct {
  u64 start_sect;
  u64 nr_sects;
  struct device __dev;
};
struct disk_part_tbl {
  int len;
  struct hd_struct *part[1];
};
struct gendisk___table {
  struct disk_part_tbl *part_tbl;
};
struct block_device___partno { /* 5.11 to 6.9 */
  u8 bd_partno;
};
typedef struct {
  int counter;
} atomic_t;
struct block_device___flags { /* from 6.10 on: in the lowest byte */
  atomic_t __bd_flags;
};
struct bvec_iter {
  u64 bi_sector;
  unsigned int bi_size;
  unsigned int bi_idx;
  unsigned int bi_bvec_done;
};
struct bvec_iter___renamed { /* from 7.3 on */
  unsigned int bi_offset;
};
struct bio_vec {
  struct page *bv_page;
  unsigned int bv_len;
  unsigned int bv_offset;
};
struct bio {
  struct bio *bi_next;
  struct block_device *bi_bdev;
  unsigned int bi_opf;
  unsigned short bi_flags;
  u8 bi_status;
  struct bvec_iter bi_iter;
  void *bi_end_io;
  void *bi_private;
  unsigned short bi_vcnt;
  struct bio_vec *bi_io_vec;
  struct blkcg_gq *bi_blkg;
};
struct blkcg {
  struct cgroup_subsys_state css;
};
struct blkcg_gq {
  struct blkcg *blkcg;
};
struct bio___disk { /* before 5.12 */
  struct gendisk *bi_disk;
};
struct request {
  struct request_queue *q;
  unsigned int cmd_flags;
  unsigned int __data_len;
  u64 __sector;
  struct bio *bio;
  struct bio *biotail;
  struct block_device *part;
};
struct request___disk { /* before 5.17 */
  struct gendisk *rq_disk;
};

/* --- Page cache --- */
typedef struct {
  u8 b[16];
} uuid_t;
struct super_block {
  u32 s_dev;
  uuid_t s_uuid;
  unsigned long s_magic;
  struct block_device *s_bdev;
};
struct qstr {
  const unsigned char *name;
};
struct dentry {
  struct dentry *d_parent;
  struct qstr d_name;
  union {
    struct hlist_node d_alias;
  } d_u;
};
struct dentry___flat { /* from 7.0 on */
  struct hlist_node d_alias;
};
struct address_space {
  struct inode *host;
};
struct inode {
  unsigned short i_mode;
  struct super_block *i_sb;
  struct address_space *i_mapping;
  unsigned long i_ino;
  u32 i_rdev;
  u32 i_generation;
  struct hlist_head i_dentry;
};
struct page {
  unsigned long flags;
  unsigned long compound_head;
  struct address_space *mapping;
  unsigned long index;
  unsigned long private;
};
struct page___6_15 { /* index renamed */
  unsigned long __folio_index;
};
struct folio {
  unsigned long flags;
  struct address_space *mapping;
  unsigned long index;
};
struct folio___nr { /* from 6.15 */
  unsigned int _nr_pages;
};
struct folio___nr2 { /* 6.3 to 6.14 */
  unsigned int _folio_nr_pages;
};
struct file {
  struct inode *f_inode;
};
struct kiocb {
  struct file *ki_filp;
  long long ki_pos;
};
struct iov_iter {
  unsigned long count;
};
struct buffer_head {
  struct page *b_page;
  u64 b_blocknr;
  unsigned long b_size;
  struct block_device *b_bdev;
};
struct writeback_control {
  long nr_to_write;
};
struct wb_writeback_work {
  enum wb_reason reason;
};

/* --- jbd2 --- */
struct journal_s {
  struct block_device *j_fs_dev;
};
struct transaction_s {
  u32 t_tid;
};

/* --- xfs --- */
struct xfs_mount {
  struct super_block *m_super;
};
struct xfs_trans {
  unsigned int t_flags;
  struct xfs_mount *t_mountp;
};
struct xfs_inode {
  struct inode i_vnode;
};
struct xfs_buf_map {
  s64 bm_bn;
  int bm_len;
};
struct xfs_buftarg {
  struct block_device *bt_bdev;
};
struct xfs_buf {
  struct xfs_mount *b_mount;
  struct xfs_buftarg *b_target;
  struct xfs_buf_map *b_maps;
  int b_length;
  int b_map_count;
};
struct xfs_buf_log_item {
  struct xfs_buf *bli_buf;
};

/* --- btrfs --- */
struct btrfs_inode {
  struct inode vfs_inode;
};
struct btrfs_work {
  void *func;
};

#pragma clang attribute pop

/* Only the names count: the loader puts in the running kernel's values. */
enum pageflags { PG_writeback = 1, PG_head = 6, PG_swapcache = 10, PG_private = 11 };

#define PF_KTHREAD 0x00200000u
#define PF_WQ_WORKER 0x00000020u
#define PF_IO_WORKER 0x00000010u
#define S_IFMT 0170000
#define S_IFBLK 0060000
#define BTRFS_SUPER_MAGIC 0x9123683Eul
#define BTRFS_BTREE_INODE 1
#define F2FS_SUPER_MAGIC 0xF2F52010ul
#define XFS_SUPER_MAGIC 0x58465342ul
#define F2FS_META_INODE 2 /* and the one before it, of the nodes */
#define XFS_TRANS_DIRTY 0x01u

#endif /* BPF_KERNEL_TYPES_H_ */
