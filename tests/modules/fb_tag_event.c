// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a kernel without the tracepoint block_rq_tag_wait carry its first form: declares it, and
 * fires it where blk_mq_get_tag() calls io_schedule(), that is once for each sleep, before it.
 *
 * What is being allocated is the argument of blk_mq_get_tag(); a probe there notes it by thread.
 * Where queue and hardware queue stand in it the loader says (q_at, hctx_at), as no header does.
 */
#include <linux/atomic.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#define CREATE_TRACE_POINTS
#include "fb_tag_event_trace.h"

static unsigned int q_at;
static unsigned int hctx_at;
module_param(q_at, uint, 0444);
module_param(hctx_at, uint, 0444);

/* How often the event fired, and how often what to tell with it was not known. */
static atomic_long_t fired;
static atomic_long_t unknown;

static int get_counter(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(param->arg));
}
static const struct kernel_param_ops counter_ops = {.get = get_counter};
module_param_cb(fired, &counter_ops, &fired, 0444);
module_param_cb(unknown, &counter_ops, &unknown, 0444);

#define PLACES 8192
static struct {
	struct task_struct *task;
	unsigned long data;
} notes[PLACES];

static int on_get_tag(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned int place = current->pid % PLACES;

	WRITE_ONCE(notes[place].data, regs->di);
	WRITE_ONCE(notes[place].task, current);
	return 0;
}
NOKPROBE_SYMBOL(on_get_tag);

static int on_sleep(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned int place = current->pid % PLACES;
	unsigned long caller = *(unsigned long *)regs->sp;
	char name[KSYM_SYMBOL_LEN];
	unsigned long data;

	sprint_symbol_no_offset(name, caller - 1);
	if (strcmp(name, "blk_mq_get_tag"))
		return 0;
	if (READ_ONCE(notes[place].task) != current) {
		atomic_long_inc(&unknown);
		return 0;
	}
	data = READ_ONCE(notes[place].data);
	trace_block_rq_tag_wait(*(struct request_queue **)(data + q_at),
				*(struct blk_mq_hw_ctx **)(data + hctx_at));
	atomic_long_inc(&fired);
	return 0;
}
NOKPROBE_SYMBOL(on_sleep);

static struct kprobe get_tag_probe = {.symbol_name = "blk_mq_get_tag", .pre_handler = on_get_tag};
static struct kprobe sleep_probe = {.symbol_name = "io_schedule", .pre_handler = on_sleep};

static int __init fb_tag_event_init(void)
{
	int error = register_kprobe(&get_tag_probe);

	if (error)
		return error;
	error = register_kprobe(&sleep_probe);
	if (error)
		unregister_kprobe(&get_tag_probe);
	return error;
}

static void __exit fb_tag_event_exit(void)
{
	unregister_kprobe(&sleep_probe);
	unregister_kprobe(&get_tag_probe);
}

module_init(fb_tag_event_init);
module_exit(fb_tag_event_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("block_rq_tag_wait in its first form, for tests");
