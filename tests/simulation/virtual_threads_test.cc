// SPDX-License-Identifier: Apache-2.0

// Tests VirtualWorld itself. Each test runs in its own process, because a process has only one world.
#include "tests/simulation/virtual_threads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"
#include "tests/simulation/virtual_network.h"

namespace ronda::simulation {
namespace {

// Runs `body` in a world; the exit code is 0 if `body` returns true.
[[noreturn]] void RunInWorld(const std::function<bool()>& body) {
  VirtualWorld::Get().Enter({.seed = 1, .report = [](const std::string&) {}});
  _exit(body() ? 0 : 1);
}

#define EXPECT_IN_WORLD(body) EXPECT_EXIT(RunInWorld(body), ::testing::ExitedWithCode(0), "")

VirtualWorld& world() { return VirtualWorld::Get(); }

TEST(VirtualWorldTest, HoursPassAtOnce) {
  const auto before = std::chrono::steady_clock::now();
  EXPECT_IN_WORLD([] {
    const absl::Duration begun = MonotonicTime();
    absl::SleepFor(absl::Hours(10));
    return MonotonicTime() - begun >= absl::Hours(10);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::hours(1));
}

TEST(VirtualWorldTest, AWaitEndsAtItsTimeOrWithItsNotification) {
  EXPECT_IN_WORLD([] {
    Mutex mu;
    CondVar changed;
    bool is_set = false;
    std::thread setter([&] {
      absl::SleepFor(absl::Seconds(5));
      MutexLock lock(&mu);
      is_set = true;
      changed.NotifyAll();
    });
    const absl::Duration begun = MonotonicTime();
    {
      MutexLock lock(&mu);
      while (MonotonicTime() - begun < absl::Seconds(1)) changed.WaitFor(&mu, absl::Seconds(1));
      if (is_set) return false;
      while (!is_set) changed.Wait(&mu);
    }
    setter.join();
    return MonotonicTime() - begun >= absl::Seconds(5);
  });
}

TEST(VirtualWorldTest, OneThreadAtATimeHasALock) {
  EXPECT_IN_WORLD([] {
    Mutex mu;
    int inside = 0;
    bool was_alone = true;
    const auto work = [&] {
      for (int i = 0; i < 200; ++i) {
        MutexLock lock(&mu);
        was_alone = was_alone && ++inside == 1;
        MonotonicTime();  // another thread may run
        --inside;
      }
    };
    std::thread other(work);
    work();
    other.join();
    return was_alone;
  });
}

TEST(VirtualWorldTest, AProcessThatIsKilledRunsNoFurther) {
  EXPECT_IN_WORLD([] {
    int rounds = 0;
    const ProcessId process = world().StartProcess("victim", [&] {
      for (;; ++rounds) absl::SleepFor(absl::Seconds(1));
      return 0;
    });
    absl::SleepFor(absl::Seconds(10));
    world().Kill(process);
    const int before = rounds;
    absl::SleepFor(absl::Seconds(10));
    return before >= 9 && rounds == before && !world().IsAlive(process) &&
           world().ExitCode(process) == VirtualWorld::kKilledExit;
  });
}

TEST(VirtualWorldTest, AProcessThatIsKilledLetsGoOfItsLocks) {
  EXPECT_IN_WORLD([] {
    Mutex mu;
    const ProcessId process = world().StartProcess("victim", [&] {
      for (;;) {
        MutexLock lock(&mu);
        absl::SleepFor(absl::Seconds(1));
      }
      return 0;
    });
    absl::SleepFor(absl::Milliseconds(500));
    world().Kill(process);
    MutexLock lock(&mu);
    return true;
  });
}

TEST(VirtualWorldTest, AFrozenProcessGoesOnLater) {
  EXPECT_IN_WORLD([] {
    int rounds = 0;
    const ProcessId process = world().StartProcess("victim", [&] {
      for (; rounds < 20; ++rounds) absl::SleepFor(absl::Seconds(1));
      return 7;
    });
    absl::SleepFor(absl::Milliseconds(5500));
    world().Freeze(process, world().now() + absl::Seconds(100));
    absl::SleepFor(absl::Seconds(99));
    const int frozen = rounds;
    absl::SleepFor(absl::Seconds(20));
    return frozen <= 6 && rounds == 20 && world().ExitCode(process) == 7;
  });
}

TEST(VirtualWorldTest, AnUncaughtExceptionEndsItsProcessAlone) {
  EXPECT_IN_WORLD([] {
    const ProcessId process = world().StartProcess("victim", []() -> int { throw 1; });
    absl::SleepFor(absl::Seconds(1));
    return world().ExitCode(process) == VirtualWorld::kTerminatedExit;
  });
}

TEST(VirtualWorldTest, AllocationsAndThreadsFailWhereTheyAreTo) {
  EXPECT_IN_WORLD([] {
    const ProcessId process = world().StartProcess("victim", [] {
      absl::SleepFor(absl::Seconds(1));
      int failures = 0;
      for (int i = 0; i < 10; ++i) {
        try {
          const auto memory = std::make_unique<std::string>(1000, 'x');
        } catch (const std::bad_alloc&) {
          ++failures;
        }
      }
      try {
        std::thread([] {}).join();
      } catch (const std::system_error&) {
        failures += 100;
      }
      std::thread([] {}).join();
      return failures;
    });
    world().FailAllocation(process, {.after = 3, .times = 2});
    world().FailThread(process, 0);
    absl::SleepFor(absl::Seconds(2));
    return world().ExitCode(process) == 102;
  });
}

// Returns whether the file is invalid because no descriptor could be created.
bool IsLacking(const UniqueFd& file) { return !file.valid() && errno == EMFILE; }

TEST(VirtualWorldTest, DescriptorsFailWhereTheyAreTo) {
  EXPECT_IN_WORLD([] {
    std::string failed;
    const ProcessId process = world().StartProcess("victim", [&failed] {
      absl::SleepFor(absl::Seconds(1));
      for (int i = 0; i < 3; ++i) {
        failed += IsLacking(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC))) ? "x" : ".";
        failed += IsLacking(UniqueFd(memfd_create("test", MFD_CLOEXEC))) ? "x" : ".";
      }
      return 0;
    });
    world().FailDescriptor(process, {.after = 1, .times = 3});
    absl::SleepFor(absl::Seconds(2));
    return failed == ".xxx.." && world().descriptors_failed() == 3;
  });
}

TEST(VirtualWorldTest, AWorldThatIsStuckSaysSo) {
  EXPECT_EXIT(RunInWorld([] {
                Mutex mu;
                CondVar never;
                MutexLock lock(&mu);
                for (;;) never.Wait(&mu);
                return true;
              }),
              ::testing::ExitedWithCode(VirtualWorld::kStuckExit), "");
}

// Starts two processes, the second of which waits for a message from the first.
bool Exchange(const std::function<void(VirtualNetwork& network, ProcessId a, ProcessId b)>& fault,
              absl::StatusCode expected, absl::string_view content) {
  VirtualNetwork network({.latency = absl::Milliseconds(1)});
  const std::string message = "abcdefgh";
  std::string received(message.size(), '.');
  absl::StatusCode code = absl::StatusCode::kUnknown;
  const ProcessId a = world().StartProcess("sender", [&] {
    const auto end = network.Connect("mesh", VirtualNetwork::Use::kTensors, 0, 2);
    absl::SleepFor(absl::Seconds(10));
    const auto sent = end->Send(message.data(), message.size(), 1);
    absl::SleepFor(absl::Hours(1));
    return sent.ok() ? 0 : 1;
  });
  const ProcessId b = world().StartProcess("receiver", [&] {
    const auto end = network.Connect("mesh", VirtualNetwork::Use::kTensors, 1, 2);
    auto request = *end->Receive(received.data(), received.size(), 0);
    for (;;) {
      const absl::StatusOr<bool> done = end->Test({&request, 1});
      code = done.status().code();
      if (!done.ok() || *done) return 0;
      absl::SleepFor(absl::Microseconds(10));
    }
  });
  absl::SleepFor(absl::Seconds(5));
  fault(network, a, b);
  absl::SleepFor(absl::Minutes(1));
  return code == expected && received == content;
}

TEST(VirtualNetworkTest, AMessageArrives) {
  EXPECT_IN_WORLD([] { return Exchange([](auto&&...) {}, absl::StatusCode::kOk, "abcdefgh"); });
}

TEST(VirtualNetworkTest, AMessageArrivesAfterTheSilence) {
  EXPECT_IN_WORLD([] {
    const auto silence = [](VirtualNetwork& network, ProcessId a, ProcessId b) {
      network.Silence(a, b, world().now() + absl::Seconds(20));
    };
    return Exchange(silence, absl::StatusCode::kOk, "abcdefgh");
  });
}

TEST(VirtualNetworkTest, TheEndOfAProcessResetsItsConnections) {
  EXPECT_IN_WORLD([] {
    const auto kill = [](VirtualNetwork& network, ProcessId a, ProcessId) {
      world().Kill(a);
      network.Drop(a, VirtualNetwork::End::kReset);
    };
    return Exchange(kill, absl::StatusCode::kUnavailable, "........");
  });
}

TEST(VirtualNetworkTest, AMessageArrivesByHalfWhereItsConnectionBreaks) {
  EXPECT_IN_WORLD([] {
    const auto cut = [](VirtualNetwork& network, ProcessId a, ProcessId b) {
      network.Silence(a, b, world().now() + absl::Seconds(20));
      absl::SleepFor(absl::Seconds(10));
      network.Reset(a, b);
    };
    return Exchange(cut, absl::StatusCode::kUnavailable, "abcd....");
  });
}

}  // namespace
}  // namespace ronda::simulation
