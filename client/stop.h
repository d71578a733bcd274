// SPDX-License-Identifier: Apache-2.0

// Implements ronda_should_stop() and ronda_elastic_poll(): records the signal that asks a process to stop, and lets the
// ranks agree on such requests.
#ifndef RONDA_CLIENT_STOP_H_
#define RONDA_CLIENT_STOP_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"
#include "runtime/step/flags.h"

namespace ronda {

// Turns SIGTERM into a request to stop that the program can query, instead of letting it end the process. Schedulers
// send SIGTERM some time before they kill a job to reclaim its machine. A signal is remembered until the process exits,
// so a later job of the process hears of it, too.
//
// Thread-safe.
class StopSignal {
 public:
  StopSignal() = delete;

  // Installs a handler that records SIGTERM, and passes it on to the handler that was installed before, if any. A
  // handler that is installed later replaces Ronda's handler for good. Further calls of Arm() do nothing. In a forked
  // child, SIGTERM has the same effect as before Arm(), because the signal is meant to end the child. The child may
  // call Arm() itself.
  static void Arm();

  // Gives SIGTERM the effect that it had before Arm(). Must be called when the process leaves its job, because then
  // nothing queries received() any more. Does nothing if the process has not called Arm().
  // Returns true if a signal has arrived that would have ended the process, and SetTold() has not been called. The
  // caller should then raise the signal again.
  static bool Disarm();

  // Records that the program has been told to stop.
  static void SetTold();

  // Returns whether a SIGTERM has arrived.
  static bool received();
};

// Implements this rank's calls of ronda_should_stop() or ronda_elastic_poll(). The n-th call returns the same answer on
// every rank.
//
// Each call submits a flag (runtime/step/flags.h) that says whether this rank has been asked to stop. It returns the
// result of the previous call's flag. If the ranks compute, or run collectives of a locked schedule, between two calls,
// that flag is complete by the second call, and no rank waits. At most one flag is in flight, so all calls use the same
// name. A rank that knows of a request repeats it in every later call, even if another rank received the signal.
//
// Ranks that have joined make no calls, while the other ranks continue to call. Once all ranks have joined, every rank
// ignores the flag of its last call before the join, and treats its next call as a first call.
//
// Several threads may call, but only one at a time. The operation in flight writes into this object, which must
// therefore outlive it.
class StopAgreement {
 public:
  enum class Request : uint8_t { kNone = 0, kStop = 1 };  // with the values that the ranks send

  // What this rank knows at the time of a call.
  struct Knowledge {
    Request request = Request::kNone;
    uint64_t joins = 0;  // how many times all ranks have joined
  };

  // Hands a submission to the runtime.
  using SubmitFn = absl::FunctionRef<absl::StatusOr<std::shared_ptr<Handle>>(const Submission&)>;

  // `flag`, one of kFlagNames, identifies the function that uses this agreement. Agreements of different functions are
  // independent.
  explicit StopAgreement(absl::string_view flag = kStopFlag);

  // Makes this rank's next call. Waits for the operation of the previous call, submits what this rank knows, and
  // returns the answer.
  // Errors: ALREADY_EXISTS if another thread is in a call; the errors of the operation and of `submit`. After an error,
  // the next call is treated as a first call, and answers that no rank should stop.
  absl::StatusOr<Request> Call(const Knowledge& knowledge, SubmitFn submit);

 private:
  // The right to make a call, held by one thread at a time.
  class Turn;

  // Returns the result of the previous call's operation.
  absl::StatusOr<Request> Answer(uint64_t joins);

  std::atomic<bool> in_call_{false};
  // The members below are used only by the thread that is in a call. in_call_ passes them from thread to thread with
  // acquire-release ordering.
  std::shared_ptr<Handle> pending_;  // of the previous call; null: none
  uint64_t pending_joins_ = 0;       // how many times all ranks had joined at the previous call
  Request known_ = Request::kNone;   // to this rank
  Submission submission_;
  Request traveling_ = Request::kNone;  // the tensor, which is reduced in place
};

}  // namespace ronda

#endif  // RONDA_CLIENT_STOP_H_
