// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/row_keys.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

namespace fleetblame::aggregator {
namespace {

using Column = google::protobuf::RepeatedField<uint32_t>;

constexpr int kOperationBits = 7;
constexpr int kKeyBits = 128;

int WidthFor(size_t table) { return table <= 1 ? 0 : static_cast<int>(std::bit_width(table - 1)); }

void Add(const Column& numbers, KeyTables::Numbers* table) {
  if (std::includes(table->begin(), table->end(), numbers.begin(), numbers.end())) return;
  KeyTables::Numbers both;
  both.reserve(table->size() + static_cast<size_t>(numbers.size()));
  std::set_union(table->begin(), table->end(), numbers.begin(), numbers.end(),
                 std::back_inserter(both));
  *table = std::move(both);
}

// Where each entry of a block's table stands in `table`.
bool Map(const Column& numbers, const KeyTables::Numbers& table, std::vector<uint32_t>* out) {
  out->clear();
  for (uint32_t number : numbers) {
    auto at = std::lower_bound(table.begin(), table.end(), number);
    if (at == table.end() || *at != number) return false;
    out->push_back(static_cast<uint32_t>(at - table.begin()));
  }
  return true;
}

}  // namespace

KeyTables KeyTables::Of(const v1::RowBlock& block) {
  KeyTables out;
  out.Unite(block);
  return out;
}

void KeyTables::Unite(const v1::RowBlock& block) {
  Add(block.devices(), &devices);
  Add(block.actors(), &actors);
  Add(block.intents(), &intents);
  Add(block.files(), &files);
}

std::array<int, kKeyColumns> KeyTables::Widths() const {
  const int actor = WidthFor(actors.size());
  const int intent = WidthFor(intents.size());
  return {WidthFor(devices.size()), kOperationBits, actor, intent, actor, intent,
          WidthFor(files.size())};
}

bool KeyTables::Fit() const {
  const auto widths = Widths();
  return std::accumulate(widths.begin(), widths.end(), 0) <= kKeyBits;
}

std::optional<std::vector<RowKey>> KeysOf(const v1::RowBlock& b, const KeyTables& tables) {
  std::vector<uint32_t> devices;
  std::vector<uint32_t> actors;
  std::vector<uint32_t> intents;
  std::vector<uint32_t> files;
  if (!Map(b.devices(), tables.devices, &devices) || !Map(b.actors(), tables.actors, &actors) ||
      !Map(b.intents(), tables.intents, &intents) || !Map(b.files(), tables.files, &files)) {
    return std::nullopt;
  }
  const auto widths = tables.Widths();
  std::vector<RowKey> keys(static_cast<size_t>(b.op_confidence_size()));
  for (int row = 0; row < b.op_confidence_size(); ++row) {
    RowKey key = devices[b.device_ref(row)];
    key = key << widths[1] | b.op_confidence(row);
    key = key << widths[2] | actors[b.issuer_actor_ref(row)];
    key = key << widths[3] | intents[b.issuer_intent_ref(row)];
    key = key << widths[4] | actors[b.dirtier_actor_ref(row)];
    key = key << widths[5] | intents[b.dirtier_intent_ref(row)];
    key = key << widths[6] | files[b.file_ref(row)];
    keys[static_cast<size_t>(row)] = key;
  }
  return keys;
}

std::array<uint32_t, kKeyColumns> ColumnsOf(RowKey key,
                                            const std::array<int, kKeyColumns>& widths) {
  std::array<uint32_t, kKeyColumns> out;
  for (size_t c = kKeyColumns; c-- > 0;) {
    out[c] = static_cast<uint32_t>(key & ((RowKey{1} << widths[c]) - 1));
    key >>= widths[c];
  }
  return out;
}

}  // namespace fleetblame::aggregator
