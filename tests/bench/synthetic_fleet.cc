// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/synthetic_fleet.h"

#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/row_block.h"

namespace fleetblame::bench {
namespace {

constexpr uint64_t kBootUnixNs = 1'780'000'000'000'000'000;
// Level that an agent uses: fast, and most of the gain.
constexpr int kZstdLevel = 3;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t both[2] = {a, b};
  return XXH3_64bits(both, sizeof(both));
}

// One key of a host and how it behaves.
struct Key {
  BlockRow row;       // key fields only
  double mean_ios;    // in a window in which it shows
  double weight;      // how often it shows
  uint64_t io_bytes;  // typical size
  double wait_log_mean;
  double io_log_mean;
};

std::vector<Key> MakeKeys(const SyntheticFleetOptions& o, std::mt19937_64& random) {
  std::lognormal_distribution<double> ios(std::log(o.median_ios), 1.4);
  std::uniform_real_distribution<double> unit(0, 1);
  std::normal_distribution<double> jitter(0, 0.4);
  // A few programs, stacks and files are named by most rows.
  auto skewed = [&](int n) { return static_cast<uint32_t>(n * unit(random) * unit(random)); };
  std::vector<Key> keys;
  std::set<std::string> seen;
  while (static_cast<int>(keys.size()) < o.keys_per_host) {
    Key key;
    BlockRow& r = key.row;
    r.device = 1 + skewed(o.devices);
    r.dirtier_actor = 1 + skewed(o.actors);
    r.dirtier_intent = 1 + skewed(o.intents);
    bool read = unit(random) < 0.3;
    bool buffered = !read && unit(random) < 0.7;
    r.operation = read ? v1::OPERATION_READ : v1::OPERATION_WRITE;
    // Buffered data is written by one of a few flushers on one of a few paths.
    r.issuer_actor = buffered ? 1 + skewed(4) : r.dirtier_actor;
    r.issuer_intent = buffered ? 1 + skewed(std::min(o.intents, 6)) : r.dirtier_intent;
    r.confidence = !buffered            ? v1::CONFIDENCE_ISSUER
                   : unit(random) < 0.9 ? v1::CONFIDENCE_EXACT
                   : unit(random) < 0.7 ? v1::CONFIDENCE_INODE
                                        : v1::CONFIDENCE_JOURNAL;
    r.file = unit(random) < 0.5 ? 0 : 1 + skewed(o.files);
    std::string identity =
        absl::StrCat(r.device, " ", r.dirtier_actor, " ", r.dirtier_intent, " ", r.issuer_actor,
                     " ", r.issuer_intent, " ", static_cast<int>(r.operation), " ",
                     static_cast<int>(r.confidence), " ", r.file);
    if (!seen.insert(identity).second) continue;
    key.mean_ios = std::clamp(ios(random), 1.0, 5000.0);
    key.weight = 0.15 + unit(random) * std::sqrt(key.mean_ios);
    static constexpr uint64_t kSizes[] = {4096, 4096, 4096, 8192, 16384, 65536, 131072, 524288};
    key.io_bytes = kSizes[random() % std::size(kSizes)];
    bool rotating = r.device % 3 == 0;
    key.io_log_mean = std::log(rotating ? 4e6 : (read ? 90e3 : 35e3)) +
                      std::log(static_cast<double>(key.io_bytes) / 4096) * 0.25 + jitter(random);
    key.wait_log_mean = std::log(rotating ? 1e6 : 2.5e3) + jitter(random);
    keys.push_back(key);
  }
  return keys;
}

// Draws the IOs of one row. Above some number of IOs samples stand for several each.
BlockRow DrawRow(const Key& key, std::mt19937_64& random) {
  constexpr uint64_t kMaxSamples = 256;
  BlockRow row = key.row;
  std::lognormal_distribution<double> activity(std::log(key.mean_ios), 0.6);
  row.ios = std::max<uint64_t>(1, static_cast<uint64_t>(activity(random)));
  uint64_t each = (row.ios + kMaxSamples - 1) / kMaxSamples;
  std::lognormal_distribution<double> wait(key.wait_log_mean, 0.7);
  std::lognormal_distribution<double> io(key.io_log_mean, 0.5);
  std::map<int, uint64_t> wait_buckets;
  std::map<int, uint64_t> io_buckets;
  for (uint64_t done = 0; done < row.ios;) {
    uint64_t n = std::min(each, row.ios - done);
    done += n;
    // Most IOs of a row have the usual size, some are merged.
    row.bytes += n * key.io_bytes * (random() % 4 == 0 ? 1 + random() % 4 : 1);
    auto wait_ns = static_cast<uint64_t>(wait(random));
    auto io_ns = static_cast<uint64_t>(io(random));
    row.wait_ns += n * wait_ns;
    row.io_ns += n * io_ns;
    wait_buckets[HistogramBucket(wait_ns)] += n;
    io_buckets[HistogramBucket(io_ns)] += n;
  }
  for (auto [bucket, n] : wait_buckets) row.wait.Add(bucket, n);
  for (auto [bucket, n] : io_buckets) row.io.Add(bucket, n);
  if (random() % 20000 == 0) row.errors = 1;
  if (random() % 5000 == 0) row.requeues = 1;
  return row;
}

v1::RowBlock DrawWindow(const SyntheticFleetOptions& o, const std::vector<Key>& keys,
                        std::mt19937_64& random) {
  // Weighted draw without replacement: the smallest of exponentials with rate `weight`.
  std::vector<std::pair<double, const Key*>> order;
  order.reserve(keys.size());
  std::exponential_distribution<double> exponential(1);
  for (const Key& key : keys) order.emplace_back(exponential(random) / key.weight, &key);
  size_t rows = std::min<size_t>(static_cast<size_t>(o.rows_per_window), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(rows), order.end());
  order.resize(rows);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  RowBlockBuilder builder(RowBlockBuilder::Order::kByKey);
  for (const auto& [when, key] : order) builder.Add(DrawRow(*key, random));
  return builder.Finish();
}

std::string Compress(const std::string& plain) {
  std::string out(ZSTD_compressBound(plain.size()), '\0');
  size_t n = ZSTD_compress(out.data(), out.size(), plain.data(), plain.size(), kZstdLevel);
  out.resize(ZSTD_isError(n) ? 0 : n);
  return out;
}

v1::Intent MakeIntent(int number) {
  static constexpr const char* kModifiers[] = {"", "background", "sync", "periodic"};
  static constexpr const char* kEntries[] = {"write", "fsync", "pwrite64", "io_submit", "sync"};
  static constexpr const char* kFilesystems[] = {"ext4", "xfs", "btrfs"};
  v1::Intent intent;
  intent.set_modifier(kModifiers[number % 4]);
  const char* fs = kFilesystems[number % 3];
  const char* entry = kEntries[number % 5];
  for (const char* frame : {"submit_bio", "mark_dirty_range"}) intent.add_frames(frame);
  for (int depth = 0; depth < 3 + number % 6; ++depth) {
    intent.add_frames(absl::StrCat(fs, "_path_", number, "_step_", depth));
  }
  intent.add_frames(absl::StrCat(fs, "_file_", entry));
  intent.add_frames("vfs_write");
  intent.add_frames(absl::StrCat("sys_", entry));
  intent.add_frames("entry_syscall");
  std::string text = absl::StrCat("synthetic ", number);
  XXH128_canonical_t id;
  XXH128_canonicalFromHash(&id, XXH3_128bits(text.data(), text.size()));
  intent.set_intent_id(id.digest, sizeof(id.digest));
  v1::IntentVariant* variant = intent.add_variants();
  variant->set_kernel_release("6.1.0-28-amd64");
  variant->set_vmlinux_build_id("0123456789abcdef0123");
  for (const std::string& frame : intent.frames()) {
    v1::RawFrame* raw = variant->add_frames();
    raw->set_symbol(frame);
    raw->set_offset(16 + frame.size() * 8);
  }
  return intent;
}

}  // namespace

