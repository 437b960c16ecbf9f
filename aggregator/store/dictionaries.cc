// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/dictionaries.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/store/rocks_status.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kNoteEveryNs = 3'600'000'000'000;

uint64_t EntryKey(DefinitionKind kind, uint32_t agent_number) {
  return static_cast<uint64_t>(kind) << 32 | agent_number;
}

}  // namespace

Dictionaries::Dictionary& Dictionaries::Touch(const Scope& scope) {
  if (!recent_.empty() && recent_.front().scope == scope) return recent_.front();
  auto at = positions_.find(scope);
  if (at != positions_.end()) {
    recent_.splice(recent_.begin(), recent_, at->second);
    return recent_.front();
  }
  Trim();
  recent_.push_front(Dictionary{.scope = scope, .numbers = {}, .noted_unix_ns = 0});
  positions_[scope] = recent_.begin();
  return recent_.front();
}

// What a write under way relies on is in the database only after Commit, so it must stay.
void Dictionaries::Trim() {
  if (!changed_.empty()) return;
  while (cached_entries_ > max_cached_entries_ && !recent_.empty()) {
    cached_entries_ -= recent_.back().numbers.size();
    positions_.erase(recent_.back().scope);
    recent_.pop_back();
  }
}

absl::StatusOr<uint32_t> Dictionaries::Find(const Scope& scope, DefinitionKind kind,
                                            uint32_t agent_number) {
  if (agent_number == 0) return 0;
  Dictionary& dictionary = Touch(scope);
  auto at = dictionary.numbers.find(EntryKey(kind, agent_number));
  if (at != dictionary.numbers.end()) return at->second;
  std::string value;
  bool found = false;
  absl::Status status = database_->Get(
      Family::kDictionaries, DictionaryKey(scope.host, scope.dictionary_id, kind, agent_number),
      &value, &found);
  if (!status.ok()) return status;
  if (!found) return 0;
  std::string_view rest = value;
  uint32_t number = 0;
  if (!TakeBigEndian32(&rest, &number)) {
    return absl::DataLossError(absl::StrCat("dictionary of host ", scope.host, " is damaged"));
  }
  dictionary.numbers.emplace(EntryKey(kind, agent_number), number);
  ++cached_entries_;
  return number;
}

void Dictionaries::Define(const Scope& scope, DefinitionKind kind, uint32_t agent_number,
                          uint32_t number, rocksdb::WriteBatch* batch) {
  Dictionary& dictionary = Touch(scope);
  if (changed_.empty() || !(changed_.back() == scope)) changed_.push_back(scope);
  batch->Put(database_->family(Family::kDictionaries),
             DictionaryKey(scope.host, scope.dictionary_id, kind, agent_number), Value32(number));
  bool inserted = dictionary.numbers.insert_or_assign(EntryKey(kind, agent_number), number).second;
  if (inserted) ++cached_entries_;
}

void Dictionaries::Use(const Scope& scope, uint64_t now_unix_ns, rocksdb::WriteBatch* batch) {
  Dictionary& dictionary = Touch(scope);
  if (now_unix_ns < dictionary.noted_unix_ns + kNoteEveryNs) return;
  if (changed_.empty() || !(changed_.back() == scope)) changed_.push_back(scope);
  batch->Put(database_->family(Family::kMeta), DictionaryUseKey(scope.host, scope.dictionary_id),
             Value64(now_unix_ns));
  dictionary.noted_unix_ns = now_unix_ns;
}

void Dictionaries::Commit() {
  changed_.clear();
  Trim();
}

void Dictionaries::Abandon() {
  for (const Scope& scope : changed_) {
    auto at = positions_.find(scope);
    if (at == positions_.end()) continue;
    cached_entries_ -= at->second->numbers.size();
    recent_.erase(at->second);
    positions_.erase(at);
  }
  changed_.clear();
}

absl::StatusOr<int> Dictionaries::DropSuperseded(uint64_t now_unix_ns, uint64_t keep_ns,
                                                 rocksdb::WriteBatch* batch) {
  struct Known {
    Scope scope;
    uint64_t used_unix_ns = 0;
  };
  std::vector<Known> of_host;
  std::vector<Scope> dropped;
  // Keys of one host stand together; all but the one used last have a successor.
  auto finish_host = [&] {
    auto newest = std::max_element(
        of_host.begin(), of_host.end(),
        [](const auto& a, const auto& b) { return a.used_unix_ns < b.used_unix_ns; });
    for (auto at = of_host.begin(); at != of_host.end(); ++at) {
      if (at != newest && at->used_unix_ns + keep_ns < now_unix_ns) dropped.push_back(at->scope);
    }
    of_host.clear();
  };
  std::unique_ptr<rocksdb::Iterator> at(
      database_->db()->NewIterator(rocksdb::ReadOptions(), database_->family(Family::kMeta)));
  std::string prefix = DictionaryUsePrefix();
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    std::string_view key = FromSlice(at->key()).substr(prefix.size());
    std::string_view value = FromSlice(at->value());
    Known known;
    if (!TakeBigEndian32(&key, &known.scope.host) ||
        !TakeBigEndian64(&key, &known.scope.dictionary_id) ||
        !TakeBigEndian64(&value, &known.used_unix_ns)) {
      continue;
    }
    if (!of_host.empty() && of_host.front().scope.host != known.scope.host) finish_host();
    of_host.push_back(known);
  }
  finish_host();
  if (!at->status().ok()) return FromRocks(at->status(), "read use of dictionaries");
  for (const Scope& scope : dropped) {
    std::string first = DictionaryPrefix(scope.host, scope.dictionary_id);
    batch->DeleteRange(database_->family(Family::kDictionaries), first, PrefixEnd(first));
    batch->Delete(database_->family(Family::kMeta),
                  DictionaryUseKey(scope.host, scope.dictionary_id));
    changed_.push_back(scope);
  }
  // Whatever becomes of the batch, the cache must not know more than the database.
  Abandon();
  return static_cast<int>(dropped.size());
}

}  // namespace fleetblame::aggregator
