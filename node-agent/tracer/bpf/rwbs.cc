// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/rwbs.h"

#include <cerrno>

#include "bpf/fleetblame_abi.h"

namespace fleetblame::agent {
namespace {

// req_flag_bits of the kernel, the same since 4.10.
constexpr uint32_t kSync = 1u << 11;
constexpr uint32_t kMeta = 1u << 12;
constexpr uint32_t kFua = 1u << 17;
constexpr uint32_t kPreflush = 1u << 18;
constexpr uint32_t kReadAhead = 1u << 19;

}  // namespace

std::string RwbsText(uint8_t op, uint32_t opf) {
  std::string text;
  if (op != FB_OP_FLUSH && (opf & kPreflush)) text += 'F';
  switch (op) {
    case FB_OP_READ:
      text += 'R';
      break;
    case FB_OP_WRITE:
      text += 'W';
      break;
    case FB_OP_DISCARD:
      text += 'D';
      break;
    case FB_OP_SECURE_ERASE:
      text += "DE";
      break;
    case FB_OP_WRITE_ZEROES:
      text += "WZ";
      break;
    case FB_OP_FLUSH:
      text += 'F';
      break;
    default:
      text += 'N';
      break;
  }
  if (opf & kFua) text += 'F';
  if (opf & kReadAhead) text += 'A';
  if (opf & kSync) text += 'S';
  if (opf & kMeta) text += 'M';
  return text;
}

int32_t BlockErrorNumber(uint32_t error) {
  switch (error) {
    case 0:
      return 0;
    case 1:
      return EOPNOTSUPP;
    case 2:
      return ETIMEDOUT;
    case 3:
      return ENOSPC;
    case 4:
      return ENOLINK;
    case 5:
      return EREMOTEIO;
    case 6:
      return EBADE;
    case 7:
      return ENODATA;
    case 8:
      return EILSEQ;
    case 9:
      return ENOMEM;
    default:
      return EIO;
  }
}

}  // namespace fleetblame::agent
