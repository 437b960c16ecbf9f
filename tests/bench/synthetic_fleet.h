// SPDX-License-Identifier: Apache-2.0
//
// A fleet that exists only in numbers: batches as agents would send them, for load generators and
// benchmarks. What matters for size and speed is modelled on real hosts: a few busy programs and
// many quiet ones (most rows hold one to three IOs, a few hold thousands), latencies that scatter
// log-normally around a value that depends on device and operation, histograms and sums made from
// the same samples, keys that mostly stay the same from window to window.
//
// Making rows costs more than storing them, so a fleet makes a pool of windows once and its hosts
// take turns on it; what two hosts share, or one host repeats after `windows_per_profile` windows,
// lies too far apart in a store for a compressor to notice.
//
// Threading: a SyntheticFleet is constant once made and may be shared; a SyntheticHost belongs to
// one thread.
#ifndef TESTS_BENCH_SYNTHETIC_FLEET_H_
#define TESTS_BENCH_SYNTHETIC_FLEET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/fleetblame/v1/collector.pb.h"
#include "proto/fleetblame/v1/types.pb.h"

namespace fleetblame::bench {

struct SyntheticFleetOptions {
  int rows_per_window = 500;
  // Distinct (actor, intent, device, operation, file) keys of a host; each window shows some.
  int keys_per_host = 800;
  // Half of the keys have fewer IOs in a window in which they show; the mean is three to four times
  // this. 500 rows of ten IOs are a host with 500 IOs a second.
  double median_ios = 2;
  int intents = 50;  // the same on all hosts
  int actors = 40;
  int devices = 4;
  int files = 120;
  int profiles = 16;             // different kinds of host
  int windows_per_profile = 32;  // then they repeat
  uint64_t window_ns = 10'000'000'000;
  uint64_t first_window_unix_ns = 1'790'000'000'000'000'000;
  bool zstd = true;  // as agents send; otherwise ENCODING_PLAIN
  uint64_t seed = 1;
};

class SyntheticFleet {
 public:
  explicit SyntheticFleet(const SyntheticFleetOptions& options);
  ~SyntheticFleet();

  struct PoolWindow {
    v1::RowBlock rows;    // agent's numbers
    std::string encoded;  // as it stands in Batch.rows
    uint64_t plain_bytes = 0;
  };
  const SyntheticFleetOptions& options() const { return options_; }
  const PoolWindow& window(int host, uint64_t n) const;
  // What every host defines; the dictionary_id is to be set.
  v1::Definitions DefinitionsOf(int host) const;

 private:
  const SyntheticFleetOptions options_;
  std::vector<std::vector<PoolWindow>> pool_;  // [profile][window]
};

class SyntheticHost {
 public:
  // `fleet` must outlive the host. `index` makes hosts differ: name, labels, devices, profile.
  SyntheticHost(const SyntheticFleet* fleet, int index);

  v1::Hello Hello() const;
  // The next batch in order; the first one carries the definitions. `rows`, if wanted, is set to
  // the batch's decoded block, owned by the fleet.
  v1::Batch NextBatch(const v1::RowBlock** rows = nullptr);
  // Where the next window begins and how long it is; by default windows follow each other.
  void SetNextWindow(uint64_t start_unix_ns, uint64_t length_ns) {
    next_start_unix_ns_ = start_unix_ns;
    window_ns_ = length_ns;
  }
  uint64_t next_seq() const { return seq_ + 1; }
  uint64_t spool_epoch() const { return spool_epoch_; }

 private:
  const SyntheticFleet* const fleet_;
  const int index_;
  const uint64_t spool_epoch_;
  const uint64_t dictionary_id_;
  uint64_t next_start_unix_ns_;
  uint64_t window_ns_;
  uint64_t seq_ = 0;
};

}  // namespace fleetblame::bench

#endif  // TESTS_BENCH_SYNTHETIC_FLEET_H_
