#include "client/stop_signal.h"

#include <atomic>
#include <csignal>

namespace ronda {
namespace {

// What a signal handler can reach is what has static storage. The flag is free of locks, which makes it safe there; the
// earlier action is written before the handler is installed, and read by nobody else.
std::atomic<bool> is_received{false};
static_assert(std::atomic<bool>::is_always_lock_free);
struct sigaction earlier = {};

bool HasHandler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void OnSignal(int signo, siginfo_t* info, void* context) {
  is_received.store(true, std::memory_order_relaxed);
  if ((earlier.sa_flags & SA_SIGINFO) != 0) {
    earlier.sa_sigaction(signo, info, context);
  } else if (HasHandler(earlier)) {
    earlier.sa_handler(signo);
  }
}

bool Install() {
  if (sigaction(SIGTERM, nullptr, &earlier) != 0) return false;
  struct sigaction action = earlier;
  // Where nobody reckons with signals, system calls should not end early for one. A handler of the program's keeps the
  // surroundings that it was installed with; it stays installed, even if it was to serve once.
  action.sa_flags = HasHandler(earlier) ? action.sa_flags & ~static_cast<int>(SA_RESETHAND) : SA_RESTART;
  action.sa_flags |= SA_SIGINFO;
  action.sa_sigaction = OnSignal;
  return sigaction(SIGTERM, &action, nullptr) == 0;
}

}  // namespace

void StopSignal::Arm() {
  static const bool is_installed = Install();
  static_cast<void>(is_installed);
}

bool StopSignal::received() { return is_received.load(std::memory_order_relaxed); }

}  // namespace ronda
