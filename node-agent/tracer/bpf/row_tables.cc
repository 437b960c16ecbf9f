// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/row_tables.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
// The skeleton uses the types of fleetblame_abi.h.
#include "bpf/fleetblame_bpf.skel.h"
#include "node-agent/host/clocks.h"

namespace fleetblame::agent {
namespace {

constexpr uint32_t kRowBatch = 64;

}  // namespace

RowTables::~RowTables() {
  if (fence_ >= 0) close(fence_);
  if (fence_inner_ >= 0) close(fence_inner_);
}

absl::Status RowTables::Start() {
  if (skeleton_->rodata->config.hot_rows != 0) {
    const size_t places = bpf_map__max_entries(skeleton_->maps.hot_rows);
    auto rows = MappedArray<fb_hot_row>::Map(bpf_map__fd(skeleton_->maps.hot_rows), places);
    if (!rows.ok()) return rows.status();
    hot_rows_ = *std::move(rows);
  }
  return MakeFence();
}

// Replacing an element of a map of maps makes the kernel wait until every program that might still
// use the old one has ended: with that, every program that saw the old row table.
absl::Status RowTables::MakeFence() {
  fence_inner_ = bpf_map_create(BPF_MAP_TYPE_ARRAY, "fb_fence_in", 4, 4, 1, nullptr);
  if (fence_inner_ < 0) {
    return absl::InternalError(absl::StrCat("make a map: ", std::strerror(errno)));
  }
  LIBBPF_OPTS(bpf_map_create_opts, opts, .inner_map_fd = static_cast<uint32_t>(fence_inner_));
  fence_ = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "fb_fence", 4, 4, 1, &opts);
  if (fence_ < 0) {
    return absl::InternalError(absl::StrCat("make a map of maps: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status RowTables::WaitForPrograms() {
  uint32_t zero = 0;
  if (bpf_map_update_elem(fence_, &zero, &fence_inner_, BPF_ANY) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("wait for running BPF programs: ", std::strerror(errno)));
}

absl::Status RowTables::BeginWindow() {
  fb_live& live = skeleton_->data->live;
  ended_ = live.active;
  live.window = ++window_;
  live.files = 0;
  live.epoch = BootTimeNs() / 1'000'000'000;
  live.active = ended_ ^ 1;
  return WaitForPrograms();
}

absl::Status RowTables::Drain(const std::function<void(const fb_row_key&, const fb_row&)>& take) {
  const int fd = bpf_map__fd(ended_ == 0 ? skeleton_->maps.rows0 : skeleton_->maps.rows1);
  auto less = [](const fb_row_key& a, const fb_row_key& b) {
    return std::memcmp(&a, &b, sizeof(a)) < 0;
  };
  std::set<fb_row_key, decltype(less)> seen(less);
  absl::Status status = ReadWholeMap<fb_row_key, fb_row>(
      fd, kRowBatch, [&](const fb_row_key& key, const fb_row& row) {
        // The walk may come by twice.
        if (seen.insert(key).second) take(key, row);
      });
  if (!status.ok()) return status;
  DrainHotRows(take);
  for (const fb_row_key& key : seen) bpf_map_delete_elem(fd, &key);
  return absl::OkStatus();
}

// The table is no longer written: its places are free for the window after the next.
void RowTables::DrainHotRows(const std::function<void(const fb_row_key&, const fb_row&)>& take) {
  const uint32_t per_table = skeleton_->rodata->config.hot_rows;
  for (size_t i = 0; i < hot_rows_.size(); ++i) {
    if (i / per_table % 2 != ended_) continue;
    fb_hot_row& hot = hot_rows_[i];
    if (hot.used == 0) continue;
    take(hot.key, hot.row);
    hot = fb_hot_row{};
  }
}

}  // namespace fleetblame::agent