SyntheticFleet::SyntheticFleet(const SyntheticFleetOptions& options) : options_(options) {
  for (int profile = 0; profile < options_.profiles; ++profile) {
    std::mt19937_64 random(Mix(options_.seed, static_cast<uint64_t>(profile)));
    std::vector<Key> keys = MakeKeys(options_, random);
    std::vector<PoolWindow>& windows = pool_.emplace_back();
    for (int w = 0; w < options_.windows_per_profile; ++w) {
      PoolWindow& window = windows.emplace_back();
      window.rows = DrawWindow(options_, keys, random);
      std::string plain = window.rows.SerializeAsString();
      window.plain_bytes = plain.size();
      window.encoded = options_.zstd ? Compress(plain) : std::move(plain);
    }
  }
}

SyntheticFleet::~SyntheticFleet() = default;

const SyntheticFleet::PoolWindow& SyntheticFleet::window(int host, uint64_t n) const {
  const auto& windows = pool_[static_cast<size_t>(host) % pool_.size()];
  return windows[(static_cast<size_t>(host) / pool_.size() * 7 + n) % windows.size()];
}

v1::Definitions SyntheticFleet::DefinitionsOf(int host) const {
  v1::Definitions d;
  for (int i = 1; i <= options_.intents; ++i) {
    (*d.mutable_intents())[static_cast<uint32_t>(i)] = MakeIntent(i);
  }
  for (int i = 1; i <= options_.actors; ++i) {
    v1::Actor& actor = (*d.mutable_actors())[static_cast<uint32_t>(i)];
    actor.set_comm(i <= 4 ? absl::StrCat("kworker/u8:", i) : absl::StrCat("program-", i));
    actor.set_kernel_thread(i <= 4);
    actor.set_cgroup(i <= 4 ? "/" : absl::StrCat("/system.slice/program-", i, ".service"));
    actor.set_cgroup_id(Mix(static_cast<uint64_t>(host), static_cast<uint64_t>(i)) % 100000);
  }
  for (int i = 1; i <= options_.devices; ++i) {
    v1::Device& device = (*d.mutable_devices())[static_cast<uint32_t>(i)];
    device.set_name(absl::StrCat("nvme", i - 1, "n1"));
    device.set_major(259);
    device.set_minor(static_cast<uint32_t>(i - 1));
    device.set_model("Synthetic 3.84 TB");
    device.set_persistent_id(absl::StrCat("serial-", host, "-", i));
    device.set_rotational(i % 3 == 0);
  }
  for (int i = 1; i <= options_.files; ++i) {
    v1::File& file = (*d.mutable_files())[static_cast<uint32_t>(i)];
    file.set_path(absl::StrCat("/var/lib/service-", i % 9, "/data/table-", i, ".db"));
    file.set_fs_major(259);
    file.set_fs_minor(static_cast<uint32_t>(i % 3));
    file.set_inode(Mix(static_cast<uint64_t>(host), static_cast<uint64_t>(i) << 32) % (1 << 24));
  }
  return d;
}

