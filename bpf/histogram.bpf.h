/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What sums are made with: atomic additions, and the bucket that a duration falls into.
 */
#ifndef BPF_HISTOGRAM_BPF_H_
#define BPF_HISTOGRAM_BPF_H_

#include "bpf/kernel_read.bpf.h"

#define ADD(place, amount) __sync_fetch_and_add(&(place), amount)

/* Without branches: the processor would guess them wrong half of the time. */
static __always_inline u32 histogram_bucket(u64 value_ns) {
  if (value_ns < (1ull << FB_HIST_FIRST_OCTAVE)) return 0;
  if (value_ns >= (1ull << (FB_HIST_FIRST_OCTAVE + FB_HIST_OCTAVES))) return FB_HIST_BUCKETS - 1;
  /* The number of bits, once all below the highest are set. */
  u32 bits = value_ns >> FB_HIST_FIRST_OCTAVE;
  bits |= bits >> 1;
  bits |= bits >> 2;
  bits |= bits >> 4;
  bits |= bits >> 8;
  bits |= bits >> 16;
  bits -= (bits >> 1) & 0x55555555u;
  bits = (bits & 0x33333333u) + ((bits >> 2) & 0x33333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0fu;
  u32 octave = (bits * 0x01010101u >> 24) - 1;
  u32 sub = (value_ns >> (octave + FB_HIST_FIRST_OCTAVE - 3)) & (FB_HIST_SUB_BUCKETS - 1);
  return 1 + octave * FB_HIST_SUB_BUCKETS + sub;
}

#endif /* BPF_HISTOGRAM_BPF_H_ */
