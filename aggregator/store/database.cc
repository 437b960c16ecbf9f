// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/database.h"

#include <fcntl.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/sst_partitioner.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "aggregator/store/keys.h"
#include "aggregator/store/rocks_status.h"

namespace fleetblame::aggregator {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFamilyNames[] = {"default",    "definitions", "index",      "dictionaries",
                                        "dirty",      "gaps",        "points_raw", "points_1m",
                                        "points_10m", "points_1h",   "points_6h",  "points_1d"};
static_assert(std::size(kFamilyNames) == static_cast<size_t>(Family::kCount));

// A text file beside RocksDB's own, so that a newer format is noticed before RocksDB touches
// anything.
constexpr char kFormatFile[] = "FORMAT";
constexpr char kFormatText[] = "fleetblame store, format ";

fs::path FormatPath(const std::string& path) { return fs::path(path) / kFormatFile; }

bool HoldsDatabase(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / "CURRENT", ignored);
}

// Whatever is in a directory that is to become a store, apart from what mkfs puts there; empty when
// there is nothing. A mistyped path such as /etc must not be filled with a store's files.
std::string ForeignFile(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != "lost+found") return it->path().filename().string();
  }
  return "";
}

absl::Status WriteFormatFile(const std::string& path) {
  std::string name = FormatPath(path).string();
  std::string text = absl::StrCat(kFormatText, kStoreFormatVersion, "\n");
  int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
            fsync(fd) == 0;
  int error = errno;
  if (fd >= 0) close(fd);
  if (ok) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("write ", name, ": ", strerror(error)));
}

absl::Status CheckFormatFile(const std::string& path) {
  std::string name = FormatPath(path).string();
  std::ifstream in(name);
  if (!in) {
    return absl::FailedPreconditionError(
        absl::StrCat("directory ", path, " holds a database but no file ", kFormatFile,
                     ", so it is not a Fleetblame store; choose another directory"));
  }
  std::string line;
  std::getline(in, line);
  int version = 0;
  if (line.rfind(kFormatText, 0) != 0 ||
      !absl::SimpleAtoi(line.substr(std::strlen(kFormatText)), &version) || version < 1) {
    return absl::DataLossError(absl::StrCat(
        "file ", name, " is damaged: it should read \"", kFormatText, kStoreFormatVersion,
        "\"; restore it from a backup, or write that line if this version wrote the store"));
  }
  if (version < kStoreFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", path, " has format ", version, ", and this version reads only ",
        kStoreFormatVersion,
        "; run the older version on it, or move the directory aside to start empty: agents then "
        "send what their spools still hold"));
  }
  if (version > kStoreFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, " has format ", version, ", and this version reads only ",
                     kStoreFormatVersion,
                     "; run the newer version again, or move the directory aside to start empty"));
  }
  return absl::OkStatus();
}

// Makes the directory ready: made, marked with its format, or refused.
absl::Status PrepareDirectory(const RocksStoreOptions& options) {
  const std::string& path = options.path;
  if (path.empty()) return absl::InvalidArgumentError("no directory given for the store");
  if (HoldsDatabase(path)) return CheckFormatFile(path);
  std::error_code error;
  if (fs::exists(FormatPath(path), error)) return CheckFormatFile(path);
  if (!options.create_if_missing) {
    return absl::NotFoundError(absl::StrCat("there is no store in ", path));
  }
  fs::create_directories(path, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("make directory ", path, ": ", error.message()));
  }
  if (std::string file = ForeignFile(path); !file.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("directory ", path, " holds other files (", file,
                     ") and no Fleetblame store; choose an empty or a new directory"));
  }
  return WriteFormatFile(path);
}

absl::Status ExplainOpenError(const rocksdb::Status& status, const RocksStoreOptions& options) {
  const std::string& path = options.path;
  std::string text = status.ToString();
  if (text.find("lock") != std::string::npos && text.find("LOCK") != std::string::npos) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", path, " is in use by another process; stop that one, or give this one a ",
        "directory of its own (", text, ")"));
  }
  if (status.IsCorruption() || text.find("No such file") != std::string::npos ||
      status.IsNotFound() || status.IsInvalidArgument()) {
    return absl::DataLossError(absl::StrCat(
        "store ", path, " is damaged (", text, "); nothing was changed. Run `",
        options.repair_command, "` to salvage what is readable, or move the directory aside to ",
        "start empty: agents then send what their spools still hold"));
  }
  return FromRocks(status, absl::StrCat("open store ", path));
}

rocksdb::BlockBasedTableOptions TableOptions(const std::shared_ptr<rocksdb::Cache>& cache,
                                             size_t block_bytes) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.block_size = block_bytes;
  table.format_version = 5;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.optimize_filters_for_memory = true;
  // Index and filters count as cache, or memory would grow with the disk.
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  return table;
}

