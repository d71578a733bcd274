// SPDX-License-Identifier: Apache-2.0

// ronda_should_stop() and ronda_elastic_poll(): the signal that asks a process to end, and the ranks' agreement on such
// requests.
#ifndef RONDA_CLIENT_STOP_H_
#define RONDA_CLIENT_STOP_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"
#include "runtime/step/flags.h"

namespace ronda {

// Treats SIGTERM as a request to the program, instead of ending the program, because schedulers send SIGTERM some time
// before they kill a job whose machine they take back. A signal is remembered until the process ends.
//
// Thread-safe.
class StopSignal {
 public:
  StopSignal() = delete;

  // Installs a handler that records a SIGTERM, and passes it on to the handler that the program had installed before,
  // if any. A handler that is installed later replaces this one. The second call does nothing. In children of fork() a
  // SIGTERM has its earlier effect, because it is meant to end the child. A child may call Arm() again.
  static void Arm();

  // Whether a SIGTERM has arrived.
  static bool received();
};

// A rank's calls of ronda_should_stop(), or of ronda_elastic_poll(). They have the same answers on every rank.
//
// Each call submits a flag (runtime/step/flags.h) that says whether this rank has been asked to stop. The answer of a
// call is the result of the previous call's flag. If ranks compute between their calls, or take part in collectives of
// a locked schedule, the previous call's flag is complete by then, and no rank waits. At most one flag is in flight, so
// all calls use the same name. A rank that knows of a request keeps reporting it, even if another rank got the signal.
//
// Ranks that have joined make no calls while the others do. When all ranks have joined, every rank ignores the flag of
// its last call before the join, and the ranks start again.
//
// Thread-safe, for one call at a time. The operation in flight writes into this object, which must live until it is
// complete.
class StopAgreement {
 public:
  enum class Request : uint8_t { kNone = 0, kStop = 1 };  // with the values that travel

  // This rank's knowledge at the time of a call.
  struct Knowledge {
    Request request = Request::kNone;
    uint64_t joins = 0;  // how often all ranks have joined
  };

  // Hands a submission to the runtime.
  using SubmitFn = absl::FunctionRef<absl::StatusOr<std::shared_ptr<Handle>>(const Submission&)>;

  // `flag` is the flag of the called function, one of kFlagNames. The agreements of different functions are separate.
  explicit StopAgreement(absl::string_view flag = kStopFlag);

  // This rank's next call: waits for the previous call's operation, submits this rank's knowledge, and answers.
  // Errors: ALREADY_EXISTS if another thread is in a call; the errors of the operation and of `submit`. After an error
  // the next call is like the first: its answer is that no rank should stop.
  absl::StatusOr<Request> Call(const Knowledge& knowledge, SubmitFn submit);

 private:
  // The right to make a call. One thread at a time has it.
  class Turn;

  // The result of the previous call's operation.
  absl::StatusOr<Request> Answer(uint64_t joins);

  std::atomic<bool> in_call_{false};
  // The members below belong to the thread that is in a call; in_call_ hands them over, with acquire and release.
  std::shared_ptr<Handle> pending_;  // of the previous call; null: none
  uint64_t pending_joins_ = 0;       // how often all ranks had joined in the previous call
  Request known_ = Request::kNone;   // to this rank
  Submission submission_;
  Request traveling_ = Request::kNone;  // the tensor, which is reduced in place
};

}  // namespace ronda

#endif  // RONDA_CLIENT_STOP_H_
