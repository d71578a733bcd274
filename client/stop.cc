// SPDX-License-Identifier: Apache-2.0

#include "client/stop.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda {
namespace {

// Static, because a signal handler can reach only static storage. The handler may set the flag, because the flag is
// lock-free. The program's previous signal action is stored before Ronda's handler is installed. A handler that the
// program installs later may call Ronda's handler, even after Disarm().
std::atomic<bool> is_received{false};
static_assert(std::atomic<bool>::is_always_lock_free);
std::atomic<bool> is_told{false};
std::atomic<bool> is_replaced{false};  // by a handler of the program
struct sigaction earlier = {};
constexpr pid_t kNoProcess = -1;
std::atomic<pid_t> armed_process{kNoProcess};
std::atomic<pid_t> last_armed_process{kNoProcess};
static_assert(std::atomic<pid_t>::is_always_lock_free);

void OnSignal(int signo, siginfo_t* info, void* context);

bool HasHandler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == OnSignal;
}

void OnSignal(int signo, siginfo_t* info, void* context) {
  const pid_t armed = armed_process.load(std::memory_order_relaxed);
  if (armed != kNoProcess && armed != getpid()) {  // a forked child
    // Linux blocks the signal while this handler runs, and delivers the raised signal as soon as the handler returns.
    sigaction(signo, &earlier, nullptr);
    raise(signo);
    return;
  }
  if (armed != kNoProcess) is_received.store(true, std::memory_order_relaxed);
  if ((earlier.sa_flags & SA_SIGINFO) != 0) {
    earlier.sa_sigaction(signo, info, context);
  } else if (HasHandler(earlier)) {
    earlier.sa_handler(signo);
  }
}

void Install() {
  struct sigaction action = {};
  if (sigaction(SIGTERM, nullptr, &action) != 0) return;
  // A forked child inherits both Ronda's handler and the stored previous action.
  if (IsOurs(action)) return;
  earlier = action;
  // If the program has no handler, a signal should not interrupt system calls. Otherwise Ronda's handler gets the same
  // flags as the program's, but stays installed even if that one was to run only once.
  action.sa_flags = HasHandler(earlier) ? action.sa_flags & ~static_cast<int>(SA_RESETHAND) : SA_RESTART;
  action.sa_flags |= SA_SIGINFO;
  action.sa_sigaction = OnSignal;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

void StopSignal::Arm() {
  const pid_t self = getpid();
  if (armed_process.load(std::memory_order_relaxed) == self) return;
  if (last_armed_process.exchange(self, std::memory_order_relaxed) != self) {
    is_received.store(false, std::memory_order_relaxed);
    is_told.store(false, std::memory_order_relaxed);
  }
  const bool is_armed = armed_process.exchange(self, std::memory_order_relaxed) == self;
  if (!is_armed && !is_replaced.load(std::memory_order_relaxed)) Install();
}

bool StopSignal::Disarm() {
  if (armed_process.load(std::memory_order_relaxed) != getpid()) return false;
  struct sigaction action = {};
  const bool is_ours = sigaction(SIGTERM, nullptr, &action) == 0 && IsOurs(action);
  // Restores the action first. From then on, a signal has its earlier effect.
  if (is_ours) {
    sigaction(SIGTERM, &earlier, nullptr);
  } else {
    is_replaced.store(true, std::memory_order_relaxed);
  }
  armed_process.store(kNoProcess, std::memory_order_relaxed);
  const bool would_end = is_ours && (earlier.sa_flags & SA_SIGINFO) == 0 && earlier.sa_handler == SIG_DFL;
  return would_end && received() && !is_told.load(std::memory_order_relaxed);
}

void StopSignal::SetTold() { is_told.store(true, std::memory_order_relaxed); }

bool StopSignal::received() { return is_received.load(std::memory_order_relaxed); }

class StopAgreement::Turn {
 public:
  explicit Turn(std::atomic<bool>* in_call)
      : in_call_(*in_call), has_turn_(!in_call->exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (has_turn_) in_call_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool has_turn() const { return has_turn_; }

 private:
  std::atomic<bool>& in_call_;
  const bool has_turn_;
};

StopAgreement::StopAgreement(absl::string_view flag)
    : submission_{.request = {.name = std::string(flag),
                              .op = OpType::kAllreduce,
                              .dtype = DType::kUint8,
                              .shape = {1},
                              .reduction = Reduction::kMax},
                  .input = &traveling_,
                  .output = &traveling_} {}

absl::StatusOr<StopAgreement::Request> StopAgreement::Call(const Knowledge& knowledge, SubmitFn submit) {
  const Turn turn(&in_call_);
  if (!turn.has_turn()) {
    return absl::AlreadyExistsError(
        absl::StrCat("ronda_", absl::StripPrefix(submission_.request.name, "ronda/"),
                     ": another thread of this rank is in it: let one thread call it, once a step"));
  }
  RONDA_ASSIGN_OR_RETURN(const Request answer, Answer(knowledge.joins));
  known_ = std::max({known_, answer, knowledge.request});
  traveling_ = known_;
  pending_joins_ = knowledge.joins;
  RONDA_ASSIGN_OR_RETURN(pending_, submit(submission_));
  return answer;
}

absl::StatusOr<StopAgreement::Request> StopAgreement::Answer(uint64_t joins) {
  if (pending_ == nullptr) return Request::kNone;
  const std::shared_ptr<Handle> pending = std::move(pending_);
  RONDA_RETURN_IF_ERROR(pending->Wait());
  return joins == pending_joins_ ? traveling_ : Request::kNone;
}

}  // namespace ronda
