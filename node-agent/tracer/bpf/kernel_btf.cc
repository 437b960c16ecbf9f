// SPDX-License-Identifier: Apache-2.0
#include "node-agent/tracer/bpf/kernel_btf.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fleetblame::agent {
namespace {

constexpr char kVmlinux[] = "/sys/kernel/btf/vmlinux";
// Filesystems are often modules, and their tracepoints are described there. Tracepoints begin with
// the name of their module.
constexpr const char* kModules[] = {"ext4", "jbd2", "xfs", "btrfs"};

std::string NameOfPointee(const btf* object, uint32_t id) {
  for (int depth = 0; depth < 8; ++depth) {
    const btf_type* type = btf__type_by_id(object, id);
    if (type == nullptr) return "";
    switch (btf_kind(type)) {
      case BTF_KIND_PTR:
      case BTF_KIND_CONST:
      case BTF_KIND_VOLATILE:
      case BTF_KIND_TYPEDEF:
        id = type->type;
        continue;
      case BTF_KIND_STRUCT:
      case BTF_KIND_UNION:
      case BTF_KIND_FWD:
        return btf__name_by_offset(object, type->name_off);
      default:
        return "";
    }
  }
  return "";
}

// Types behind the arguments of a tracepoint that `object` describes.
std::optional<std::vector<std::string>> ArgumentsIn(const btf* object,
                                                    const std::string& tracepoint) {
  const std::string name = absl::StrCat("btf_trace_", tracepoint);
  int id = btf__find_by_name_kind(object, name.c_str(), BTF_KIND_TYPEDEF);
  if (id <= 0) return std::nullopt;
  const btf_type* type = btf__type_by_id(object, id);
  type = type == nullptr ? nullptr : btf__type_by_id(object, type->type);  // pointer
  if (type == nullptr || btf_kind(type) != BTF_KIND_PTR) return std::nullopt;
  type = btf__type_by_id(object, type->type);
  if (type == nullptr || btf_kind(type) != BTF_KIND_FUNC_PROTO) return std::nullopt;
  std::vector<std::string> arguments;
  const btf_param* params = btf_params(type);
  // The first one is the probe's private data.
  for (int i = 1; i < btf_vlen(type); ++i) {
    arguments.push_back(NameOfPointee(object, params[i].type));
  }
  return arguments;
}

}  // namespace

void KernelBtf::Deleter::operator()(btf* object) const { btf__free(object); }

absl::StatusOr<KernelBtf> KernelBtf::Load() {
  KernelBtf result;
  btf* vmlinux = btf__parse(kVmlinux, nullptr);
  if (vmlinux == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the kernel gives no type information (", kVmlinux, ": ", std::strerror(errno),
        "); use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions do since 2020"));
  }
  result.objects_.emplace_back(vmlinux);
  std::error_code error;
  for (const char* module : kModules) {
    std::string path = absl::StrCat("/sys/kernel/btf/", module);
    if (!std::filesystem::exists(path, error)) continue;
    btf* object = btf__parse_split(path.c_str(), vmlinux);
    if (object != nullptr) result.objects_.emplace_back(object);
  }
  return result;
}

std::optional<std::vector<std::string>> KernelBtf::TracepointArguments(
    const std::string& tracepoint) const {
  for (const auto& object : objects_) {
    if (auto arguments = ArgumentsIn(object.get(), tracepoint)) return arguments;
  }
  return std::nullopt;
}

std::optional<std::vector<std::string>> KernelBtf::TracepointArgumentsAnywhere(
    const std::string& tracepoint) const {
  if (auto arguments = TracepointArguments(tracepoint)) return arguments;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/kernel/btf", error)) {
    if (entry.path() == kVmlinux) continue;
    std::unique_ptr<btf, Deleter> object(
        btf__parse_split(entry.path().c_str(), objects_.front().get()));
    if (object == nullptr) continue;
    if (auto arguments = ArgumentsIn(object.get(), tracepoint)) return arguments;
  }
  return std::nullopt;
}

std::string KernelBtf::ModuleWithoutTypes(const std::string& tracepoint) const {
  std::error_code error;
  for (const char* module : kModules) {
    if (!absl::StartsWith(tracepoint, absl::StrCat(module, "_"))) continue;
    // A part of the kernel itself has no such state.
    if (!std::filesystem::exists(absl::StrCat("/sys/module/", module, "/initstate"), error)) {
      return "";
    }
    return std::filesystem::exists(absl::StrCat("/sys/kernel/btf/", module), error) ? "" : module;
  }
  return "";
}

bool KernelBtf::HasFunction(const std::string& name) const {
  return btf__find_by_name_kind(objects_.front().get(), name.c_str(), BTF_KIND_FUNC) > 0;
}

bool KernelBtf::TracepointsArePreemptible() const {
  // They are, where they are guarded by this kind of SRCU instead.
  return btf__find_by_name_kind(objects_.front().get(), "class_srcu_fast_notrace_t",
                                BTF_KIND_TYPEDEF) > 0;
}

std::optional<int64_t> KernelBtf::Enumerator(const std::string& name) const {
  for (const auto& object : objects_) {
    uint32_t count = btf__type_cnt(object.get());
    for (uint32_t id = 1; id < count; ++id) {
      const btf_type* type = btf__type_by_id(object.get(), id);
      if (type == nullptr || btf_kind(type) != BTF_KIND_ENUM) continue;
      const struct btf_enum* values = btf_enum(type);
      for (int i = 0; i < btf_vlen(type); ++i) {
        if (name == btf__name_by_offset(object.get(), values[i].name_off)) return values[i].val;
      }
    }
    break;  // vmlinux alone: modules number their types after it
  }
  return std::nullopt;
}

std::map<int64_t, std::string> KernelBtf::EnumValues(const std::string& enum_name) const {
  std::map<int64_t, std::string> result;
  const btf* object = objects_.front().get();
  int id = btf__find_by_name_kind(object, enum_name.c_str(), BTF_KIND_ENUM);
  if (id <= 0) return result;
  const btf_type* type = btf__type_by_id(object, id);
  const struct btf_enum* values = btf_enum(type);
  for (int i = 0; i < btf_vlen(type); ++i) {
    result[values[i].val] = btf__name_by_offset(object, values[i].name_off);
  }
  return result;
}

}  // namespace fleetblame::agent
