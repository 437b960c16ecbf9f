// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/log_limiter.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace fleetblame {
namespace {

constexpr uint64_t kBurst = 20;
constexpr absl::Duration kWindow = absl::Seconds(30);

// Priorities of sd-daemon(3).
std::string_view JournalPrefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "<7>";
    case LogLevel::kInfo:
      return "<6>";
    case LogLevel::kWarning:
      return "<4>";
    case LogLevel::kError:
      return "<3>";
  }
  return "<3>";
}

std::shared_ptr<spdlog::logger> MakeStderrLogger() {
  auto logger = std::make_shared<spdlog::logger>("fleetblame",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::trace);
  // spdlog reports its own trouble to the same stderr; there is nobody else to tell.
  logger->set_error_handler([](const std::string&) {});
  return logger;
}

class Logger {
 public:
  void Configure(const LogOptions& options) {
    absl::MutexLock lock(&mutex_);
    level_.store(options.level, std::memory_order_relaxed);
    format_ = options.format;
  }

  void SetSink(std::function<void(std::string_view)> sink) {
    absl::MutexLock lock(&mutex_);
    sink_ = std::move(sink);
    limiter_ = NewLimiter();
  }

  bool Enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }

  void Log(LogLevel level, std::string_view message, std::span<const LogField> fields) {
    const absl::Time now = absl::Now();
    absl::MutexLock lock(&mutex_);
    if (limiter_->Allow(message, now)) Write(level, message, fields, now);
    TellSuppressed(now, now);
  }

  void Flush() {
    absl::MutexLock lock(&mutex_);
    TellSuppressed(absl::InfiniteFuture(), absl::Now());
    stderr_->flush();
  }

 private:
  static std::unique_ptr<LogLimiter> NewLimiter() {
    return std::make_unique<LogLimiter>(kBurst, kWindow);
  }

  void TellSuppressed(absl::Time windows_over_by, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& held_back : limiter_->TakeSuppressed(windows_over_by)) {
      const LogField fields[] = {{"repeated", held_back.message}, {"count", held_back.count}};
      Write(LogLevel::kWarning, "repeated messages were held back", fields, now);
    }
  }

  void Write(LogLevel level, std::string_view message, std::span<const LogField> fields,
             absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    LogRecord record{.level = level, .message = message, .fields = fields};
    if (!journal_) record.time = now;
    std::string line = FormatLogLine(format_, record);
    if (sink_) {
      sink_(line);
      return;
    }
    if (journal_) line.insert(0, JournalPrefix(level));
    stderr_->log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
    stderr_->flush();
  }

  const bool journal_ = IsJournalStream(std::getenv("JOURNAL_STREAM"), STDERR_FILENO);
  const std::shared_ptr<spdlog::logger> stderr_ = MakeStderrLogger();
  std::atomic<LogLevel> level_{LogLevel::kInfo};
  absl::Mutex mutex_;
  LogFormat format_ ABSL_GUARDED_BY(mutex_) = LogFormat::kLogfmt;
  std::unique_ptr<LogLimiter> limiter_ ABSL_GUARDED_BY(mutex_) = NewLimiter();
  std::function<void(std::string_view)> sink_ ABSL_GUARDED_BY(mutex_);
};

Logger& TheLogger() {
  // Never destroyed: threads may still log while the process exits.
  static Logger& logger = *new Logger;
  return logger;
}

}  // namespace

void InitLogging(const LogOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  TheLogger().Configure(options);
}

bool LogEnabled(LogLevel level) { return TheLogger().Enabled(level); }

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (LogEnabled(level)) TheLogger().Log(level, message, {fields.begin(), fields.size()});
}

void FlushLog() { TheLogger().Flush(); }

void SetLogSinkForTest(std::function<void(std::string_view line)> sink) {
  TheLogger().SetSink(std::move(sink));
}

bool IsJournalStream(const char* journal_stream, int fd) {
  if (journal_stream == nullptr) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(journal_stream, ':');
  uint64_t device = 0;
  uint64_t inode = 0;
  struct stat st {};
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &device) &&
         absl::SimpleAtoi(parts[1], &inode) && fstat(fd, &st) == 0 && st.st_dev == device &&
         st.st_ino == inode;
}

}  // namespace fleetblame
