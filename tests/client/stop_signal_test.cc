// Each case has a process of its own, as signal handlers are the process'.
#include "client/stop.h"

#include <csignal>
#include <cstdlib>
#include <functional>

#include "gtest/gtest.h"

namespace ronda {
namespace {

volatile std::sig_atomic_t calls = 0;
volatile std::sig_atomic_t last_signal = 0;

void Count(int signo) {
  calls = calls + 1;
  last_signal = signo;
}

void CountWithInfo(int signo, siginfo_t* info, void*) { Count(info != nullptr ? signo : 0); }

struct sigaction Action(int flags) {
  struct sigaction action = {};
  action.sa_flags = flags;
  if ((flags & SA_SIGINFO) != 0) {
    action.sa_sigaction = CountWithInfo;
  } else {
    action.sa_handler = Count;
  }
  return action;
}

struct sigaction Installed() {
  struct sigaction action = {};
  sigaction(SIGTERM, nullptr, &action);
  return action;
}

// Ends the process well if `holds`.
[[noreturn]] void Exit(const std::function<bool()>& holds) { std::_Exit(holds() ? 0 : 1); }

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

TEST(StopSignalTest, BeforeItIsArmedTheSignalEndsTheProcess) {
  EXPECT_EXIT(std::raise(SIGTERM), KilledBySignal(SIGTERM), "");
}

TEST(StopSignalTest, OnceArmedTheSignalIsNoted) {
  EXPECT_EXIT(Exit([] {
                StopSignal::Arm();
                const bool before = StopSignal::received();
                std::raise(SIGTERM);
                std::raise(SIGTERM);
                return !before && StopSignal::received() && (Installed().sa_flags & SA_RESTART) != 0;
              }),
              ExitedWithCode(0), "");
}

TEST(StopSignalTest, AnEarlierHandlerIsCalledToo) {
  for (const int flags : {0, SA_SIGINFO, static_cast<int>(SA_RESETHAND)}) {
    EXPECT_EXIT(Exit([flags] {
                  const struct sigaction action = Action(flags);
                  sigaction(SIGTERM, &action, nullptr);
                  StopSignal::Arm();
                  StopSignal::Arm();
                  std::raise(SIGTERM);
                  std::raise(SIGTERM);
                  return StopSignal::received() && calls == 2 && last_signal == SIGTERM;
                }),
                ExitedWithCode(0), "")
        << flags;
  }
}

TEST(StopSignalTest, AnEarlierHandlerKeepsItsSurroundings) {
  EXPECT_EXIT(Exit([] {
                struct sigaction action = Action(0);
                sigaddset(&action.sa_mask, SIGUSR1);
                sigaction(SIGTERM, &action, nullptr);
                StopSignal::Arm();
                const struct sigaction installed = Installed();
                return (installed.sa_flags & SA_RESTART) == 0 && sigismember(&installed.sa_mask, SIGUSR1) == 1;
              }),
              ExitedWithCode(0), "");
}

TEST(StopSignalTest, ASignalThatWasIgnoredIsNoted) {
  EXPECT_EXIT(Exit([] {
                std::signal(SIGTERM, SIG_IGN);
                StopSignal::Arm();
                std::raise(SIGTERM);
                return StopSignal::received();
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ronda
