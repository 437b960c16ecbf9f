// SPDX-License-Identifier: GPL-2.0
//
// Who dirtied what this host writes: the hooks.
//
// Each hook is a BTF-typed raw tracepoint program. A tracepoint whose arguments changed has one
// program for each form; user space loads those whose form the running kernel's BTF describes.
// Where the types of a module are not described there are two other ways to its tracepoints:
// untyped arguments ("raw_tp") when all that is needed of them is numbers and types of the kernel
// itself, and the record that the tracepoint makes for perf ("tp"), whose fields user space looks
// up.
//
// Pointers that a module's tracepoint hands over are compared with 0 before use: kernels since late
// 6.12 insist on it, and ext4, jbd2 and xfs are modules in most distributions.
#include "bpf/layer.bpf.h"
#include "bpf/loop.bpf.h"
#include "bpf/skipped.bpf.h"
#include "bpf/task.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

enum hook {
  HOOK_QUEUE = 1,
  HOOK_DIRTY,
  HOOK_RANGE,
  HOOK_BUFFER,
  HOOK_HANDLE,
  HOOK_XFS_LOG,
  HOOK_XFS_COMMIT,
};

static __always_inline u32 current_tid(void) { return (u32)bpf_get_current_pid_tgid(); }
static __always_inline u32 tid_of(struct task_struct* self) { return TASK_READ(self, pid); }

/* --- Dirty pages --- */

static __always_inline bool same_inode(const struct fb_inode_key* a, const struct fb_inode_key* b) {
  return a->ino == b->ino && a->dev == b->dev && a->generation == b->generation;
}

/* Notes the last dirtier of an inode. */
static __always_inline void touch_inode(struct scratch* s, struct task_state* task,
                                        struct inode* inode, const struct fb_inode_key* key,
                                        u32 act, u32 tid) {
  if (task && task->touched_act == act && task->touched_epoch == live.epoch &&
      same_inode(&task->touched, key))
    return;
  struct fb_inode* entry = inode_get(s, inode, key);
  if (!entry) return;
  entry->act = act;
  entry->tid = tid;
  if (task) {
    task->touched = *key;
    task->touched_act = act;
    task->touched_epoch = live.epoch;
  }
}

static __always_inline bool on_btrfs(struct inode* inode) {
  return inode->i_sb->s_magic == BTRFS_SUPER_MAGIC;
}

/* Not in memory or on a network. btrfs, with its many devices, may name none. */
static __always_inline bool on_disk(struct inode* inode) {
  return inode->i_sb->s_bdev != 0 || on_btrfs(inode);
}

/* Whether the running thread, one of the kernel's, writes for a loop device: scratch->carry says for whom. */
static __always_inline bool carry(struct scratch* s, const struct fb_inode_key* key, u64 at,
                                  u64 bytes) {
  s->dirty.inode = *key;
  return carry_write(s->level, at, bytes);
}

/* A write system call is about to fill, or has filled, bytes [at, at + bytes) of an inode. */
static __always_inline int fill_range(void* ctx, struct inode* inode, struct fb_inode_key* inode_id,
                                      u64 at, u64 bytes) {
  struct fb_inode_key key = *inode_id;
  u64 first = at >> (config.page_shift & 31);
  u64 last = (at + bytes - 1) >> (config.page_shift & 31);
  struct task_struct* self = current_task();
  bool may_carry = live.loops && (TASK_READ(self, flags) & PF_KTHREAD);
  if (config.sample_ns && !may_carry && pages_unseen(&key, first, last)) return 0;
  struct scratch* s = enter();
  if (!s) return 0;
  u32 tid = tid_of(self);
  struct task_state* task = task_state_make(tid);
  s->dirty_sampled = config.sample_ns != 0;
  bool carried = may_carry && carry(s, &key, at, bytes);
  u32 act = carried ? s->carry.act : current_act(ctx, s, self, HOOK_RANGE);
  if (act) {
    if (last > first + 2047) last = first + 2047;
    if (carried)
      tid = s->carry.tid;
    else
      record_pages(s, &key, first, last, act, tid, RECORD_SET);
    touch_inode(s, task, inode, &key, act, tid);
    if (task) {
      task->range_inode = (u64)inode;
      task->range_first = first;
      task->range_last = last;
    }
  }
  count_pages_seen();
  leave(s);
  return 0;
}
static __always_inline int on_range(void* ctx, struct inode* inode, u64 at, u64 bytes) {
  if (!inode || !bytes) return 0;
  struct fb_inode_key key = {
      .ino = inode->i_ino, .dev = inode->i_sb->s_dev, .generation = inode->i_generation};
  return fill_range(ctx, inode, &key, at, bytes);
}

/* An argument that should be an inode: it is one if it is the owner of its own pages. */
static __always_inline struct inode* untyped_inode(u64 address) {
  struct inode* inode = (void*)address;
  struct address_space* mapping = BPF_CORE_READ(inode, i_mapping);
  return BPF_CORE_READ(mapping, host) == inode ? inode : 0;
}
static __always_inline int on_range_untyped(void* ctx, u64 address, u64 at, u64 bytes) {
  struct inode* inode = untyped_inode(address);
  if (!inode || !bytes) return 0;
  struct fb_inode_key key;
  inode_key(inode, &key);
  return fill_range(ctx, inode, &key, at, bytes);
}
SEC("raw_tp/ext4_da_write_end")
int ext4_da_write_end_untyped(u64* ctx) {
  return on_range_untyped(ctx, ctx[0], ctx[1], (u32)ctx[2]);
}
SEC("raw_tp/ext4_write_end")
int ext4_write_end_untyped(u64* ctx) { return on_range_untyped(ctx, ctx[0], ctx[1], (u32)ctx[2]); }
SEC("raw_tp/ext4_journalled_write_end")
int ext4_journalled_write_end_untyped(u64* ctx) {
  return on_range_untyped(ctx, ctx[0], ctx[1], (u32)ctx[2]);
}

SEC("tp_btf/ext4_da_write_end")
int ext4_da_write_end(u64* ctx) {
  return on_range(ctx, (struct inode*)ctx[0], ctx[1], (u32)ctx[2]);
}
SEC("tp_btf/ext4_write_end")
int ext4_write_end(u64* ctx) { return on_range(ctx, (struct inode*)ctx[0], ctx[1], (u32)ctx[2]); }
SEC("tp_btf/ext4_journalled_write_end")
int ext4_journalled_write_end(u64* ctx) {
  return on_range(ctx, (struct inode*)ctx[0], ctx[1], (u32)ctx[2]);
}
SEC("tp_btf/xfs_file_buffered_write")
int xfs_file_buffered_write(u64* ctx) {
  struct kiocb* iocb = (struct kiocb*)ctx[0];
  struct iov_iter* iter = (struct iov_iter*)ctx[1];
  if (!iocb || !iter) return 0;
  return on_range(ctx, iocb->ki_filp->f_inode, iocb->ki_pos, iter->count);
}

