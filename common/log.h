// SPDX-License-Identifier: Apache-2.0
//
// The log of the daemons: one structured line an event, to standard error.
//
//   LogWarning("aggregator is away", {{"address", address}, {"retry_ns", ns}});
//
// The message is a constant sentence and what varies goes into fields, so that
// lines can be grouped, and so that repetitions can be found: of one message
// at most 20 lines in 30 s are written, then one line that says how many more
// there were. Under systemd each line carries the priority prefix that
// journald reads, and no time stamp of its own.
//
// Every function is safe from any thread, and none of them fails: a line that
// cannot be written (closed pipe, full disk) is dropped. Not for signal
// handlers.
#ifndef COMMON_LOG_H_
#define COMMON_LOG_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "common/log_format.h"

namespace fleetblame {

struct LogOptions {
  LogLevel level = LogLevel::kInfo;  // lines below it are not written
  LogFormat format = LogFormat::kLogfmt;
};

// Applies to all later lines. Also makes the process ignore SIGPIPE: a log
// reader that goes away must not take a daemon with it. Before this call lines
// are written with the default options.
void InitLogging(const LogOptions& options);

// For lines whose fields are costly to make.
bool LogEnabled(LogLevel level);

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

inline void LogDebug(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// Tells what repetitions were held back. Call before the process ends.
void FlushLog();

// For tests: lines go to `sink` (without a newline) instead of standard error
// until it is called with nullptr. `sink` must not log.
void SetLogSinkForTest(std::function<void(std::string_view line)> sink);

// Whether standard error is the journal that systemd connected: JOURNAL_STREAM
// ("device:inode", as in systemd.exec(5)) names the file behind `fd`.
bool IsJournalStream(const char* journal_stream, int fd);

}  // namespace fleetblame

#endif  // COMMON_LOG_H_
