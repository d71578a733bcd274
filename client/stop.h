// ronda_should_stop() and ronda_elastic_poll(): the signal that asks a process to end, and the ranks' agreement about
// what they were asked.
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

namespace ronda {

// SIGTERM as a question to the program instead of its end: schedulers send it some time before they kill a job whose
// machine they take back. A signal is remembered for as long as the process lives.
//
// Thread-safe.
class StopSignal {
 public:
  StopSignal() = delete;

  // From now on a SIGTERM is noted, and passed on to the handler that the program has installed before, if any. A
  // handler that is installed later takes this one's place. Does nothing the second time. In children of fork() a
  // SIGTERM does what it did before: it is meant to end them. A child may call it anew.
  static void Arm();

  // Whether one has arrived.
  static bool received();
};

// One rank's calls of ronda_should_stop(), or of ronda_elastic_poll(), which have the same answers on every rank.
//
// Each call submits a byte, of which the ranks take the maximum: whether this rank has been asked to stop. Its answer
// is the result of the previous call's submission. Where ranks compute between their calls, that operation is complete
// by then, and no rank waits. At most one tensor is in flight, so one name serves all calls, and the tensor is part of
// every step that a locked schedule repeats. A rank that knows of a request keeps reporting it, also if another rank
// got the signal.
//
// Ranks that have joined make no calls while the others do. When all have joined, the submissions of the last calls
// before are no answer on any rank: the ranks begin anew.
//
// Thread-safe, for one call at a time. The operation in flight writes into this object, which must live until it is
// complete.
class StopAgreement {
 public:
  enum class Request : uint8_t { kNone = 0, kStop = 1 };  // as bytes travel

  // The knowledge of a call of this rank.
  struct Knowledge {
    Request request = Request::kNone;
    uint64_t joins = 0;  // how often all ranks have joined
  };

  // Hands a submission to the runtime.
  using SubmitFn = absl::FunctionRef<absl::StatusOr<std::shared_ptr<Handle>>(const Submission&)>;

  // `function` is the one that is called, "should_stop": the agreements of different functions do not meet.
  explicit StopAgreement(absl::string_view function = "should_stop");

  // This rank's next call: waits for the previous call's operation, submits this rank's knowledge, and answers.
  // Errors: ALREADY_EXISTS if another thread is in a call; those of the operation and of `submit`. After an error the
  // next call is like the first: it answers that no rank is to stop.
  absl::StatusOr<Request> Call(const Knowledge& knowledge, SubmitFn submit);

 private:
  // The right to make a call, which one thread at a time has.
  class Turn;

  // The result of the previous call's operation.
  absl::StatusOr<Request> Answer(uint64_t joins);

  std::atomic<bool> in_call_{false};
  // All that follows belongs to the thread that is in a call; in_call_ hands it over, with acquire and release.
  std::shared_ptr<Handle> pending_;  // the call before's; null: there was none
  uint64_t pending_joins_ = 0;       // how often all ranks had joined then
  Request known_ = Request::kNone;   // to this rank
  Submission submission_;
  Request traveling_ = Request::kNone;  // the tensor, which is reduced in place
};

}  // namespace ronda

#endif  // RONDA_CLIENT_STOP_H_