static __always_inline u32 folio_pages(u64 folio, u64 flags) {
  if (!(flags & (1ull << bpf_core_enum_value(enum pageflags, PG_head)))) return 1;
  u32 pages = 1;
  struct folio___nr* newest = (void*)folio;
  struct folio___nr2* newer = (void*)folio;
  if (bpf_core_field_exists(newest->_nr_pages))
    pages = LOAD(struct folio___nr, newest, _nr_pages);
  else if (bpf_core_field_exists(newer->_folio_nr_pages))
    pages = LOAD(struct folio___nr2, newer, _folio_nr_pages);
  return pages ? pages : 1;
}

/* Where jbd2's commits cannot be seen, a kernel thread that dirties something may well be jbd2,
 * which does so for others. */
static __always_inline bool blind(const struct task_state* task, struct task_struct* self) {
  if (!config.blind_journal || live.sees_commits || (task && task->taken_act)) return false;
  return TASK_READ(self, flags) & PF_KTHREAD;
}

/*
 * Records of xfs tell the number of its block device only. Which part of which disk that is, and
 * which filesystem stands there now, is seen when it dirties a page.
 */
static __noinline int note_xfs(struct super_block* sb) {
  struct block_device* bdev = BPF_CORE_READ(sb, s_bdev);
  u32 part = BPF_CORE_READ(bdev, bd_dev);
  u64 fs = fs_owner(sb);
  struct fb_place place = {.owner = (u32)(fs ^ (fs >> 32)) | 1};
  place.start = device_start(bdev, &place.disk);
  struct fb_place* known = bpf_map_lookup_elem(&places, &part);
  if (known && known->owner == place.owner) return 0;
  bpf_map_update_elem(&places, &part, &place, BPF_ANY);
  bpf_map_update_elem(&owners, &part, &place.owner, BPF_ANY);
  return 0;
}

