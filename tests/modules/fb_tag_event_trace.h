/* SPDX-License-Identifier: GPL-2.0 */
/*
 * block_rq_tag_wait in its first form: queue and hardware queue, and beside the size of the pool
 * the requests that the hardware queue has under way.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM fb_tag_event

#if !defined(FB_TAG_EVENT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define FB_TAG_EVENT_TRACE_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

TRACE_EVENT(block_rq_tag_wait,
	TP_PROTO(struct request_queue *q, struct blk_mq_hw_ctx *hctx),
	TP_ARGS(q, hctx),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, hctx_id)
		__field(u32, nr_tags)
		__field(u32, active_requests)
	),
	TP_fast_assign(
		__entry->dev = q->disk ? disk_devt(q->disk) : 0;
		__entry->hctx_id = hctx->queue_num;
		__entry->nr_tags = hctx->tags ? hctx->tags->nr_tags : 0;
		__entry->active_requests = atomic_read(&hctx->nr_active);
	),
	TP_printk("%d:%d hctx %u: %u under way, %u tags", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->hctx_id, __entry->active_requests, __entry->nr_tags)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE fb_tag_event_trace
#include <trace/define_trace.h>
