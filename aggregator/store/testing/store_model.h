// SPDX-License-Identifier: Apache-2.0
//
// What a store should hold, kept in the plainest way, and a generator of batches that also feeds
// it. Rows are compared by what their numbers mean, so two stores with other numbers agree.
//
// Threading: belongs to one thread.
#ifndef AGGREGATOR_STORE_TESTING_STORE_MODEL_H_
#define AGGREGATOR_STORE_TESTING_STORE_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "aggregator/store/store.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {

inline constexpr uint64_t kTestSecondNs = 1'000'000'000;
// A midnight, so that buckets of all levels begin here.
inline constexpr uint64_t kTestStartUnixNs = 1'790'035'200ull * kTestSecondNs;

struct RowSum {
  uint64_t ios = 0;
  uint64_t bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t io_ns = 0;
  uint64_t errors = 0;
  uint64_t requeues = 0;
  std::map<int, uint64_t> wait;
  std::map<int, uint64_t> io;
  bool operator==(const RowSum&) const = default;
  void Add(const BlockRow& row);
};
// Key in words ("intent actor device ...") to sum.
using RowSums = std::map<std::string, RowSum>;

// Tag waits by device, intent's id and comm; tags held by waiter and holder.
struct TagWaitSum {
  uint64_t waits = 0;
  uint64_t wait_ns = 0;
  std::map<uint32_t, uint64_t> wait;
  bool operator==(const TagWaitSum&) const = default;
  void Add(const v1::TagWaitRow& row);
};
struct TagWaitTotals {
  std::map<std::tuple<std::string, std::string, std::string>, TagWaitSum> rows;
  std::map<std::pair<std::string, std::string>, uint64_t> held;
  bool operator==(const TagWaitTotals&) const = default;
};

enum class KeyDetail {
  kAll,      // with host and file
  kNoFiles,  // with host: what rollups must keep exactly when files are folded
  kFleet,    // neither
};

// An agent: its own numbers, batches in order.
class ModelAgent {
 public:
  ModelAgent(int index, uint64_t seed);

  HostRecord Record() const;
  // The next batch, of a window that ends at `end_unix_ns`. It defines what was not defined before.
  struct Outgoing {
    v1::Batch batch;
    v1::RowBlock rows;
    std::vector<BlockRow> plain;
  };
  Outgoing Next(uint64_t end_unix_ns, uint64_t length_ns, int rows);
  // As after a restart: a new dictionary with other numbers.
  void Restart();
  // Defines everything again with the next batch.
  void Redefine() { defined_ = false; }

  v1::Intent intent(uint32_t agent_number) const;
  v1::Actor actor(uint32_t agent_number) const;
  v1::Device device(uint32_t agent_number) const;
  v1::File file(uint32_t agent_number) const;
  std::string Words(const BlockRow& row, KeyDetail detail) const;
  v1::Definitions AllDefinitions() const;
  uint64_t dictionary_id() const { return dictionary_id_; }
  uint64_t spool_epoch() const { return 1000 + static_cast<uint64_t>(index_); }
  int index() const { return index_; }

  HostNumber number = 0;
  uint64_t seq = 0;

 private:
  uint32_t Identity(uint32_t agent_number) const { return agent_number - offset_; }

  const int index_;
  std::mt19937_64 random_;
  uint64_t dictionary_id_ = 0;
  uint32_t offset_ = 0;  // agent's number = identity + offset
  bool defined_ = false;
};

class StoreModel {
 public:
  // `out` was made durable.
  void Add(const ModelAgent& agent, const ModelAgent::Outgoing& out);

  // Rows whose window's last instant lies in [from, to).
  RowSums Rows(uint64_t from, uint64_t to, KeyDetail detail,
               const std::function<bool(const std::string& host)>& host = nullptr) const;
  // Rows that have the intent of this identity on either side.
  RowSums RowsOfIntent(uint32_t identity, uint64_t from, uint64_t to, KeyDetail detail) const;
  uint64_t RecordedBytes(int agent_index, uint64_t from, uint64_t to) const;
  uint64_t Loss(uint64_t from, uint64_t to) const;
  TagWaitTotals TagWaits(uint64_t from, uint64_t to) const;

 private:
  struct Entry {
    int agent_index = 0;
    std::string host;
    uint64_t last_ns = 0;
    BlockRow row;
    std::string words[3];
    std::string intents[2];
  };
  RowSums Sum(uint64_t from, uint64_t to, KeyDetail detail,
              const std::function<bool(const Entry&)>& wanted) const;
  struct Book {
    int agent_index = 0;
    uint64_t last_ns = 0;
    uint64_t recorded_bytes = 0;
    uint64_t loss = 0;
    std::map<std::tuple<std::string, std::string, std::string>, TagWaitSum> tag_waits;
    std::map<std::pair<std::string, std::string>, uint64_t> tags_held;
  };
  std::vector<Entry> entries_;
  std::vector<Book> books_;
};

// Everything that a scan yields, in words. Fails the test on errors.
RowSums ReadHosts(const ReadView& view, std::span<const HostNumber> hosts, const ScanRange& range,
                  KeyDetail detail);
RowSums ReadFleet(const ReadView& view, const ScanRange& range);
RowSums ReadIntents(const ReadView& view, std::span<const IntentNumber> intents,
                    const ScanRange& range, KeyDetail detail);

TagWaitTotals ReadTagWaits(const ReadView& view, std::span<const HostNumber> hosts,
                           const ScanRange& range);

// Words for what a test failure should show: the first differences.
std::string Difference(const RowSums& got, const RowSums& want);

}  // namespace fleetblame::aggregator

#endif  // AGGREGATOR_STORE_TESTING_STORE_MODEL_H_