SyntheticHost::SyntheticHost(const SyntheticFleet* fleet, int index)
    : fleet_(fleet),
      index_(index),
      spool_epoch_(Mix(static_cast<uint64_t>(index), 0x5e)),
      dictionary_id_(Mix(static_cast<uint64_t>(index), 0xd1)),
      next_start_unix_ns_(fleet->options().first_window_unix_ns),
      window_ns_(fleet->options().window_ns) {}

v1::Hello SyntheticHost::Hello() const {
  static constexpr const char* kRoles[] = {"db", "web", "queue", "storage"};
  static constexpr const char* kSites[] = {"fra1", "fra2", "iad1"};
  v1::Hello hello;
  hello.set_protocol_version(1);
  hello.set_host_id(absl::StrCat("synthetic-", index_));
  hello.set_hostname(absl::StrCat("host-", index_, ".example"));
  hello.set_boot_id(absl::StrCat("boot-", index_));
  hello.set_spool_epoch(spool_epoch_);
  hello.set_first_spooled_seq(seq_ + 1);
  hello.set_last_spooled_seq(seq_ + 1);
  hello.set_agent_version("1.0.0");
  hello.set_kernel_release("6.1.0-28-amd64");
  hello.set_tracer("replay");
  (*hello.mutable_labels())["role"] = kRoles[index_ % 4];
  (*hello.mutable_labels())["dc"] = kSites[index_ % 3];
  hello.set_realtime_unix_ns(fleet_->options().first_window_unix_ns);
  hello.set_boottime_ns(fleet_->options().first_window_unix_ns - kBootUnixNs);
  return hello;
}

v1::Batch SyntheticHost::NextBatch(const v1::RowBlock** rows) {
  const SyntheticFleetOptions& o = fleet_->options();
  const SyntheticFleet::PoolWindow& pooled = fleet_->window(index_, seq_);
  v1::Batch batch;
  batch.set_spool_epoch(spool_epoch_);
  batch.set_dictionary_id(dictionary_id_);
  v1::Window* window = batch.mutable_window();
  window->set_start_boot_ns(next_start_unix_ns_ - kBootUnixNs);
  window->set_end_boot_ns(window->start_boot_ns() + window_ns_);
  next_start_unix_ns_ += window_ns_;
  window->set_realtime_offset_ns(static_cast<int64_t>(kBootUnixNs));
  window->set_boot_id(absl::StrCat("boot-", index_));
  batch.set_encoding(o.zstd ? v1::Batch::ENCODING_ZSTD : v1::Batch::ENCODING_PLAIN);
  batch.set_rows(pooled.encoded);
  batch.set_rows_plain_bytes(pooled.plain_bytes);
  batch.set_row_count(static_cast<uint32_t>(pooled.rows.op_confidence_size()));
  if (seq_ == 0) {
    *batch.mutable_definitions() = fleet_->DefinitionsOf(index_);
    batch.mutable_definitions()->set_dictionary_id(dictionary_id_);
  }
  for (int i = 1; i <= o.devices; ++i) {
    for (v1::Operation direction : {v1::OPERATION_READ, v1::OPERATION_WRITE}) {
      v1::CoverageSample* sample = batch.add_coverage();
      uint64_t bytes = Mix(seq_, static_cast<uint64_t>(i)) % (1 << 28) / 512 * 512;
      sample->set_device(static_cast<uint32_t>(i));
      sample->set_direction(direction);
      sample->set_recorded_bytes(bytes);
      sample->set_kernel_bytes(bytes);
      sample->set_recorded_ios(bytes / 16384);
      sample->set_kernel_ios(bytes / 16384);
    }
  }
  if (rows != nullptr) *rows = &pooled.rows;
  batch.set_seq(++seq_);
  return batch;
}

}  // namespace fleetblame::bench
