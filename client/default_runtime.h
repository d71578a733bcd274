#ifndef RONDA_CLIENT_DEFAULT_RUNTIME_H_
#define RONDA_CLIENT_DEFAULT_RUNTIME_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ronda.h"
#include "client/session.h"
#include "runtime/base/mutex.h"

namespace ronda {

// How a call ended, in the C ABI's terms.
struct Outcome {
  ronda_status code = RONDA_OK;
  std::string text;  // empty if the code is RONDA_OK

  bool ok() const { return code == RONDA_OK; }
};

// The Runtime behind the C ABI: none, being started, running, or being shut down, in a circle.
//
// Thread-safe. Start and Stop block outside the lock, so that other threads get an answer meanwhile: while a runtime
// starts or stops there is none.
class DefaultRuntime {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<Session>>()>;

  // Makes what `factory` returns the process' session.
  // Errors: ALREADY_INITIALIZED; the factory's.
  Outcome Start(const Factory& factory);

  // Shuts the runtime down, and forgets it even if that fails. Callers of Get keep theirs alive; it accepts no tensors.
  // Errors: NOT_INITIALIZED; the job's failure.
  Outcome Stop();

  // Null while there is none.
  std::shared_ptr<Session> Get() const;

 private:
  enum class State { kNone, kStarting, kRunning, kStopping };

  static const char* DescribeConflict(State state);

  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kNone;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);  // null unless kRunning
};

// What C callers read who call too early or too late.
Outcome NotInitialized();

}  // namespace ronda

#endif  // RONDA_CLIENT_DEFAULT_RUNTIME_H_