rocksdb::ColumnFamilyOptions FamilyOptions(Family family, const RocksStoreOptions& store,
                                           const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options;
  options.level_compaction_dynamic_level_bytes = true;
  options.paranoid_file_checks = false;
  bool points = family >= Family::kPointsRaw;
  options.table_factory.reset(
      rocksdb::NewBlockBasedTableFactory(TableOptions(cache, points ? 64 << 10 : 16 << 10)));
  options.compression = rocksdb::kLZ4Compression;
  options.bottommost_compression = rocksdb::kZSTD;
  options.bottommost_compression_opts.enabled = true;
  // Rows are packed already (row_codec.h); what else there is, is small.
  options.bottommost_compression_opts.level = points ? 1 : 3;
  // After a full disk the database goes on only when there is room for one of these.
  options.write_buffer_size = std::min<size_t>(
      points ? 64 << 20 : 16 << 20, std::max<size_t>(store.write_buffer_bytes / 3, 1 << 20));
  options.max_write_buffer_number = 4;
  if (points) {
    options.sst_partitioner_factory =
        rocksdb::NewSstPartitionerFixedPrefixFactory(kPartitionPrefixBytes);
    options.max_bytes_for_level_base = 512 << 20;
    options.target_file_size_base = 64 << 20;
  }
  return options;
}

rocksdb::DBOptions DatabaseOptions(const RocksStoreOptions& options,
                                   const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::DBOptions db;
  db.create_if_missing = true;
  db.create_missing_column_families = true;
  db.max_background_jobs = options.background_threads;
  db.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(options.write_buffer_bytes, cache);
  db.max_total_wal_size = 4 * options.write_buffer_bytes;
  // What was acknowledged was fsynced, so only a torn tail may be missing; replay stops there.
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.track_and_verify_wals_in_manifest = true;
  db.paranoid_checks = true;
  db.max_open_files = 512;
  db.keep_log_file_num = 4;
  db.max_log_file_size = 8 << 20;
  db.stats_dump_period_sec = 0;
  db.bytes_per_sync = 4 << 20;
  db.enable_pipelined_write = false;
  db.max_bgerror_resume_count = 1000;
  return db;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const RocksStoreOptions& options) {
  if (absl::Status status = PrepareDirectory(options); !status.ok()) return status;
  std::unique_ptr<Database> database(new Database());
  database->path_ = options.path;
  // Memtables are charged to the cache, so its size bounds both.
  database->cache_ = rocksdb::NewLRUCache(options.block_cache_bytes + options.write_buffer_bytes);
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (int f = 0; f < static_cast<int>(Family::kCount); ++f) {
    descriptors.emplace_back(kFamilyNames[f],
                             FamilyOptions(static_cast<Family>(f), options, database->cache_));
  }
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(DatabaseOptions(options, database->cache_),
                                             options.path, descriptors, &database->handles_, &db);
  if (!status.ok()) return ExplainOpenError(status, options);
  database->db_.reset(db);
  return database;
}

Database::~Database() {
  if (db_ == nullptr) return;
  for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  db_->Close();
}

absl::Status Database::Repair(const RocksStoreOptions& options) {
  if (!HoldsDatabase(options.path)) {
    std::error_code ignored;
    if (!fs::exists(options.path, ignored)) {
      return absl::NotFoundError(absl::StrCat("there is no store in ", options.path));
    }
  }
  std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (int f = 0; f < static_cast<int>(Family::kCount); ++f) {
    descriptors.emplace_back(kFamilyNames[f],
                             FamilyOptions(static_cast<Family>(f), options, cache));
  }
  rocksdb::Status status =
      rocksdb::RepairDB(options.path, DatabaseOptions(options, cache), descriptors);
  if (!status.ok()) return FromRocks(status, absl::StrCat("repair store ", options.path));
  return WriteFormatFile(options.path);
}

absl::Status Database::Compact() {
  rocksdb::CompactRangeOptions range;
  range.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
  for (rocksdb::ColumnFamilyHandle* handle : handles_) {
    rocksdb::Status status = db_->CompactRange(range, handle, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status, absl::StrCat("compact store ", path_));
  }
  return absl::OkStatus();
}

absl::Status Database::Get(Family family, std::string_view key, std::string* value,
                           bool* found) const {
  rocksdb::Status status =
      db_->Get(rocksdb::ReadOptions(), this->family(family), ToSlice(key), value);
  *found = status.ok();
  if (status.ok() || status.IsNotFound()) return absl::OkStatus();
  return FromRocks(status, absl::StrCat("read from store ", path_));
}

}  // namespace fleetblame::aggregator