/* A page-cache folio turned from clean to dirty. */
static __always_inline int on_dirty(void* ctx, u64 folio, struct address_space* mapping) {
  if (!mapping) return 0;
  struct inode* inode = mapping->host;
  if (!inode) return 0;
  bool device = is_block_device(inode->i_mode);
  if (!device && !on_disk(inode)) return 0;
  /* Block devices are recorded by place, buffer by buffer: see on_buffer. */
  if (device) return 0;
  struct page_view view = {};
  view_head(folio, &view);
  u32 pages = folio_pages(folio, view.flags);
  u64 first = view.index;
  u64 last = first + pages - 1;
  struct fb_inode_key key = {
      .ino = inode->i_ino, .dev = inode->i_sb->s_dev, .generation = inode->i_generation};
  u64 magic = inode->i_sb->s_magic;
  struct task_struct* self = current_task();
  bool may_carry = live.loops && (TASK_READ(self, flags) & PF_KTHREAD);
  bool sampled = is_sampled_filesystem(magic);
  if (sampled && !may_carry && pages_unseen(&key, first, last)) return 0;
  u32 tid = tid_of(self);
  struct task_state* task = task_state_make(tid);
  if (task && task->range_inode == (u64)inode) {
    /* Filled by a system call that was recorded with its exact range. */
    if (first >= task->range_first && last <= task->range_last) return 0;
    if (pages > 1 && last >= task->range_first && first <= task->range_last) return 0;
  }
  struct scratch* s = enter();
  if (!s) return 0;
  u32 act = 0;
  u32 who = tid;
  bool again = false;
  u32 page = config.page_shift & 31;
  s->dirty_sampled = sampled;
  if (may_carry && carry(s, &key, first << page, (u64)pages << page)) {
    act = s->carry.act;
    if (act) touch_inode(s, task, inode, &key, act, s->carry.tid);
    leave(s);
    return 0;
  }
  if (blind(task, self)) {
    again = true;
  } else if (task && (task->reason || task->taken_act || task->commit_dev)) {
    /* A flusher that could not write the folio, or a journal that did write it, dirties it again:
     * the old dirtier stands. */
    act = task->taken_act;
    who = task->taken_tid;
    again = true;
  } else {
    act = current_act(ctx, s, self, HOOK_DIRTY);
  }
  if (config.xfs_records && magic == XFS_SUPER_MAGIC) note_xfs(inode->i_sb);
  bool shared = is_shared_inode(magic, key.ino);
  if (shared) {
    /* A tree block. Workers and whoever commits change it for everybody: then only the ledger
     * knows. */
    if (again || (s->actor.key.flags & FB_ACTOR_KTHREAD)) act = 0;
    if (act) {
      struct fb_act* mine = act_of(act);
      if (mine && stack_has_flag(mine->key.stack, FB_STACK_FOR_ALL)) act = 0;
    }
    if (!act) record_pages(s, &key, first, last, 0, 0, RECORD_FORGET);
  }
  if (act) {
    record_pages(s, &key, first, last, act, who, again ? RECORD_IF_EMPTY : RECORD_SET);
    if (!again && !shared) touch_inode(s, task, inode, &key, act, tid);
    if ((magic == BTRFS_SUPER_MAGIC || magic == F2FS_SUPER_MAGIC) && !again)
      ledger_add(key.dev, 0, act, pages, fs_owner(inode->i_sb));
  }
  if (sampled) count_pages_seen();
  leave(s);
  return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int writeback_dirty_folio(u64* ctx) { return on_dirty(ctx, ctx[0], (struct address_space*)ctx[1]); }
SEC("tp_btf/writeback_dirty_page")
int writeback_dirty_page(u64* ctx) { return on_dirty(ctx, ctx[0], (struct address_space*)ctx[1]); }

/* --- Metadata --- */

/* Who the running thread works for: the dirtier of the inode it writes back, or itself. */
#define HINT_NS 50000000ull
static __always_inline u32 working_for_from(void* ctx, u64 from, struct scratch* s,
                                            struct task_struct* self, struct task_state* task,
                                            u32 hook, u32* tid) {
  if (task && task->taken_act) {
    *tid = task->taken_tid;
    return task->taken_act;
  }
  if (task && task->hint_act && bpf_ktime_get_boot_ns() - task->hint_ns < HINT_NS) {
    *tid = task->hint_tid;
    return task->hint_act;
  }
  return act_from(ctx, from, s, self, hook);
}
static __always_inline u32 working_for(void* ctx, struct scratch* s, struct task_struct* self,
                                       struct task_state* task, u32 hook, u32* tid) {
  return working_for_from(ctx, (u64)ctx, s, self, task, hook, tid);
}

/* A worker of which it is not known for whom it works: never called exact for metadata. */
static __always_inline bool nobodys_worker(struct task_struct* self,
                                           const struct task_state* task) {
  if (!(TASK_READ(self, flags) & PF_WQ_WORKER)) return false;
  if (!task) return true;
  if (task->taken_act) return false;
  return !task->hint_act || bpf_ktime_get_boot_ns() - task->hint_ns >= HINT_NS;
}

/* A filesystem whose number is that of its device shows itself: what was said of a btrfs that was
 * there before is over. */
static __always_inline void not_btrfs(u32 part) {
  if (live.btrfs && bpf_map_lookup_elem(&fs_of_device, &part))
    bpf_map_delete_elem(&fs_of_device, &part);
}

SEC("tp_btf/block_dirty_buffer")
int block_dirty_buffer(u64* ctx) {
  struct buffer_head* bh = (struct buffer_head*)ctx[0];
  struct page* page = bh->b_page;
  struct address_space* mapping = page->mapping;
  if (!mapping) return 0;
  struct inode* host = mapping->host;
  if (!host || !is_block_device(host->i_mode)) return 0;
  struct block_device* bdev = bh->b_bdev;
  u32 disk = 0;
  u64 start = device_start(bdev, &disk);
  if (!is_watched(disk)) return 0;
  struct scratch* s = enter();
  if (!s) return 0;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  u32 bytes = bh->b_size;
  u64 at = start + bh->b_blocknr * bytes;
  if (task && task->commit_dev) {
    /* jbd2 hands a committed block to the flusher: it belongs to its transaction. */
    record_blocks(disk, at, bytes, 0, (u64)task->commit_dev | ((u64)task->commit_tid << 32));
  } else if (blind(task, self)) {
    record_blocks(disk, at, bytes, 0, bdev->bd_dev);
  } else {
    u32 act = working_for(ctx, s, self, task, HOOK_BUFFER, &tid);
    record_blocks(disk, at, bytes, (u64)act | ((u64)tid << 32), 0);
    if (nobodys_worker(self, task)) record_blocks(disk, at, bytes, 0, bdev->bd_dev);
    struct fb_act* mine = act_of(act);
    if (mine && !stack_has_flag(mine->key.stack, FB_STACK_RAW_DEVICE)) {
      not_btrfs(bdev->bd_dev);
      ledger_add(bdev->bd_dev, 0, act, 1, 0);
    }
  }
  leave(s);
  return 0;
}

/* Numbers of transactions only grow in one journal. One that was committed before belongs to
 * another filesystem, made anew on the same device. */
static __always_inline u64 journal_era(u32 dev, u32 transaction) {
  struct fb_journal* journal = bpf_map_lookup_elem(&journals, &dev);
  if (!journal) return 1;
  if ((s32)(transaction - journal->committed) <= 0) {
    journal->era++;
    journal->committed = transaction - 1;
  }
  return journal->era + 1;
}

/* A jbd2 handle ended; its thread used so many blocks of the transaction. */
static __always_inline int on_handle(u64* ctx) {
  u32 dev = ctx[0];
  u32 transaction = ctx[1];
  int blocks = ctx[7];
  if (blocks <= 0) return 0;
  struct scratch* s = enter();
  if (!s) return 0;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  u32 act = working_for(ctx, s, self, task, HOOK_HANDLE, &tid);
  not_btrfs(dev);
  u64 era = journal_era(dev, transaction);
  ledger_add(dev, transaction, act, blocks, era);
  ledger_add(dev, 0, act, blocks, era);
  leave(s);
  return 0;
}
SEC("tp_btf/jbd2_handle_stats")
int jbd2_handle_stats(u64* ctx) { return on_handle(ctx); }
SEC("raw_tp/jbd2_handle_stats")
int jbd2_handle_stats_untyped(u64* ctx) { return on_handle(ctx); }

static __always_inline int begin_phase(u32 dev, u32 tid, u32 logging) {
  struct task_state* task = task_state_make(current_tid());
  if (!task) return 0;
  task->commit_dev = dev;
  task->commit_tid = tid;
  task->logging = logging;
  return 0;
}
static __always_inline int commit_phase(u64* ctx, u32 logging) {
  struct journal_s* journal = (struct journal_s*)ctx[0];
  struct transaction_s* transaction = (struct transaction_s*)ctx[1];
  if (!journal || !transaction) return 0;
  return begin_phase(journal->j_fs_dev->bd_dev, transaction->t_tid, logging);
}

/* Fields of the record that a tracepoint makes. */
static __always_inline u64 record_u64(void* ctx, u32 at) {
  u64 value = 0;
  bpf_probe_read_kernel(&value, sizeof(value), ctx + at);
  return value;
}
static __always_inline u32 record_u32(void* ctx, u32 at) { return (u32)record_u64(ctx, at); }
static __always_inline int commit_phase_record(void* ctx, u32 logging) {
  return begin_phase(record_u32(ctx, config.record.commit_dev),
                     record_u32(ctx, config.record.commit_tid), logging);
}
SEC("tp/jbd2/jbd2_start_commit")
int jbd2_start_commit_record(void* ctx) { return commit_phase_record(ctx, 0); }
SEC("tp/jbd2/jbd2_commit_logging")
int jbd2_commit_logging_record(void* ctx) { return commit_phase_record(ctx, 1); }

SEC("tp_btf/jbd2_start_commit")
int jbd2_start_commit(u64* ctx) { return commit_phase(ctx, 0); }
SEC("tp_btf/jbd2_commit_logging")
int jbd2_commit_logging(u64* ctx) { return commit_phase(ctx, 1); }
static __always_inline int end_phase(void) {
  struct task_state* task = task_state(current_tid());
  if (!task) return 0;
  u32 dev = task->commit_dev;
  struct fb_journal* journal = bpf_map_lookup_elem(&journals, &dev);
  if (journal) {
    journal->committed = task->commit_tid;
  } else if (dev) {
    struct fb_journal fresh = {.committed = task->commit_tid};
    bpf_map_update_elem(&journals, &dev, &fresh, BPF_NOEXIST);
  }
  task->commit_dev = 0;
  task->commit_tid = 0;
  task->logging = 0;
  return 0;
}
SEC("tp_btf/jbd2_end_commit")
int jbd2_end_commit(u64* ctx) { return end_phase(); }
SEC("tp/jbd2/jbd2_end_commit")
int jbd2_end_commit_record(void* ctx) { return end_phase(); }

SEC("tp_btf/xfs_trans_log_buf")
int xfs_trans_log_buf(u64* ctx) {
  struct xfs_buf_log_item* item = (struct xfs_buf_log_item*)ctx[0];
  if (!item) return 0;
  struct xfs_buf* buf = item->bli_buf;
  struct scratch* s = enter();
  if (!s) return 0;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  u32 act = working_for(ctx, s, self, task, HOOK_XFS_LOG, &tid);
  if (act) {
    struct block_device* bdev = BPF_CORE_READ(buf, b_target, bt_bdev);
    u32 disk = 0;
    u64 start = device_start(bdev, &disk);
    struct xfs_buf_map* maps = BPF_CORE_READ(buf, b_maps);
    u64 at = BPF_CORE_READ(maps, bm_bn) * 512;
    u32 bytes = BPF_CORE_READ(buf, b_length) * 512;
    u32 part = BPF_CORE_READ(bdev, bd_dev);
    u64 fs = fs_owner(BPF_CORE_READ(buf, b_mount, m_super));
    u32 owner = (u32)(fs ^ (fs >> 32)) | 1;
    u32* known = bpf_map_lookup_elem(&owners, &part);
    if (!known || *known != owner) bpf_map_update_elem(&owners, &part, &owner, BPF_ANY);
    u64 who = nobodys_worker(self, task) ? 0 : (u64)act | ((u64)tid << 32);
    record_blocks(disk, start + at, (u64)bytes | ((u64)owner << 32), who, who ? 0 : part);
    ledger_add(part, 0, act, 2, fs);
  }
  leave(s);
  return 0;
}

SEC("tp_btf/xfs_trans_commit")
int xfs_trans_commit(u64* ctx) {
  struct xfs_trans* trans = (struct xfs_trans*)ctx[0];
  if (!trans || !(trans->t_flags & XFS_TRANS_DIRTY)) return 0;
  struct scratch* s = enter();
  if (!s) return 0;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  u32 act = working_for(ctx, s, self, task, HOOK_XFS_COMMIT, &tid);
  struct super_block* sb = BPF_CORE_READ(trans, t_mountp, m_super);
  u32 part = BPF_CORE_READ(sb, s_bdev, bd_dev);
  not_btrfs(part);
  ledger_add(part, 0, act, 1, fs_owner(sb));
  leave(s);
  return 0;
}

/* The stack on which a record was made: its first word leads to the registers of then. */
static __always_inline u64 stack_of_record(void* ctx) {
  struct pt_regs* regs = (void*)record_u64(ctx, 0);
  return BPF_CORE_READ(regs, sp) & ~7ull;
}

SEC("tp/xfs/xfs_trans_log_buf")
int xfs_trans_log_buf_record(void* ctx) {
  u32 part = record_u32(ctx, config.record.xfs_buf_dev);
  struct scratch* s = enter();
  if (!s) return 0;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  u32 act = working_for_from(ctx, stack_of_record(ctx), s, self, task, HOOK_XFS_LOG, &tid);
  if (act) {
    struct fb_place* place = bpf_map_lookup_elem(&places, &part);
    if (place) {
      u64 at = place->start + record_u64(ctx, config.record.xfs_buf_block) * 512;
      u32 bytes = record_u32(ctx, config.record.xfs_buf_bytes);
      u64 who = nobodys_worker(self, task) ? 0 : (u64)act | ((u64)tid << 32);
      record_blocks(place->disk, at, (u64)bytes | ((u64)place->owner << 32), who, who ? 0 : part);
    }
    ledger_add(part, 0, act, 2, 0);
  }
  leave(s);
  return 0;
}

SEC("tp/xfs/xfs_trans_commit")
int xfs_trans_commit_record(void* ctx) {
  if (!(record_u32(ctx, config.record.xfs_trans_flags) & XFS_TRANS_DIRTY)) return 0;
  u32 part = record_u32(ctx, config.record.xfs_trans_dev);
  struct scratch* s = enter();
  if (!s) return 0;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  u32 act = working_for_from(ctx, stack_of_record(ctx), s, self, task, HOOK_XFS_COMMIT, &tid);
  not_btrfs(part);
  ledger_add(part, 0, act, 1, 0);
  leave(s);
  return 0;
}

/* --- Writeback: reason, and the inode at hand --- */

/* A worker that finishes IO comes across the inode it does so for. */
static __always_inline int hint(struct inode* inode) {
  struct task_struct* self = current_task();
  if (!inode || !(TASK_READ(self, flags) & PF_KTHREAD)) return 0;
  u32 tid = tid_of(self);
  struct task_state* task = task_state(tid);
  if (task && task->taken_act) return 0;
  struct fb_inode_key key;
  inode_key(inode, &key);
  struct fb_inode* entry = bpf_map_lookup_elem(&inodes, &key);
  if (!entry || !entry->act) return 0;
  if (!task) task = task_state_make(tid);
  if (!task) return 0;
  task->hint_act = entry->act;
  task->hint_tid = entry->tid;
  task->hint_ns = bpf_ktime_get_boot_ns();
  return 0;
}
SEC("raw_tp/ext4_mark_inode_dirty")
int ext4_mark_inode_dirty_untyped(u64* ctx) { return hint(untyped_inode(ctx[0])); }
SEC("raw_tp/ext4_ext_map_blocks_enter")
int ext4_ext_map_blocks_enter_untyped(u64* ctx) { return hint(untyped_inode(ctx[0])); }
SEC("tp_btf/ext4_mark_inode_dirty")
int ext4_mark_inode_dirty(u64* ctx) { return hint((struct inode*)ctx[0]); }
SEC("tp_btf/ext4_ext_map_blocks_enter")
int ext4_ext_map_blocks_enter(u64* ctx) { return hint((struct inode*)ctx[0]); }
static __always_inline int xfs_hint(struct xfs_inode* inode) {
  return inode ? hint(&inode->i_vnode) : 0;
}
SEC("tp_btf/xfs_unwritten_convert")
int xfs_unwritten_convert(u64* ctx) { return xfs_hint((struct xfs_inode*)ctx[0]); }
SEC("tp_btf/xfs_setfilesize")
int xfs_setfilesize(u64* ctx) { return xfs_hint((struct xfs_inode*)ctx[0]); }
SEC("tp_btf/xfs_inode_inactivating")
int xfs_inode_inactivating(u64* ctx) { return xfs_hint((struct xfs_inode*)ctx[0]); }

SEC("tp_btf/writeback_start")
int writeback_start(u64* ctx) {
  struct wb_writeback_work* work = (struct wb_writeback_work*)ctx[1];
  struct task_state* task = task_state_make(current_tid());
  if (task) task->reason = (u32)work->reason + 1;
  return 0;
}
SEC("tp_btf/writeback_written")
int writeback_written(u64* ctx) {
  struct task_state* task = task_state(current_tid());
  if (task) task->reason = 0;
  return 0;
}

static __always_inline void take_act_of(const struct fb_inode_key* key) {
  struct fb_inode* entry = bpf_map_lookup_elem(&inodes, key);
  if (!entry || !entry->act) return;
  struct task_state* task = task_state_make(current_tid());
  if (!task) return;
  task->taken_act = entry->act;
  task->taken_tid = entry->tid;
}
static __always_inline void take_act(struct inode* inode) {
  if (!inode) return;
  struct fb_inode_key key = {
      .ino = inode->i_ino, .dev = inode->i_sb->s_dev, .generation = inode->i_generation};
  take_act_of(&key);
}
static __always_inline void drop_act(void) {
  struct task_state* task = task_state(current_tid());
  if (task) task->taken_act = 0;
}
SEC("tp_btf/writeback_single_inode_start")
int writeback_single_inode_start(u64* ctx) {
  take_act((struct inode*)ctx[0]);
  return 0;
}
SEC("tp_btf/writeback_single_inode")
int writeback_single_inode(u64* ctx) {
  drop_act();
  return 0;
}
/* fsync and others write back without the flusher's frame around it. */
SEC("tp_btf/ext4_writepages")
int ext4_writepages(u64* ctx) {
  take_act((struct inode*)ctx[0]);
  return 0;
}
SEC("raw_tp/ext4_writepages")
int ext4_writepages_untyped(u64* ctx) {
  struct inode* inode = untyped_inode(ctx[0]);
  if (!inode) return 0;
  struct fb_inode_key key;
  inode_key(inode, &key);
  take_act_of(&key);
  return 0;
}
static __always_inline int end_writepages(void) {
  struct task_state* task = task_state(current_tid());
  if (task && !task->reason) task->taken_act = 0;
  return 0;
}
SEC("tp_btf/ext4_writepages_result")
int ext4_writepages_result(u64* ctx) { return end_writepages(); }
SEC("raw_tp/ext4_writepages_result")
int ext4_writepages_result_untyped(u64* ctx) { return end_writepages(); }

SEC("tp_btf/sched_process_exit")
int sched_process_exit(u64* ctx) {
  task_state_drop(current_tid());
  return 0;
}

/* --- IOs --- */

/*
 * Before 5.11 a bio on its way no longer tells which partition it was sent to, but the disk knows
 * them: into origin.part and walk.part.
 */
#define OLD_PARTITIONS 32
__noinline int find_partition(u32 level, u64 disk) {
  struct scratch* s = bpf_map_lookup_elem(&scratches, &level);
  if (!s) return 0;
  struct fb_origin* o = &s->origin;
  s->walk.part = o->dev;
  o->part = 0;
  struct gendisk___table* with_table = (void*)disk;
  if (!bpf_core_field_exists(with_table->part_tbl)) return 0;
  struct disk_part_tbl* table = BPF_CORE_READ(with_table, part_tbl);
  u32 partitions = BPF_CORE_READ(table, len);
  u64 places = (u64)table + bpf_core_field_offset(table->part);
  for (u32 i = 1; i < OLD_PARTITIONS; ++i) {
    if (i >= partitions) break;
    struct hd_struct* part = (void*)load_word(places + i * 8);
    if (!part || o->sector - BPF_CORE_READ(part, start_sect) >= BPF_CORE_READ(part, nr_sects))
      continue;
    s->walk.part = BPF_CORE_READ(part, __dev.devt);
    o->part = i;
    break;
  }
  return 0;
}

/* Where a bio was sent to, and which device made it: origin.top, or, of what threads of the kernel
 * send to a disk that is held by another device, that one. */
static __noinline int note_place(struct scratch* s, const struct fb_device* device,
                                 struct bio* bio) {
  struct fb_origin* o = &s->origin;
  u64 key = plain_address(s, bio);
  struct bio___disk* old = (void*)bio;
  if (bpf_core_field_exists(old->bi_disk)) {
    find_partition(s->level, plain_address(s, old->bi_disk));
  } else {
    o->part = partition_of(bio);
    s->walk.part = bio->bi_bdev->bd_dev;
  }
  o->flags = device->flags & FB_DEVICE_BIOS   ? FB_ORIGIN_STACKED
             : device->flags & FB_DEVICE_LOOP ? FB_ORIGIN_NOTED
             : device->flags & FB_DEVICE_HEAD ? FB_ORIGIN_HEAD
                                              : 0;
  u32 top = o->top;
  if (!top && is_sampled(key, o->opf, bio->bi_flags, o->bytes, traits_of(device)))
    o->flags |= (sample_weight(o->queue_ns) & 15) << FB_ORIGIN_WEIGHT_SHIFT;
  if (device->upper && !top && (o->op == FB_OP_FLUSH || (s->actor.key.flags & FB_ACTOR_KTHREAD)))
    top = device->upper;
  o->top = top;
  if (top) o->flags |= FB_ORIGIN_BELOW;
  return 0;
}

/* Number of the btrfs on a block device; 0 = none. Apart, for the sake of the stack. */
static __noinline u32 btrfs_on(u32 part) {
  u32* fs = bpf_map_lookup_elem(&fs_of_device, &part);
  return fs ? *fs : 0;
}

/* `place`: where in the hook's context the address of the bio stands. */
static __always_inline int on_bio_queue(void* ctx, struct bio* bio, const u64* place) {
  if (config.sample_ns && skip_bio(bio, place)) return 0;
  struct scratch* s = enter();
  if (!s) return 0;
  u64 key = plain_address(s, bio);
  u32 dev = disk_number(bio_disk(bio));
  u32 top = bio_find(key) ? queue_known(key, dev) : LINK_NONE;
  if (top == LINK_DONE) {
    leave(s);
    return 0;
  }
  const struct fb_device* device = device_of(dev);
  if (!device || !device->watched) {
    leave(s);
    return 0;
  }
  if (device->upper && !top && adopt_bio(s->level, key)) {
    leave(s);
    return 0;
  }
  struct fb_origin* o = &s->origin;
  o->top = top;
  struct task_struct* self = current_task();
  u32 tid = tid_of(self);
  o->queue_ns = bpf_ktime_get_boot_ns();
  o->issue_ns = 0;
  o->sector = bio->bi_iter.bi_sector;
  o->bytes = bio->bi_iter.bi_size;
  o->done_bytes = 0;
  o->dev = dev;
  o->opf = bio->bi_opf;
  o->issuer_actor = current_actor(s, self);
  o->issuer_stack = current_stack(ctx, s, self, HOOK_QUEUE);
  o->issuer_tid = tid;
  o->file = 0;
  o->requeues = 0;
  o->op = operation_of(o->opf, o->bytes);
  o->shares = 0;
  o->reason = 0;
  note_place(s, device, bio);
  bool own = config.bio_pinned && (bio->bi_flags & config.bio_pinned);
  if (own || o->op == FB_OP_FLUSH || o->op == FB_OP_OTHER) {
    /* Direct IO and flushes blame the issuer, and that is the truth. */
    if (own && live.btrfs && o->op == FB_OP_WRITE) {
      /* ... who makes btrfs write metadata too. */
      u32 fs = btrfs_on(bio->bi_bdev->bd_dev);
      if (fs) {
        u32 act = intern_act(o->issuer_actor, o->issuer_stack);
        ledger_add(fs, 0, act, 1 + (o->bytes >> (config.page_shift & 31)), 0);
      }
    }
  } else if (o->op == FB_OP_READ) {
    file_of_read(s->level, key);
  } else {
    struct task_state* task = task_state(tid);
    if (task) o->reason = task->reason;
    u32 part = s->walk.part;
    s->walk.bio = key;
    s->walk.watch = device->watch;
    s->walk.dev = part;
    if (live.btrfs) {
      u32 fs = btrfs_on(part);
      if (fs) s->walk.dev = fs;
    }
    s->walk.inode_act = 0;
    s->walk.inode_tid = 0;
    s->walk.commit_dev = 0;
    s->walk.commit_tid = 0;
    s->walk.consume = 1;
    s->walk.journal = 0;
    s->walk.worker = s->actor.key.flags & FB_ACTOR_KTHREAD;
    /* What a stacked device makes up by itself is for those who dirty the filesystem on it. */
    s->walk.writers = 0;
    if (o->top) {
      s->walk.dev = o->top;
      s->walk.writers = device->writers;
    }
    if (task && task->commit_dev) {
      s->walk.consume = !task->logging;
      s->walk.journal = task->logging;
      s->walk.commit_dev = task->commit_dev;
      s->walk.commit_tid = task->commit_tid;
    }
    if (o->op == FB_OP_WRITE)
      attribute_write(s->level, key);
    else if (s->walk.worker)
      share_unknown_metadata(s->level, o->bytes);
  }
  if (!o->shares) {
    o->share[0].act = 0;
    o->share[0].bytes = o->bytes;
    o->share[0].tid = tid;
    o->share[0].confidence = FB_CONF_ISSUER;
    o->shares = 1;
  }
  if (o->flags & (FB_ORIGIN_STACKED | FB_ORIGIN_NOTED))
    range_mark(o->dev, o->sector, o->bytes, key);
  if (!bio_put(key, o)) count(FB_COUNTER_bio_nomem);
  if (device->flags & FB_DEVICE_NOTED) note_writers(key, device->writers);
  leave(s);
  return 0;
}

SEC("tp_btf/block_bio_queue")
int block_bio_queue(u64* ctx) { return on_bio_queue(ctx, (struct bio*)ctx[0], &ctx[0]); }
SEC("tp_btf/block_bio_queue")
int block_bio_queue_q(u64* ctx) { return on_bio_queue(ctx, (struct bio*)ctx[1], &ctx[1]); }

/*
 * While a task is preempted in a program, the kernel skips that program for all others on the same
 * processor. So where that can happen a second program looks whether the first has seen the bio.
 */
#define SEEN_NS 1000000000ull
static __noinline int just_queued(u64* ctx) {
  struct bio* bio = (struct bio*)ctx[0];
  u64 key = 0;
  bpf_probe_read_kernel(&key, sizeof(key), ctx);
  struct sampler* my = sampler();
  if (config.sample_ns && my && my->skipped == key) {
    my->skipped = 0; /* the next bio at this address is another one */
    return 1;
  }
  const struct fb_origin* o = bio_find(key);
  return o && !o->issue_ns && !(o->flags & FB_ORIGIN_LINKED) &&
         o->sector == bio->bi_iter.bi_sector && o->bytes == bio->bi_iter.bi_size &&
         bpf_ktime_get_boot_ns() - o->queue_ns < SEEN_NS;
}
SEC("tp_btf/block_bio_queue")
int block_bio_queue_again(u64* ctx) {
  if (just_queued(ctx)) return 0;
  return on_bio_queue(ctx, (struct bio*)ctx[0], &ctx[0]);
}

/* The front of a bio became a bio of its own; its parent keeps the rest. */
static __always_inline int on_split(struct bio* front) {
  struct scratch* s = enter();
  if (!s) return 0;
  /* A stacked device may announce the rest of a bio that goes on under its old address: that has no
   * parent. Parts of a bio of such a device end unheard of, and the whole is heard of. */
  u64 above = plain_address(s, front->bi_private);
  struct fb_origin* parent = above ? bio_find(above) : 0;
  if (!parent || (parent->flags & FB_ORIGIN_STACKED)) {
    leave(s);
    return 0;
  }
  struct fb_origin* o = &s->origin;
  u32 bytes = front->bi_iter.bi_size;
  *o = *parent;
  if (bytes <= parent->bytes) {
    o->sector = front->bi_iter.bi_sector;
    o->bytes = bytes;
    u32 n = parent->shares;
    u64 whole = parent->bytes;
    u32 left = bytes;
    for (u32 i = 0; i < FB_SHARES; ++i) {
      if (i >= n) break;
      u32 part = whole ? (u64)parent->share[i].bytes * bytes / whole : 0;
      if (i + 1 == n) part = left;
      if (part > left) part = left;
      if (part > parent->share[i].bytes) part = parent->share[i].bytes;
      o->share[i].bytes = part;
      parent->share[i].bytes -= part;
      left -= part;
    }
    /* Rounding may leave a little: take it where there is some. */
    for (u32 i = 0; i < FB_SHARES; ++i) {
      if (i >= n || !left) break;
      u32 part = parent->share[i].bytes;
      if (part > left) part = left;
      o->share[i].bytes += part;
      parent->share[i].bytes -= part;
      left -= part;
    }
    bool noted = parent->flags & FB_ORIGIN_NOTED;
    if (noted) range_mark(parent->dev, parent->sector, parent->bytes, 0);
    parent->bytes -= bytes;
    parent->sector += bytes / 512;
    if (noted) {
      range_mark(parent->dev, parent->sector, parent->bytes, above);
      range_mark(o->dev, o->sector, bytes, plain_address(s, front));
    }
    u64 key = plain_address(s, front);
    forget_old_bio(key);
    if (!bio_put(key, o)) count(FB_COUNTER_bio_nomem);
  }
  leave(s);
  return 0;
}
SEC("tp_btf/block_split")
int block_split(u64* ctx) { return on_split((struct bio*)ctx[0]); }
SEC("tp_btf/block_split")
int block_split_q(u64* ctx) { return on_split((struct bio*)ctx[1]); }

/* --- Stacked devices: see layer.bpf.h --- */

/* A multipath head hands its bios on as they are. The request that comes of one is the head's. */
static __noinline int note_path(u32 path, u32 head) {
  u32* known = bpf_map_lookup_elem(&paths, &path);
  if (!known || *known != head) bpf_map_update_elem(&paths, &path, &head, BPF_ANY);
  return 0;
}

static __always_inline int on_remap(struct bio* bio, u32 dev, u64 from) {
  /* Partitions are announced here as well; they are no devices of ours. */
  const struct fb_device* device = device_of(dev);
  if (!device || !(device->flags & (FB_DEVICE_BIOS | FB_DEVICE_HEAD))) return 0;
  if (device->flags & FB_DEVICE_HEAD) {
    note_path(disk_number(bio_disk(bio)), dev);
    return 0;
  }
  struct scratch* s = enter();
  if (!s) return 0;
  link_bio(s->level, plain_address(s, bio), dev, from);
  leave(s);
  return 0;
}
SEC("tp_btf/block_bio_remap")
int block_bio_remap(u64* ctx) { return on_remap((struct bio*)ctx[0], ctx[1], ctx[2]); }
SEC("tp_btf/block_bio_remap")
int block_bio_remap_q(u64* ctx) { return on_remap((struct bio*)ctx[1], ctx[2], ctx[3]); }

/* The bios of a request after its first. */
__noinline int issue_merged(u64 bio, u64 now) {
  for (u32 i = 0; i < 1024; ++i) {
    bio = (u64)LOAD(struct bio, bio, bi_next);
    if (!bio) break;
    struct fb_origin* o = bio_find(bio);
    if (o && !o->issue_ns) o->issue_ns = now;
  }
  return 0;
}

static __always_inline int on_issue(struct request* rq) {
  u64 key = (u64)LOAD(struct request, rq, bio);
  if (!key) return 0;
  struct fb_origin* o = bio_find(key);
  if (!o || o->issue_ns) return 0;
  u64 now = bpf_ktime_get_boot_ns();
  o->issue_ns = now;
  if (LOAD(struct bio, key, bi_next)) issue_merged(key, now);
  return 0;
}
SEC("tp_btf/block_rq_issue")
int block_rq_issue(u64* ctx) { return on_issue((struct request*)ctx[0]); }
SEC("tp_btf/block_rq_issue")
int block_rq_issue_q(u64* ctx) { return on_issue((struct request*)ctx[1]); }

static __always_inline int on_requeue(struct request* rq) {
  u64 key = (u64)LOAD(struct request, rq, bio);
  struct fb_origin* o = key ? bio_find(key) : 0;
  if (o) o->requeues++;
  return 0;
}
SEC("tp_btf/block_rq_requeue")
int block_rq_requeue(u64* ctx) { return on_requeue((struct request*)ctx[0]); }
SEC("tp_btf/block_rq_requeue")
int block_rq_requeue_q(u64* ctx) { return on_requeue((struct request*)ctx[1]); }

static __noinline int trace_io(const struct fb_origin* o, const struct fb_end* end, u64 now,
                               u64 bytes_merged) {
  struct fb_trace* record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
  if (!record) {
    count(FB_COUNTER_trace_dropped);
    return 0;
  }
  const struct fb_share* share = &o->share[largest_share(o) & (FB_SHARES - 1)];
  record->complete_ns = now;
  record->sector = o->sector;
  record->wait_ns = end->wait_ns;
  record->io_ns = end->io_ns;
  record->bytes = (u32)bytes_merged;
  record->other_bytes = o->bytes - share->bytes;
  record->dev = o->dev;
  record->opf = o->opf;
  record->error = end->error;
  record->dirtier_stack = o->issuer_stack;
  record->dirtier_actor = o->issuer_actor;
  record->dirtier_tid = o->issuer_tid;
  record->confidence = share->confidence & FB_CONFIDENCE_MASK;
  if (record->confidence == FB_CONF_UNSEEN) record->confidence = share->act ? FB_CONF_INODE : FB_CONF_LOST;
  if (share->act || share->confidence == FB_CONF_LOST) {
    struct fb_act* act = act_of(share->act);
    record->dirtier_stack = act ? act->key.stack : FB_STACK_NONE;
    record->dirtier_actor = act ? act->key.actor : 0;
    record->dirtier_tid = act ? share->tid : 0;
    if (!act) record->confidence = FB_CONF_LOST;
  }
  record->issuer_stack = o->issuer_stack;
  record->issuer_actor = o->issuer_actor;
  record->issuer_tid = o->issuer_tid;
  record->file = o->file;
  record->requeues = o->requeues;
  record->merged_bios = bytes_merged >> 32;
  record->op = o->op;
  record->reason = o->reason;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  return 0;
}

/*
 * Device mapper's multipath hands on requests: clones of them, whose bios nobody announces. Each
 * lies in a record whose first word leads to the bio above, which ends after it and covers the same
 * sectors; the second word's fourth leads to the request.
 */
static __always_inline u32 disk_of_clone(u64 clone, u32 above) {
  u32 disk = disk_of_plain_bio(clone);
  struct request___disk* old = 0;
  if (disk != above || !bpf_core_field_exists(old->rq_disk)) return disk;
  /* Before 5.12 the bio itself still names the disk above. */
  u64 request = follow(load_word(clone - 8), 24);
  u64 below = (u64)LOAD(struct request___disk, request, rq_disk);
  return ((u32)LOAD(struct gendisk, below, major) << 20) |
         (u32)LOAD(struct gendisk, below, first_minor);
}

/* A bio ends that is not in the table. Returns 0 if it is no such clone. */
__noinline int complete_clone(u64 clone, u32 bytes, u32 flags, u32 error) {
  u64 above = load_word(clone - 16);
  struct fb_origin* o = above ? bio_find(above) : 0;
  if (!o || !(flags & COMPLETE_ALL) || o->bytes != bytes) return 0;
  if (o->sector != LOAD(struct bio, clone, bi_iter.bi_sector)) return 0;
  if ((o->opf ^ LOAD(struct bio, clone, bi_opf)) & REQ_OP_MASK) return 0;
  u32 dev = o->dev;
  u32 below = disk_of_clone(clone, dev);
  const struct fb_device* device = device_of(below);
  if (below == dev || !device || !device->upper) return 0;
  /* The IO above is not yet done with its origin, and nobody else looks at it. */
  u32 top = o->top;
  u32 old_flags = o->flags;
  u32 part = o->part;
  o->dev = below;
  o->top = old_flags & FB_ORIGIN_BELOW ? top : dev;
  o->flags = old_flags | FB_ORIGIN_BELOW;
  o->part = 0;
  struct fb_end end = {.ios = flags & COMPLETE_FIRST, .error = error};
  if (end.ios) end.io_ns = bpf_ktime_get_boot_ns() - (o->issue_ns ? o->issue_ns : o->queue_ns);
  o->end = end;
  u32 n = o->shares;
  u32 most = largest_share(o);
  for (u32 i = 0; i < FB_SHARES; ++i) {
    if (i >= n) break;
    charge_nth(above, i, end.ios && i == most, true);
  }
  o->dev = dev;
  o->top = top;
  o->flags = old_flags;
  o->part = part;
  return 1;
}

/* `bytes` of a bio are done: a value of enum completed. They are lost unless it is BIO_DONE. */
__noinline int complete_bio(u64 bio, u64 sizes, u32 flags, u32 error) {
  u32 bytes = (u32)sizes;
  u32 request_bytes = sizes >> 32;
  struct fb_origin* o = bio_find(bio);
  if (!o) {
    if (live.stacks && complete_clone(bio, bytes, flags, error)) return BIO_DONE;
    return complete_skipped(bio, bytes, flags, error);
  }
  if (!(flags & COMPLETE_ALL)) {
    o->done_bytes += bytes;
    return BIO_DONE;
  }
  if (o->flags & FB_ORIGIN_NOTED) range_mark(o->dev, o->sector, o->bytes, 0);
  u32 done = o->done_bytes + bytes;
  if (done != o->bytes) {
    count(FB_COUNTER_bio_resized);
    rescale(o, done);
  }
  struct fb_end end = {.error = error, .ios = flags & COMPLETE_FIRST};
  u32 origin_flags = o->flags;
  u64 now = end.ios || (origin_flags & FB_ORIGIN_DOUBLE) ? bpf_ktime_get_boot_ns() : 0;
  if (end.ios) {
    u64 issued = o->issue_ns ? o->issue_ns : o->queue_ns;
    end.wait_ns = issued - o->queue_ns;
    end.io_ns = now - issued;
    if (flags & COMPLETE_TRACE)
      trace_io(o, &end, now, (u64)request_bytes | ((u64)(flags >> 16) << 32));
  }
  charge_origin(o, &end, bio, true);
  bio_remove(bio);
  if (origin_flags & FB_ORIGIN_DOUBLE) complete_stacked(bio + 1, error, now);
  return BIO_DONE;
}

/* Part of a request is done: what the IO is measured by moves from the old first bio to the new. */
static __noinline int pass_on(u64 from, u64 to) {
  struct fb_origin* old = bio_find(from);
  struct fb_origin* next = bio_find(to);
  if (!old || !next || old == next) return 0;
  next->queue_ns = old->queue_ns;
  next->issue_ns = old->issue_ns;
  next->requeues += old->requeues;
  return 0;
}

/* The bio that is the first one when so many bytes of a request are done. */
__noinline u64 first_bio_after(u64 bio, u32 bytes) {
  for (u32 i = 0; i < 256; ++i) {
    if (!bio) break;
    u32 size = LOAD(struct bio, bio, bi_iter.bi_size);
    if (size > bytes) break;
    bytes -= size;
    bio = (u64)LOAD(struct bio, bio, bi_next);
  }
  return bio;
}

/* What came of the bios of a request: bytes that are lost, and why. */
#define LOST_BYTES 0xffffffffull
#define LOST_UNKNOWN (1ull << 32) /* of some of them no beginning was seen */
#define LOST_CHAIN (1ull << 33)   /* there were more bios than are looked at */

/* So many bytes of a request are done, from its first bio on. Apart, to be verified once. */
__noinline u64 complete_bios(u64 bio, u32 bytes, u32 flags, u32 error) {
  u64 whole = (u64)bytes << 32;
  u32 left = bytes;
  u32 lost_bytes = 0;
  u64 why = 0;
  for (u32 i = 0; i < 1024; ++i) {
    if (!bio) break;
    u32 size = LOAD(struct bio, bio, bi_iter.bi_size);
    u32 part = size < left ? size : left;
    u32 mode = flags;
    if (part == size) mode |= COMPLETE_ALL;
    u32 came = complete_bio(bio, whole | part, mode, error);
    if (came != BIO_DONE) lost_bytes += part;
    if (came == BIO_UNKNOWN) why |= LOST_UNKNOWN;
    left -= part;
    if (!left) break;
    flags = 0;
    bio = (u64)LOAD(struct bio, bio, bi_next);
  }
  if (left) why |= bio ? LOST_CHAIN : LOST_UNKNOWN;
  return (u64)(lost_bytes + left) | why;
}

static __always_inline int on_complete(struct request* rq, u32 error, u32 bytes) {
  if (!rq->part) return 0; /* the kernel does not count it either */
  /* The address as a number, for global functions. */
  u64 bio = (u64)LOAD(struct request, rq, bio);
  bool final = bytes >= rq->__data_len;
  u32 flags = final ? COMPLETE_FIRST | (live.trace ? COMPLETE_TRACE : 0) : 0;
  bool alone = bio && final && !error && rq->bio == rq->biotail;
  if (live.skipped && alone && complete_alone_skipped(bio, rq->cmd_flags, bytes)) return 0;
  /* Rare: look for the bio that will be the first one. */
  if (!final) pass_on(bio, first_bio_after(bio, bytes));
  if (error) error = error < 0x10000 ? error : (u32)-error;
  u64 came = complete_bios(bio, bytes, flags, error);
  u32 lost_bytes = came & LOST_BYTES;
  if (!lost_bytes) return 0;
  struct request___disk* old = (void*)rq;
  struct gendisk* disk = bpf_core_field_exists(old->rq_disk) ? old->rq_disk : rq->q->disk;
  const struct fb_device* device = device_of_request(disk ? disk_number(disk) : 0);
  if (!device) return 0; /* not watched */
  if (came & LOST_CHAIN)
    count(FB_COUNTER_chain_cut);
  else if (came & LOST_UNKNOWN)
    count(FB_COUNTER_bio_unknown);
  count_lost_of(device, operation_of(rq->cmd_flags, bytes), lost_bytes, error != 0, error != 0);
  return 0;
}

SEC("tp_btf/block_bio_complete")
int block_bio_complete(u64* ctx) {
  struct bio* bio = (struct bio*)ctx[1];
  u64 key = 0; /* the same address as a number */
  bpf_probe_read_kernel(&key, sizeof(key), &ctx[1]);
  u32 status = bio->bi_status;
  complete_stacked(key, status, bpf_ktime_get_boot_ns());
  return 0;
}

SEC("tp_btf/block_rq_complete")
int block_rq_complete(u64* ctx) {
  return on_complete((struct request*)ctx[0], (u32)ctx[1], (u32)ctx[2]);
}
