// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/stop.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/runtime.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::testing::Each;
using Request = StopAgreement::Request;

std::unique_ptr<Runtime> Join(RankId rank, int size, Transport transport) {
  return Runtime::Create({}, {.rank = rank, .size = size, .local_rank = rank, .local_size = size},
                         std::move(transport));
}

Request Call(Runtime& runtime, StopAgreement& agreement, const StopAgreement::Knowledge& knowledge) {
  const absl::StatusOr<Request> answer =
      agreement.Call(knowledge, [&](const Submission& submission) { return runtime.Submit(submission); });
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.value_or(Request::kNone);
}

// Every rank makes `calls` calls, numbered from 0. Rank `asked` receives a request to stop in call number `when`.
// Returns the numbers of the calls that returned the request. Expects the same numbers on every rank.
std::vector<int> CallsThatSayStop(int size, RankId asked, int when, int calls) {
  std::vector<std::vector<int>> of_ranks(size);
  testing::RunRanks(size, [&](RankId rank, Transport transport) {
    const std::unique_ptr<Runtime> runtime = Join(rank, size, std::move(transport));
    StopAgreement agreement;
    for (int i = 0; i < calls; ++i) {
      const Request request = rank == asked && i == when ? Request::kStop : Request::kNone;
      if (Call(*runtime, agreement, {.request = request}) == Request::kStop) of_ranks[rank].push_back(i);
    }
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
  EXPECT_THAT(of_ranks, Each(of_ranks.front()));
  return of_ranks.front();
}

TEST(StopAgreementTest, RanksGoOnWithoutARequestToStop) {
  EXPECT_THAT(CallsThatSayStop(3, /*asked=*/-1, 0, 10), ::testing::IsEmpty());
}

TEST(StopAgreementTest, AllHearOfARequestOneCallAfterItWasMadeAndFromThenOn) {
  for (const int size : {1, 2, 4}) {
    for (RankId asked = 0; asked < size; ++asked) {
      SCOPED_TRACE(std::to_string(size) + " ranks, of which " + std::to_string(asked) + " is asked");
      EXPECT_THAT(CallsThatSayStop(size, asked, 3, 7), ::testing::ElementsAre(4, 5, 6));
    }
  }
}

TEST(StopAgreementTest, AfterAJoinTheFirstAnswerIsNoAndTheRequestIsNotForgotten) {
  std::vector<std::vector<Request>> answers(2);
  testing::RunRanks(2, [&](RankId rank, Transport transport) {
    const std::unique_ptr<Runtime> runtime = Join(rank, 2, std::move(transport));
    StopAgreement agreement;
    // Rank 1 makes more calls than rank 0. Only rank 1 has received the request to stop.
    Call(*runtime, agreement, {});
    for (int i = 0; i < 3 * rank; ++i) Call(*runtime, agreement, {.request = Request::kStop});
    const auto join = runtime->Submit({.request = {.name = std::string(kJoinName), .op = OpType::kJoin}});
    ASSERT_TRUE(join.ok() && (*join)->Wait().ok());
    for (int i = 0; i < 3; ++i) answers[rank].push_back(Call(*runtime, agreement, {.joins = 1}));
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
  EXPECT_THAT(answers, Each(::testing::ElementsAre(Request::kNone, Request::kStop, Request::kStop)));
}

TEST(StopAgreementTest, ACallBesideAnotherIsRefused) {
  testing::RunRanks(1, [](RankId rank, Transport transport) {
    const std::unique_ptr<Runtime> runtime = Join(rank, 1, std::move(transport));
    StopAgreement agreement;
    absl::Status refused;
    const auto answer = agreement.Call({}, [&](const Submission& submission) {
      refused = agreement.Call({}, [&](const Submission& other) { return runtime->Submit(other); }).status();
      return runtime->Submit(submission);
    });
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_EQ(Call(*runtime, agreement, {}), Request::kNone) << "the progress engine is free again";
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
}

TEST(StopAgreementTest, AnErrorIsReportedAndTheNextCallBeginsAnew) {
  testing::RunRanks(1, [](RankId rank, Transport transport) {
    const std::unique_ptr<Runtime> runtime = Join(rank, 1, std::move(transport));
    StopAgreement agreement;
    const auto refused = agreement.Call({.request = Request::kStop}, [](const Submission&) {
      return absl::StatusOr<std::shared_ptr<Handle>>(absl::ResourceExhaustedError("no memory"));
    });
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Call(*runtime, agreement, {}), Request::kNone);
    EXPECT_EQ(Call(*runtime, agreement, {}), Request::kStop) << "the request is remembered";
    EXPECT_TRUE(runtime->Shutdown().ok());
    const auto late = agreement.Call({}, [&](const Submission& submission) { return runtime->Submit(submission); });
    EXPECT_EQ(late.status().code(), absl::StatusCode::kCancelled);
  });
}

}  // namespace

// Each test case runs in a separate process, because signal handlers are process-wide.

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

// Exits with code 0 if `holds` returns true, else with 1.
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
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer calls handlers by a way of its own";
#endif
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

TEST(StopSignalTest, OnceDisarmedTheSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignal::Arm();
        if (StopSignal::Disarm() || StopSignal::Disarm()) std::_Exit(1);
        StopSignal::Arm();
        StopSignal::Disarm();
        std::raise(SIGTERM);
      },
      KilledBySignal(SIGTERM), "");
}

TEST(StopSignalTest, OnlyASignalThatNobodyWasToldOfIsToBeRaisedAgain) {
  EXPECT_EXIT(Exit([] {
                StopSignal::Arm();
                std::raise(SIGTERM);
                const bool is_untold = StopSignal::Disarm();
                StopSignal::Arm();
                const bool is_remembered = StopSignal::received();
                StopSignal::SetTold();
                return is_untold && is_remembered && !StopSignal::Disarm();
              }),
              ExitedWithCode(0), "");
  EXPECT_EXIT(Exit([] {
                const struct sigaction action = Action(0);
                sigaction(SIGTERM, &action, nullptr);
                StopSignal::Arm();
                std::raise(SIGTERM);
                return calls == 1 && !StopSignal::Disarm() && Installed().sa_handler == Count;
              }),
              ExitedWithCode(0), "")
      << "the program's own handler knows";
}

struct sigaction armed_action = {};

void CallArmedAction(int signo, siginfo_t* info, void* context) {
  Count(signo);
  armed_action.sa_sigaction(signo, info, context);
}

TEST(StopSignalTest, ALaterHandlerStaysAndMayStillCallRondas) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer calls handlers by a way of its own";
#endif
  EXPECT_EXIT(Exit([] {
                StopSignal::Arm();
                armed_action = Installed();
                struct sigaction action = {};
                action.sa_flags = SA_SIGINFO;
                action.sa_sigaction = CallArmedAction;
                sigaction(SIGTERM, &action, nullptr);
                StopSignal::Disarm();
                std::raise(SIGTERM);
                const bool is_recorded_without_job = StopSignal::received();
                StopSignal::Arm();
                std::raise(SIGTERM);
                return !is_recorded_without_job && StopSignal::received() && calls == 2;
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
