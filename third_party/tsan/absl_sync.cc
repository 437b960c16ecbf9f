// SPDX-License-Identifier: Apache-2.0
//
// Tells ThreadSanitizer about Abseil's locks. Debian's libabsl is built
// without instrumentation and its mutex parks threads with futexes of its own,
// so the sanitizer would see no lock at all and report every guarded access.
//
// The functions here stand in the executable, so the dynamic linker prefers
// them to the library's, for callers in gRPC's libraries too (its locks are
// Abseil's). Each says what it does to the sanitizer and calls the real one.
// Linked into --config=tsan builds only.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <type_traits>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

using absl::BlockingCounter;
using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Notification;
using absl::Time;

template <typename F>
F* Real(const char* symbol) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, symbol));
}

// Most of our mutexes are members without a registered construction.
constexpr unsigned kWrite = __tsan_mutex_linker_init;
constexpr unsigned kRead = __tsan_mutex_linker_init | __tsan_mutex_read_lock;

// Abseil evaluates the conditions of waiting threads in whichever thread holds
// the lock, also halfway through Unlock. Reads by a condition are therefore
// guarded although the sanitizer cannot see it.
class ConditionReads {
 public:
  ConditionReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~ConditionReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// The library's functions call one another through the same symbols; only the
// outermost call on a thread tells the sanitizer.
thread_local bool inside = false;

class Outermost {
 public:
  Outermost() { inside = true; }
  ~Outermost() { inside = false; }

 private:
  ConditionReads guarded_;
};

template <typename Call>
auto Acquire(Mutex* mutex, unsigned flags, Call call) {
  if (inside) return call();
  Outermost scope;
  __tsan_mutex_pre_lock(mutex, flags);
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    __tsan_mutex_post_lock(mutex, flags, 0);
  } else {
    auto result = call();
    __tsan_mutex_post_lock(mutex, flags, 0);
    return result;
  }
}

template <typename Call>
bool TryAcquire(Mutex* mutex, unsigned flags, Call call) {
  if (inside) return call();
  Outermost scope;
  flags |= __tsan_mutex_try_lock;
  __tsan_mutex_pre_lock(mutex, flags);
  const bool taken = call();
  __tsan_mutex_post_lock(mutex, flags | (taken ? 0 : __tsan_mutex_try_lock_failed), 0);
  return taken;
}

template <typename Call>
void Release(Mutex* mutex, unsigned flags, Call call) {
  if (inside) return call();
  Outermost scope;
  __tsan_mutex_pre_unlock(mutex, flags);
  call();
  __tsan_mutex_post_unlock(mutex, flags);
}

// Waiting lets go of the lock and takes it again.
template <typename Call>
auto Wait(Mutex* mutex, Call call) {
  if (inside) return call();
  __tsan_mutex_pre_unlock(mutex, kWrite);
  __tsan_mutex_post_unlock(mutex, kWrite);
  return Acquire(mutex, kWrite, call);
}

// Where Notification keeps its atomic flag, which its inline functions read.
void* Flag(const Notification* notification) {
  return reinterpret_cast<char*>(const_cast<Notification*>(notification)) + sizeof(Mutex);
}

}  // namespace

