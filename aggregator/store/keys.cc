// SPDX-License-Identifier: Apache-2.0
#include "aggregator/store/keys.h"

namespace fleetblame::aggregator {
namespace {

constexpr uint64_t kHourNs = 3'600'000'000'000;

std::string Tagged(char tag) { return std::string(1, tag); }

std::string Tagged32(char tag, uint32_t value) {
  std::string out = Tagged(tag);
  PutBigEndian32(&out, value);
  return out;
}

}  // namespace

void PutBigEndian32(std::string* out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

void PutBigEndian64(std::string* out, uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

bool TakeBigEndian32(std::string_view* in, uint32_t* value) {
  if (in->size() < 4) return false;
  *value = 0;
  for (int i = 0; i < 4; ++i) *value = *value << 8 | static_cast<uint8_t>((*in)[i]);
  in->remove_prefix(4);
  return true;
}

bool TakeBigEndian64(std::string_view* in, uint64_t* value) {
  if (in->size() < 8) return false;
  *value = 0;
  for (int i = 0; i < 8; ++i) *value = *value << 8 | static_cast<uint8_t>((*in)[i]);
  in->remove_prefix(8);
  return true;
}

uint64_t PartitionNs(Level level) {
  switch (level) {
    case Level::kRaw:
      return kHourNs;
    case Level::k1m:
      return 6 * kHourNs;
    case Level::k10m:
      return 24 * kHourNs;
    case Level::k1h:
      return 8 * 24 * kHourNs;
    case Level::k6h:
      return 32 * 24 * kHourNs;
    case Level::k1d:
      return 256 * 24 * kHourNs;
  }
  return kHourNs;
}

std::string EncodePointKey(Level level, PointKind kind, uint32_t unit, uint64_t last_ns) {
  std::string out;
  out.reserve(17 + 16);
  PutBigEndian32(&out, static_cast<uint32_t>(last_ns / PartitionNs(level)));
  out.push_back(static_cast<char>(kind));
  PutBigEndian32(&out, unit);
  PutBigEndian64(&out, last_ns);
  return out;
}

std::string EncodeRawSuffix(uint64_t spool_epoch, uint64_t seq) {
  std::string out;
  PutBigEndian64(&out, spool_epoch);
  PutBigEndian64(&out, seq);
  return out;
}

std::string SplitKey(HostNumber host, uint64_t minute_last_ns) {
  return EncodePointKey(Level::kRaw, PointKind::kHostRows, host, minute_last_ns) + "s";
}

std::string RestoredKey(HostNumber host, uint64_t last_ns, uint32_t number) {
  std::string out = EncodePointKey(Level::kRaw, PointKind::kHostRows, host, last_ns) + "w";
  PutBigEndian32(&out, number);
  return out;
}

std::optional<PointKey> DecodePointKey(std::string_view key) {
  PointKey out;
  if (!TakeBigEndian32(&key, &out.partition) || key.empty()) return std::nullopt;
  out.kind = static_cast<PointKind>(key.front());
  key.remove_prefix(1);
  if (!TakeBigEndian32(&key, &out.unit) || !TakeBigEndian64(&key, &out.last_ns)) {
    return std::nullopt;
  }
  out.suffix = key;
  return out;
}

std::string EpochKey() { return Tagged('E'); }
std::string HorizonKey(Level level) { return Tagged('R') + static_cast<char>(level); }
std::string HostPrefix() { return Tagged('H'); }
std::string HostKey(HostNumber host) { return Tagged32('H', host); }
std::string HighWaterKey(HostNumber host, uint64_t spool_epoch) {
  std::string out = Tagged32('W', host);
  PutBigEndian64(&out, spool_epoch);
  return out;
}
std::string DirectivesPrefix() { return Tagged('C'); }
std::string DirectivesKey(std::string_view name) { return Tagged('C') + std::string(name); }
std::string IntentSeenPrefix() { return Tagged('S'); }
std::string IntentSeenKey(IntentNumber intent) { return Tagged32('S', intent); }
std::string DictionaryUsePrefix() { return Tagged('U'); }
std::string DictionaryUseKey(HostNumber host, uint64_t dictionary_id) {
  std::string out = Tagged32('U', host);
  PutBigEndian64(&out, dictionary_id);
  return out;
}

std::string DefinitionPrefix(DefinitionKind kind) { return Tagged(static_cast<char>(kind)); }
std::string DefinitionKey(DefinitionKind kind, uint32_t number) {
  return Tagged32(static_cast<char>(kind), number);
}
std::string IndexKey(DefinitionKind kind, std::string_view content) {
  std::string out = Tagged(static_cast<char>(kind));
  out.append(content);
  return out;
}

std::string DictionaryPrefix(HostNumber host, uint64_t dictionary_id) {
  std::string out;
  PutBigEndian32(&out, host);
  PutBigEndian64(&out, dictionary_id);
  return out;
}
std::string DictionaryKey(HostNumber host, uint64_t dictionary_id, DefinitionKind kind,
                          uint32_t agent_number) {
  std::string out = DictionaryPrefix(host, dictionary_id);
  out.push_back(static_cast<char>(kind));
  PutBigEndian32(&out, agent_number);
  return out;
}

std::string GapPrefix(HostNumber host) {
  std::string out;
  PutBigEndian32(&out, host);
  return out;
}
// By end first: what ended before a range is skipped by one seek.
std::string GapKey(HostNumber host, const v1::Gap& gap) {
  std::string out = GapPrefix(host);
  PutBigEndian64(&out, gap.end_unix_ns());
  PutBigEndian64(&out, gap.start_unix_ns());
  out += gap.cause();
  return out;
}

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty() && static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(static_cast<uint8_t>(prefix.back()) + 1);
  return prefix;
}

std::string Value32(uint32_t value) {
  std::string out;
  PutBigEndian32(&out, value);
  return out;
}
std::string Value64(uint64_t value) {
  std::string out;
  PutBigEndian64(&out, value);
  return out;
}

}  // namespace fleetblame::aggregator
