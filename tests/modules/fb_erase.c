// SPDX-License-Identifier: GPL-2.0
/*
 * A disk in memory, /dev/fberase, that erases securely: what eMMC offers, and no emulated disk.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#define DISK_BYTES (16u << 20)

static u8 *content;
static struct blk_mq_tag_set set;
static struct gendisk *disk;

static void copy_segments(struct request *request, u8 *at)
{
	struct req_iterator iter;
	struct bio_vec segment;

	rq_for_each_segment(segment, request, iter) {
		void *memory = bvec_kmap_local(&segment);

		if (req_op(request) == REQ_OP_WRITE)
			memcpy(at, memory, segment.bv_len);
		else
			memcpy(memory, at, segment.bv_len);
		kunmap_local(memory);
		at += segment.bv_len;
	}
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	struct request *request = data->rq;
	u64 at = blk_rq_pos(request) << SECTOR_SHIFT;
	blk_status_t status = BLK_STS_OK;

	blk_mq_start_request(request);
	switch (req_op(request)) {
	case REQ_OP_READ:
	case REQ_OP_WRITE:
		copy_segments(request, content + at);
		break;
	case REQ_OP_SECURE_ERASE:
		memset(content + at, 0, blk_rq_bytes(request));
		break;
	default:
		status = BLK_STS_NOTSUPP;
	}
	blk_mq_end_request(request, status);
	return BLK_STS_OK;
}
static const struct blk_mq_ops ops = {.queue_rq = queue_rq};
static const struct block_device_operations disk_ops = {.owner = THIS_MODULE};

static int __init fb_erase_init(void)
{
	int error = -ENOMEM;

	content = vzalloc(DISK_BYTES);
	if (!content)
		return error;
	set.ops = &ops;
	set.nr_hw_queues = 1;
	set.queue_depth = 64;
	set.numa_node = NUMA_NO_NODE;
	set.flags = BLK_MQ_F_SHOULD_MERGE;
	error = blk_mq_alloc_tag_set(&set);
	if (error)
		goto free_content;
	disk = blk_mq_alloc_disk(&set, NULL);
	if (IS_ERR(disk)) {
		error = PTR_ERR(disk);
		goto free_set;
	}
	blk_queue_max_secure_erase_sectors(disk->queue, DISK_BYTES >> SECTOR_SHIFT);
	set_capacity(disk, DISK_BYTES >> SECTOR_SHIFT);
	disk->fops = &disk_ops;
	strscpy(disk->disk_name, "fberase", sizeof(disk->disk_name));
	error = add_disk(disk);
	if (!error)
		return 0;
	put_disk(disk);
free_set:
	blk_mq_free_tag_set(&set);
free_content:
	vfree(content);
	return error;
}

static void __exit fb_erase_exit(void)
{
	del_gendisk(disk);
	put_disk(disk);
	blk_mq_free_tag_set(&set);
	vfree(content);
}

module_init(fb_erase_init);
module_exit(fb_erase_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A disk that erases securely, for tests");
