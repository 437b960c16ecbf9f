// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/tag_waits_check.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/histogram.h"

namespace fleetblame::aggregator {
namespace {

constexpr size_t kMaxTextBytes = 256;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tag_waits: ", what));
}

absl::Status CheckCount(const char* what, int count, int most) {
  if (count <= most) return absl::OkStatus();
  return Bad(absl::StrCat(count, " ", what, "; at most ", most));
}

absl::Status CheckSet(const v1::TagSet& set) {
  for (const std::string* text : {&set.driver(), &set.host(), &set.model(), &set.pci_address(),
                                  &set.pci_id(), &set.pci_subsystem_id(), &set.firmware()}) {
    if (text->size() > kMaxTextBytes) {
      return Bad(absl::StrCat("a text of set ", set.set(), " has ", text->size(),
                              " bytes; at most ", kMaxTextBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHistogram(const v1::Histogram& histogram) {
  if (histogram.buckets_size() != histogram.counts_size()) {
    return Bad(absl::StrCat("a histogram has ", histogram.buckets_size(), " buckets and ",
                            histogram.counts_size(), " counts"));
  }
  int64_t last = -1;
  for (uint32_t bucket : histogram.buckets()) {
    if (bucket <= last) return Bad("buckets of a histogram are not increasing");
    if (bucket >= kHistogramBuckets) {
      return Bad(absl::StrCat("a histogram has a bucket ", bucket, "; they end at ",
                              kHistogramBuckets - 1));
    }
    last = bucket;
  }
  return absl::OkStatus();
}

// A newer agent may know more.
void DropUnknown(v1::TagWaits* waits) {
  auto kind = [](v1::TagKind k) { return v1::TagKind_IsValid(k) ? k : v1::TAG_KIND_UNSPECIFIED; };
  auto source = [](v1::TagWaitSource s) {
    return v1::TagWaitSource_IsValid(s) ? s : v1::TAG_WAIT_SOURCE_UNSPECIFIED;
  };
  waits->set_source(source(waits->source()));
  for (v1::TagWaitRow& row : *waits->mutable_rows()) {
    row.set_kind(kind(row.kind()));
    row.set_source(source(row.source()));
  }
  for (v1::TagHolder& holder : *waits->mutable_holders()) holder.set_kind(kind(holder.kind()));
}

// An agent that could not read a set, or had no room to tell it, still knows who waited.
void DropUndefinedSets(const absl::flat_hash_set<uint32_t>& defined, v1::TagWaits* waits) {
  auto fix = [&defined](auto* message) {
    if (!defined.contains(message->set())) message->clear_set();
  };
  for (v1::TagDisk& disk : *waits->mutable_disks()) fix(&disk);
  for (v1::TagWaitRow& row : *waits->mutable_rows()) fix(&row);
  for (v1::TagHolder& holder : *waits->mutable_holders()) fix(&holder);
}

}  // namespace

absl::Status CheckTagWaits(v1::TagWaits* waits) {
  for (absl::Status status : {CheckCount("rows", waits->rows_size(), kMaxTagWaitRows),
                              CheckCount("holders", waits->holders_size(), kMaxTagHolders),
                              CheckCount("disks", waits->disks_size(), kMaxTagDisks),
                              CheckCount("sets", waits->sets_size(), kMaxTagSets)}) {
    if (!status.ok()) return status;
  }
  if (waits->ByteSizeLong() > kMaxTagWaitsBytes) {
    return Bad(absl::StrCat(waits->ByteSizeLong(), " bytes; at most ", kMaxTagWaitsBytes));
  }
  absl::flat_hash_set<uint32_t> sets = {0};
  for (const v1::TagSet& set : waits->sets()) {
    if (!sets.insert(set.set()).second) {
      return Bad(
          absl::StrCat("set ", set.set(),
                       set.set() == 0 ? " means none and cannot be defined" : " is defined twice"));
    }
    if (absl::Status status = CheckSet(set); !status.ok()) return status;
  }
  for (const v1::TagDisk& disk : waits->disks()) {
    if (disk.scheduler().size() > kMaxTextBytes) return Bad("name of a scheduler too long");
  }
  for (const v1::TagWaitRow& row : waits->rows()) {
    if (absl::Status status = CheckHistogram(row.wait()); !status.ok()) return status;
  }
  DropUndefinedSets(sets, waits);
  DropUnknown(waits);
  return absl::OkStatus();
}

bool NamesDefinitions(const v1::TagWaits& waits) {
  return waits.disks_size() > 0 || waits.rows_size() > 0 || waits.holders_size() > 0;
}

}  // namespace fleetblame::aggregator
