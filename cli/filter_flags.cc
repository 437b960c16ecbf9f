// SPDX-License-Identifier: Apache-2.0
#include "cli/filter_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/names.h"

namespace fleetblame::cli {
namespace {

absl::Status InFlag(const char* flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

}  // namespace

void AddFilterFlags(CLI::App* command, FilterFlags* flags) {
  command
      ->add_option("--by", flags->by,
                   "group by any list of host, comm, cgroup, device, partition, top-device, op, "
                   "intent, reason, file, confidence")
      ->check([](const std::string& list) -> std::string {
        const bool empty = list.find_first_not_of(" ,") == std::string::npos;
        return empty ? "the list is empty" : "";
      })
      ->type_name("LIST");
  CLI::Option* issuer = command->add_flag("--issuer", flags->issuer,
                                          "comm, cgroup and intent of who submitted the IO");
  command
      ->add_flag("--dirtier", flags->dirtier,
                 "comm, cgroup and intent of who made it necessary [default]")
      ->excludes(issuer);
  command
      ->add_option("--order", flags->order,
                   "bytes, written, read, ios, wait or io [default: bytes]")
      ->type_name("WHAT");
  auto list = [&](const char* name, std::vector<std::string>* target, const char* help) {
    command->add_option(name, *target, help)
        ->delimiter(',')
        ->type_name("LIST")
        ->allow_extra_args(false);
  };
  list("--comm", &flags->comms, "only these programs");
  list("--device", &flags->devices,
       "only these devices: kernel name, partition, dm or md name, or persistent id");
  command
      ->add_option("--layer", flags->layer,
                   "of stacked devices (LVM, dm-crypt, md): top, where IO enters [default]; leaf, "
                   "the disks; any, each device that it passes [default with --device]")
      ->type_name("LAYER");
  list("--op", &flags->operations, "only read, write, discard, write-zeroes, flush, ...");
  list("--intent", &flags->intents, "only these intents (hex id or unique prefix)");
  list("--reason", &flags->reasons, "only these writeback reasons (sync, background, ...)");
  list("--confidence", &flags->confidences,
       "only exact, inode, journal, cgroup, issuer, lost, estimated");
  command->add_option("--cgroup", flags->cgroup, "only cgroup paths that match")
      ->type_name("REGEX");
  command->add_option("--file", flags->file, "only file paths that match")->type_name("REGEX");
}

absl::Status ParseBy(const std::string& list, google::protobuf::RepeatedField<int>* by) {
  for (absl::string_view word : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    auto dimension = ParseDimension(std::string(absl::StripAsciiWhitespace(word)));
    if (!dimension.ok()) return InFlag("--by", dimension.status());
    for (int known : *by) {
      if (known == *dimension) {
        return absl::InvalidArgumentError(absl::StrCat("--by: '", word, "' is given twice"));
      }
    }
    by->Add(*dimension);
  }
  return absl::OkStatus();
}

absl::Status ParseFilter(const FilterFlags& flags, v1::Filter* filter) {
  for (const std::string& comm : flags.comms) filter->add_comms(comm);
  for (const std::string& device : flags.devices) filter->add_devices(device);
  for (const std::string& word : flags.operations) {
    auto operation = ParseOperation(word);
    if (!operation.ok()) return InFlag("--op", operation.status());
    filter->add_operations(*operation);
  }
  for (const std::string& intent : flags.intents) filter->add_intents(intent);
  for (const std::string& reason : flags.reasons) filter->add_reasons(reason);
  for (const std::string& word : flags.confidences) {
    auto confidence = ParseConfidence(word);
    if (!confidence.ok()) return InFlag("--confidence", confidence.status());
    filter->add_confidences(*confidence);
  }
  if (!flags.layer.empty()) {
    auto layer = ParseLayer(flags.layer);
    if (!layer.ok()) return InFlag("--layer", layer.status());
    filter->set_layer(*layer);
  }
  filter->set_cgroup_regex(flags.cgroup);
  filter->set_file_regex(flags.file);
  return absl::OkStatus();
}

absl::StatusOr<v1::OrderBy> ParseOrderFlag(const FilterFlags& flags) {
  auto order = ParseOrder(flags.order);
  if (!order.ok()) return InFlag("--order", order.status());
  return order;
}

}  // namespace fleetblame::cli
