/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many of what comes very often are looked at. All of them, up to config.sample_ns apart; who
 * gets more than that looks at one in 2^shift, and of these at no more than a part of what it would
 * have looked at without: a sample of thousands a second says enough, and the rest is cost.
 */
#ifndef BPF_SAMPLE_RATE_BPF_H_
#define BPF_SAMPLE_RATE_BPF_H_

#include "bpf/maps.bpf.h"

#define SAMPLED_PART 8
/* Fewer are skipped once that would have done for so long: what comes in bursts is not calm between
 * them. */
#define SAMPLE_PATIENCE_NS 1000000000ull
/* Longer than any that matters, and room to be shifted. */
#define SAMPLE_LONGEST_NS (1ull << 45)
/* So often that is reconsidered, or once config.sample_step were looked at, which is twice as many as
 * should be in that time. A burst of fewer means nothing. */
#define SAMPLE_WHILE_NS 250000000ull

static __always_inline bool is_time_to_adapt(u32 looked_at, u64 since_ns, u64 now) {
  return looked_at >= config.sample_step || now - since_ns > SAMPLE_WHILE_NS;
}

/* Whether one in 2^shift were few enough, if with one in 2^old so many took so long. */
static __always_inline bool is_slow_enough(u32 shift, u32 old, u32 looked_at, u64 took_ns) {
  u64 least = (u64)looked_at * config.sample_ns * (shift ? SAMPLED_PART : 1);
  if (took_ns > SAMPLE_LONGEST_NS) took_ns = SAMPLE_LONGEST_NS;
  return took_ns << (shift & 15) >> (old & 15) >= least;
}

/* The same with some room for more of them. */
static __always_inline bool is_easily_slow_enough(u32 shift, u32 old, u32 looked_at, u64 took_ns) {
  return is_slow_enough(shift, old, looked_at + looked_at / 2, took_ns);
}

/* The shift from `old` on, at most `most`, with which they are few enough. */
static __always_inline u32 sufficient_shift(u32 old, u32 most, u32 looked_at, u64 took_ns) {
  u32 shift = old;
  for (u32 i = 1; i <= most; ++i)
    if (shift < i && !is_slow_enough(shift, old, looked_at, took_ns)) shift = i;
  return shift;
}

/* Whether the next lower one were not. */
static __always_inline bool is_needed(u32 shift, u32 looked_at, u64 took_ns) {
  return !shift || !is_easily_slow_enough(shift - 1, shift, looked_at, took_ns);
}

#endif /* BPF_SAMPLE_RATE_BPF_H_ */