// The names are those that the compiler gives to the member functions; __func__
// is the same name again.
extern "C" {

void _ZN4absl7debian35Mutex4LockEv(Mutex* m) {
  static const auto real = Real<void(Mutex*)>(__func__);
  Acquire(m, kWrite, [&] { real(m); });
}
void _ZN4absl7debian35Mutex10ReaderLockEv(Mutex* m) {
  static const auto real = Real<void(Mutex*)>(__func__);
  Acquire(m, kRead, [&] { real(m); });
}
bool _ZN4absl7debian35Mutex7TryLockEv(Mutex* m) {
  static const auto real = Real<bool(Mutex*)>(__func__);
  return TryAcquire(m, kWrite, [&] { return real(m); });
}
bool _ZN4absl7debian35Mutex13ReaderTryLockEv(Mutex* m) {
  static const auto real = Real<bool(Mutex*)>(__func__);
  return TryAcquire(m, kRead, [&] { return real(m); });
}
void _ZN4absl7debian35Mutex6UnlockEv(Mutex* m) {
  static const auto real = Real<void(Mutex*)>(__func__);
  Release(m, kWrite, [&] { real(m); });
}
void _ZN4absl7debian35Mutex12ReaderUnlockEv(Mutex* m) {
  static const auto real = Real<void(Mutex*)>(__func__);
  Release(m, kRead, [&] { real(m); });
}
void _ZN4absl7debian35MutexD1Ev(Mutex* m) {
  static const auto real = Real<void(Mutex*)>(__func__);
  __tsan_mutex_destroy(m, kWrite);
  real(m);
}

void _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE(Mutex* m, const Condition& c) {
  static const auto real = Real<void(Mutex*, const Condition&)>(__func__);
  Acquire(m, kWrite, [&] { real(m, c); });
}
bool _ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE(Mutex* m,
                                                                                 const Condition& c,
                                                                                 Duration d) {
  static const auto real = Real<bool(Mutex*, const Condition&, Duration)>(__func__);
  return Acquire(m, kWrite, [&] { return real(m, c, d); });
}
bool _ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE(Mutex* m,
                                                                              const Condition& c,
                                                                              Time t) {
  static const auto real = Real<bool(Mutex*, const Condition&, Time)>(__func__);
  return Acquire(m, kWrite, [&] { return real(m, c, t); });
}
void _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(Mutex* m, const Condition& c) {
  static const auto real = Real<void(Mutex*, const Condition&)>(__func__);
  Wait(m, [&] { real(m, c); });
}
bool _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(Mutex* m,
                                                                              const Condition& c,
                                                                              Duration d) {
  static const auto real = Real<bool(Mutex*, const Condition&, Duration)>(__func__);
  return Wait(m, [&] { return real(m, c, d); });
}
bool _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(Mutex* m,
                                                                           const Condition& c,
                                                                           Time t) {
  static const auto real = Real<bool(Mutex*, const Condition&, Time)>(__func__);
  return Wait(m, [&] { return real(m, c, t); });
}

void _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE(CondVar* v, Mutex* m) {
  static const auto real = Real<void(CondVar*, Mutex*)>(__func__);
  Wait(m, [&] { real(v, m); });
}
bool _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE(CondVar* v, Mutex* m,
                                                                          Duration d) {
  static const auto real = Real<bool(CondVar*, Mutex*, Duration)>(__func__);
  return Wait(m, [&] { return real(v, m, d); });
}
bool _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE(CondVar* v, Mutex* m,
                                                                       Time t) {
  static const auto real = Real<bool(CondVar*, Mutex*, Time)>(__func__);
  return Wait(m, [&] { return real(v, m, t); });
}

void _ZN4absl7debian312Notification6NotifyEv(Notification* n) {
  static const auto real = Real<void(Notification*)>(__func__);
  __tsan_release(Flag(n));
  real(n);
}
void _ZNK4absl7debian312Notification19WaitForNotificationEv(const Notification* n) {
  static const auto real = Real<void(const Notification*)>(__func__);
  real(n);
  __tsan_acquire(Flag(n));
}
bool _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE(
    const Notification* n, Duration d) {
  static const auto real = Real<bool(const Notification*, Duration)>(__func__);
  const bool notified = real(n, d);
  if (notified) __tsan_acquire(Flag(n));
  return notified;
}
bool _ZN4absl7debian315BlockingCounter14DecrementCountEv(BlockingCounter* b) {
  static const auto real = Real<bool(BlockingCounter*)>(__func__);
  __tsan_release(b);
  return real(b);
}
void _ZN4absl7debian315BlockingCounter4WaitEv(BlockingCounter* b) {
  static const auto real = Real<void(BlockingCounter*)>(__func__);
  real(b);
  __tsan_acquire(b);
}

}  // extern "C"
