// SPDX-License-Identifier: GPL-2.0
/*
 * A disk without sectors whose reserved tags run dry: some threads want one each, hold it for a
 * moment, give it back and pause for as long. They measure how long they stood still for it.
 */
#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>

#define MOST_THREADS 16

static unsigned int tags = 8;
static unsigned int reserved = 2;
static unsigned int threads = 6;
static unsigned int hold_us = 5000;
module_param(tags, uint, 0444);
module_param(reserved, uint, 0444);
module_param(threads, uint, 0444);
module_param(hold_us, uint, 0444);

/* Sums over allocations, in nanoseconds: the time they took, and what of it was sleep. */
static unsigned long taken;
static unsigned long whole_ns;
static unsigned long asleep_ns;
module_param(taken, ulong, 0444);
module_param(whole_ns, ulong, 0444);
module_param(asleep_ns, ulong, 0444);
/* 1: the threads run. */
static unsigned int run;

static DEFINE_MUTEX(lock);
static struct task_struct *workers[MOST_THREADS];
static struct blk_mq_tag_set set;
static struct gendisk *disk;

static u64 awake_ns(void)
{
	return current->se.sum_exec_runtime + current->sched_info.run_delay;
}

static int take_and_hold(void *unused)
{
	while (!kthread_should_stop()) {
		u64 awake = awake_ns();
		u64 begin = ktime_get_ns();
		struct request *request =
			blk_mq_alloc_request(disk->queue, REQ_OP_DRV_IN, BLK_MQ_REQ_RESERVED);
		u64 took = ktime_get_ns() - begin;

		if (IS_ERR(request))
			return PTR_ERR(request);
		awake = awake_ns() - awake;
		mutex_lock(&lock);
		taken++;
		whole_ns += took;
		asleep_ns += took > awake ? took - awake : 0;
		mutex_unlock(&lock);
		usleep_range(hold_us, hold_us + hold_us / 10 + 1);
		blk_mq_free_request(request);
		/* Or the tag would go to this thread again. */
		usleep_range(hold_us, hold_us + hold_us / 10 + 1);
	}
	return 0;
}

static void stop_threads(void)
{
	unsigned int i;

	for (i = 0; i < MOST_THREADS; i++) {
		if (!workers[i])
			continue;
		kthread_stop(workers[i]);
		put_task_struct(workers[i]);
		workers[i] = NULL;
	}
}

static void start_threads(void)
{
	unsigned int i;

	for (i = 0; i < threads && i < MOST_THREADS; i++) {
		struct task_struct *task =
			kthread_create(take_and_hold, NULL, "fb_reserved/%u", i);

		if (IS_ERR(task))
			break;
		workers[i] = task;
		get_task_struct(task);
		wake_up_process(task);
	}
}

static int set_run(const char *text, const struct kernel_param *param)
{
	unsigned int was = run;
	int error = param_set_uint(text, param);

	if (error || !disk || !!run == !!was)
		return error;
	if (run)
		start_threads();
	else
		stop_threads();
	return 0;
}
static const struct kernel_param_ops run_ops = {.set = set_run, .get = param_get_uint};
module_param_cb(run, &run_ops, &run, 0644);

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	blk_mq_start_request(data->rq);
	blk_mq_end_request(data->rq, BLK_STS_OK);
	return BLK_STS_OK;
}
static const struct blk_mq_ops ops = {.queue_rq = queue_rq};
static const struct block_device_operations disk_ops = {.owner = THIS_MODULE};

static int __init fb_reserved_init(void)
{
	int error;

	set.ops = &ops;
	set.nr_hw_queues = 1;
	set.queue_depth = tags;
	set.reserved_tags = reserved;
	set.numa_node = NUMA_NO_NODE;
	error = blk_mq_alloc_tag_set(&set);
	if (error)
		return error;
	disk = blk_mq_alloc_disk(&set, NULL);
	if (IS_ERR(disk)) {
		error = PTR_ERR(disk);
		goto free_set;
	}
	disk->fops = &disk_ops;
	strscpy(disk->disk_name, "fbreserved", sizeof(disk->disk_name));
	error = add_disk(disk);
	if (!error)
		return 0;
	put_disk(disk);
free_set:
	blk_mq_free_tag_set(&set);
	return error;
}

static void __exit fb_reserved_exit(void)
{
	stop_threads();
	del_gendisk(disk);
	put_disk(disk);
	blk_mq_free_tag_set(&set);
}

module_init(fb_reserved_init);
module_exit(fb_reserved_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A disk whose reserved tags run dry, for tests");
