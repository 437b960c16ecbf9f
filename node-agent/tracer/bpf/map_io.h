// SPDX-License-Identifier: Apache-2.0
//
// Reads BPF maps in bounded batches, or in place.
//
// Threading: pure functions over file descriptors.
#ifndef NODE_AGENT_TRACER_BPF_MAP_IO_H_
#define NODE_AGENT_TRACER_BPF_MAP_IO_H_

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::agent {

// Where a batched walk over a map has got to.
struct MapCursor {
  bool begun = false;
  std::vector<char> position;
};

// Visits up to about `limit` entries of a hash or array map from the cursor on, as many as
// `batch` at a time. Sets `*finished` at the end of the map and resets the cursor. Entries that
// move while the walk is on may be seen twice or not at all.
template <typename Key, typename Value, typename Visit>
absl::Status WalkMap(int fd, uint32_t batch, size_t limit, MapCursor* cursor, bool* finished,
                     Visit visit) {
  std::vector<Key> keys(batch);
  std::vector<Value> values(batch);
  std::vector<char> next(sizeof(Key) > 8 ? sizeof(Key) : 8);
  *finished = false;
  for (size_t seen = 0; seen < limit;) {
    uint32_t count = static_cast<uint32_t>(keys.size());
    int result = bpf_map_lookup_batch(fd, cursor->begun ? cursor->position.data() : nullptr,
                                      next.data(), keys.data(), values.data(), &count, nullptr);
    int error = result == 0 ? 0 : errno;
    if (error == ENOSPC && keys.size() < 65536) {
      keys.resize(keys.size() * 2);
      values.resize(keys.size());
      continue;
    }
    if (error != 0 && error != ENOENT) {
      *cursor = MapCursor();
      return absl::InternalError(absl::StrCat("read a BPF map: ", std::strerror(error)));
    }
    for (uint32_t i = 0; i < count; ++i) visit(keys[i], values[i]);
    seen += count;
    if (error == ENOENT) {
      *cursor = MapCursor();
      *finished = true;
      return absl::OkStatus();
    }
    cursor->begun = true;
    cursor->position = next;
    if (count == 0) ++seen;
  }
  return absl::OkStatus();
}

// Visits all entries.
template <typename Key, typename Value, typename Visit>
absl::Status ReadWholeMap(int fd, uint32_t batch, Visit visit) {
  MapCursor cursor;
  bool finished = false;
  return WalkMap<Key, Value>(fd, batch, SIZE_MAX, &cursor, &finished, visit);
}

// The memory of an array map that was made to be mapped (BPF_F_MMAPABLE). Programs write to it at
// any time: words that they write are to be read and changed as atomics.
template <typename Value>
class MappedArray {
 public:
  static absl::StatusOr<MappedArray> Map(int fd, size_t entries) {
    static_assert(sizeof(Value) % 8 == 0, "the kernel rounds elements up to 8 bytes");
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (entries * sizeof(Value) + page - 1) / page * page;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
      return absl::InternalError(absl::StrCat("map a BPF map: ", std::strerror(errno)));
    }
    return MappedArray(static_cast<Value*>(memory), entries, bytes);
  }
  MappedArray() = default;
  MappedArray(MappedArray&& other) noexcept { *this = std::move(other); }
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(values_, other.values_);
    std::swap(entries_, other.entries_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedArray() {
    if (values_ != nullptr) munmap(values_, bytes_);
  }

  size_t size() const { return entries_; }
  Value& operator[](size_t index) { return values_[index]; }

 private:
  MappedArray(Value* values, size_t entries, size_t bytes)
      : values_(values), entries_(entries), bytes_(bytes) {}

  Value* values_ = nullptr;
  size_t entries_ = 0;
  size_t bytes_ = 0;
};

}  // namespace fleetblame::agent

#endif  // NODE_AGENT_TRACER_BPF_MAP_IO_H_
