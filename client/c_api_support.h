// The base of the C ABI's functions: outcomes and error texts, the sessions of the process and of ranks that are
// threads, and the only place that catches exceptions.
#ifndef RONDA_CLIENT_C_API_SUPPORT_H_
#define RONDA_CLIENT_C_API_SUPPORT_H_

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/operation.h"
#include "client/ronda.h"
#include "client/session.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// The part of the runtime that answered. The same absl code has a different meaning to the caller in each.
enum class Answer {
  kStartup,     // reading the configuration, finding the other ranks
  kSubmission,  // Runtime::Submit
  kCompletion,  // Handle::Wait, Runtime::Shutdown
};

// The C ABI's code for `code`. Pure.
ronda_status ToRondaStatus(absl::StatusCode code, Answer from);

// How a call ended, in the C ABI's terms.
struct Outcome {
  ronda_status code = RONDA_OK;
  std::string text;  // empty if the code is RONDA_OK

  bool ok() const { return code == RONDA_OK; }
};

// The Runtime behind the C ABI: none, being started, running, or being shut down, in a circle.
//
// Thread-safe. Start and Stop block outside the lock, so that other threads get an answer meanwhile: that there is no
// runtime.
class DefaultRuntime {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<Session>>()>;

  // Makes the result of `factory` the session of the process.
  // Errors: ALREADY_INITIALIZED; the factory's.
  Outcome Start(const Factory& factory);

  // Shuts the runtime down, and drops it even if that fails. Results of Get stay alive, but accept no tensors.
  // Errors: NOT_INITIALIZED; the job's failure.
  Outcome Stop();

  // Null while there is none.
  std::shared_ptr<Session> Get() const;

  // Whether there is one, or one is being started or shut down. Takes no lock: for a child of fork(), in which another
  // thread's lock stays locked.
  bool Exists() const { return exists_.load(std::memory_order_acquire); }

 private:
  enum class State { kNone, kStarting, kRunning, kStopping };

  static const char* DescribeConflict(State state);
  void SetStateLocked(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kNone;
  std::atomic<bool> exists_{false};                        // follows state_
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);  // null unless kRunning
};

// The error of calls before ronda_init() or after ronda_shutdown().
Outcome NotInitialized();

// The ranks that are threads of this process, by number; and the rank for which each thread acts.
//
// Thread-safe.
class RankContexts {
 public:
  // The rank for which a thread acts. The pointer is weak: a thread that outlives its rank finds it expired.
  struct Role {
    ronda_context id = 0;  // 0: the process' own
    std::weak_ptr<Session> session;
  };

  // Makes the calling thread act for `session`, and lets other threads do so too, until it is destroyed. The destructor
  // waits until no other thread holds the session. At most one a thread.
  class Scope {
   public:
    Scope(RankContexts* contexts, Runtime& runtime, WaitLimits limits);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RankContexts* const contexts_;
    std::shared_ptr<Session> session_;
    Mutex mu_;
    CondVar left_;
    bool is_left_ ABSL_GUARDED_BY(mu_) = false;  // by all threads
    ronda_context id_;
  };

  // Makes the calling thread act for `role`, which may be another thread's, until it is destroyed.
  class Visit {
   public:
    explicit Visit(Role role);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Role before_;
  };

  static Role CurrentRole();

  // Makes the calling thread act for the rank of this number; 0: for the process' own.
  // False if there is none (any more).
  bool MakeCurrent(ronda_context id);

  // The rank that the calling thread acts for; 0: the process' own.
  static ronda_context Current();

  // The calling thread acts for no rank any more.
  static void Leave();

  // The session of that rank; null if its scope has ended.
  // REQUIRES: Current() is not 0.
  static std::shared_ptr<Session> CurrentSession();

 private:
  mutable Mutex mu_;
  ronda_context next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<ronda_context, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

// The state of the C ABI: the only mutable state outside of objects.

struct Globals {
  // Those of the process that has forked this one, which stay as they are; null if this process was not forked since
  // its first call. They may hold locks of threads that are not in this process.
  const Globals* parents = nullptr;
  DefaultRuntime runtime;
  RankContexts ranks;
  HandleTable handles;
  std::once_flag unknown_variables_told;
};

// Never destroyed: threads of the trainer may still use it when the process exits. A child of fork() begins with a new
// one, and so finds itself uninitialised: the job's threads are not in the child, and its end is not the rank's.
Globals& globals();

// The session of the rank that the calling thread acts for; null if there is none (any more).
std::shared_ptr<Session> CurrentSession();

// The memory of this thread's submissions, kept from one call to the next. A call uses it until it returns, and leaves
// no handles behind.
struct Scratch {
  Submission submission;
  std::vector<Submission> group;
  std::vector<std::shared_ptr<Handle>> handles;
};
Scratch& scratch();

// The result of ronda_last_error() in this thread.
const char* LastErrorText();
ronda_status FailWith(Outcome outcome);
ronda_status FailWithLiteral(ronda_status code, const char* text) noexcept;
ronda_status FailWithException(const std::exception& error) noexcept;

Outcome Failure(const absl::Status& status, Answer from);
Outcome NullArgument(absl::string_view function, absl::string_view argument);

// The moment of MonotonicTime() that is `timeout_s` seconds away; infinite if that is negative.
// Errors: INVALID_ARGUMENT if it is not a number.
absl::StatusOr<absl::Duration> DeadlineOf(absl::string_view function, double timeout_s);
Outcome UnknownHandle(absl::string_view function, ronda_handle handle);

// Runs the body of a C function, which returns an Outcome. This is the only place that catches exceptions: none leaves
// it.
template <typename Body>
ronda_status Call(const Body& body) noexcept {
  // A thread's first look at its last error takes memory: later, to report that there is none, would be too late.
  LastErrorText();
  try {
    Outcome outcome = body();
    return outcome.ok() ? RONDA_OK : FailWith(std::move(outcome));
  } catch (const std::bad_alloc&) {
    return FailWithLiteral(RONDA_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return FailWithException(error);
  } catch (...) {
    return FailWithLiteral(RONDA_ERROR_INTERNAL, "an exception of an unknown type was thrown");
  }
}

// The same for a body that needs the session.
template <typename Body>
ronda_status CallWithSession(const Body& body) noexcept {
  return Call([&]() -> Outcome {
    const std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return NotInitialized();
    return body(*session);
  });
}

// The same for one that needs an operation.
template <typename Body>
ronda_status CallWithOperation(const char* function, ronda_handle handle, const Body& body) noexcept {
  return Call([&]() -> Outcome {
    const Operation operation = globals().handles.Find(handle);
    if (!operation.exists()) return UnknownHandle(function, handle);
    return body(operation);
  });
}

}  // namespace ronda

#endif  // RONDA_CLIENT_C_API_SUPPORT_H_
