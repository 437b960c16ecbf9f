// SPDX-License-Identifier: Apache-2.0
//
// A tracer under test with a world around it: how to make one, and how to make IO that it sees.
// Each test binary of this folder says which subjects it has; the suite is the same for all.
//
// Threading: one thread.
#ifndef TESTS_CONFORMANCE_SUBJECT_H_
#define TESTS_CONFORMANCE_SUBJECT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node-agent/tracer/tracer.h"

namespace fleetblame::testing {

class Subject {
 public:
  virtual ~Subject() = default;

  // A tracer that watches `device` and perhaps others. At rest: no IO is on its way.
  virtual absl::StatusOr<std::unique_ptr<agent::Tracer>> Create() = 0;

  // Reads and writes the device by files, and returns when all of it is finished. A replay does
  // nothing here: its work has been done.
  virtual absl::Status Work() = 0;

  // What the kernel has counted of the device, as text: as long as it stays the same, the device is
  // at rest. A replay is always.
  virtual std::string Counted() const { return ""; }

  // Name or MAJ:MIN of a whole disk that has IO, as a DeviceSelection takes it.
  virtual std::string device() const = 0;

  // Whether the kernel is live: then windows follow the clock, and go on for ever.
  virtual bool live() const = 0;

  // Whether the trace, on from the beginning, holds every IO: a recording holds what its reader
  // polled, which need not be all.
  virtual bool traces_every_io() const = 0;
};

struct SubjectSpec {
  std::string name;
  // UNAVAILABLE with a reason when it cannot be had here: the tests skip.
  std::function<absl::StatusOr<std::unique_ptr<Subject>>()> create;
};

// Defined by each test binary.
std::vector<SubjectSpec> Subjects();

}  // namespace fleetblame::testing

#endif  // TESTS_CONFORMANCE_SUBJECT_H_
