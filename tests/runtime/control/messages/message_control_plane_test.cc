// SPDX-License-Identifier: Apache-2.0

// Tests how the control plane over messages starts, and how it forwards messages while no thread receives. After a
// failure of the job, the control plane must not call the message library any more.
#include "runtime/control/messages/message_control_plane.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "tests/runtime/control/messages/message_ranks.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

// Counts the messages and calls of one rank.
struct Traffic {
  std::atomic<int> sent{0};                // messages
  std::atomic<uint64_t> calls{0};          // of any kind
  std::atomic<bool> is_cut{false};         // from now on no transfer completes
  std::atomic<bool> has_no_memory{false};  // the next message is not sent, for lack of memory
};

// Forwards all calls to another PointToPoint, and counts them.
class CountedMessages final : public PointToPoint {
 public:
  CountedMessages(std::unique_ptr<PointToPoint> messages, std::shared_ptr<Traffic> traffic)
      : messages_(std::move(messages)), traffic_(std::move(traffic)) {}

  RankId rank() const override { return messages_->rank(); }
  int size() const override { return messages_->size(); }
  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override {
    ++traffic_->calls;
    if (traffic_->has_no_memory.exchange(false)) throw std::bad_alloc();
    ++traffic_->sent;
    return messages_->Send(data, bytes, to);
  }
  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override {
    ++traffic_->calls;
    return messages_->Receive(data, bytes, from);
  }
  absl::StatusOr<bool> Test(absl::Span<Request> requests) override {
    ++traffic_->calls;
    if (traffic_->is_cut) return false;
    return messages_->Test(requests);
  }

 private:
  const std::unique_ptr<PointToPoint> messages_;
  const std::shared_ptr<Traffic> traffic_;
};

// Makes each rank count its messages. Returns the counts per rank.
std::vector<std::shared_ptr<Traffic>> Count(MessageRanks* ranks) {
  std::vector<std::shared_ptr<Traffic>> traffic;
  for (RankId rank = 0; rank < ranks->size; ++rank) traffic.push_back(std::make_shared<Traffic>());
  ranks->adapt = [traffic, adapt = ranks->adapt](MessageControlPlaneOptions& options) {
    if (adapt != nullptr) adapt(options);
    options.messages =
        std::make_unique<CountedMessages>(std::move(options.messages), traffic[static_cast<size_t>(options.rank)]);
  };
  return traffic;
}

// A job whose ranks count their messages.
struct CountedJob {
  std::vector<std::shared_ptr<Traffic>> traffic;  // by rank
  Planes planes;
};

CountedJob ConnectAndCount(MessageRanks ranks) {
  CountedJob job = {.traffic = Count(&ranks), .planes = {}};
  job.planes = Connect(ranks);
  return job;
}

std::function<void(MessageControlPlaneOptions&)> WithHeartbeats(absl::Duration period, absl::Duration timeout) {
  return [=](MessageControlPlaneOptions& options) {
    options.heartbeat = period;
    options.heartbeat_timeout = timeout;
  };
}

TEST(MessageControlPlaneTest, MissingRankIsNamedToEverybody) {
  std::atomic<int> abandoned{0};
  auto options = OptionsOf({.size = 4, .fan_out = 2, .adapt = [&](MessageControlPlaneOptions& options) {
                              options.start_timeout = absl::Milliseconds(1500);
                              options.abandon_messages = [&] { ++abandoned; };
                            }});
  options.erase(options.begin() + 3);
  const TriedPlanes planes = ConnectAll(std::move(options));
  for (const auto& plane : planes) {
    EXPECT_EQ(plane.status(),
              absl::DeadlineExceededError(absl::StrCat("no control connection within 1.5s from ", PeerText(3))));
  }
  EXPECT_EQ(abandoned, 3);
}

TEST(MessageControlPlaneTest, RankOfAnotherJobIsTurnedAway) {
  auto options = OptionsOf({.size = 2, .adapt = [](MessageControlPlaneOptions& options) {
                              options.job_id = absl::StrCat("job", options.rank);
                            }});
  const TriedPlanes planes = ConnectAll(std::move(options));
  const auto expect_refusal = [&](size_t rank, const std::string& text) {
    EXPECT_EQ(planes[rank].status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(planes[rank].status()), HasSubstr(text));
  };
  expect_refusal(0, PeerText(1) + " belongs to job job1, but this rank to job job0");
  expect_refusal(1, PeerText(0) + " belongs to job job0, but this rank to job job1");
}

TEST(MessageControlPlaneTest, MessagesOfManyMebibytesTravelBothWays) {
  const auto planes = Connect({.size = 3, .fan_out = 1});
  std::string text(size_t{5} << 20, '\0');
  for (size_t i = 0; i < text.size(); i += 4096) text[i] = static_cast<char>(i >> 12);
  ASSERT_EQ(planes[2]->SendToCoordinator(text), absl::OkStatus());
  const ControlPlane::Inbox inbox = ReceiveSome(*planes[0]);
  ASSERT_EQ(inbox.to_coordinator.size(), 1U);
  EXPECT_EQ(inbox.to_coordinator[0].from, 2);
  EXPECT_TRUE(inbox.to_coordinator[0].payload == text);
  ASSERT_EQ(planes[0]->Broadcast(text), absl::OkStatus());
  EXPECT_TRUE(ReceiveSome(*planes[2]).broadcasts.at(0) == text);
}

// The ranks between rank 0 and rank 3 are in a collective or compute, so their threads do not call the control plane.
TEST(MessageControlPlaneTest, UnlockRequestAndBroadcastPassThroughRanksThatDoNotListen) {
  const auto planes = Connect({.size = 4, .fan_out = 1});
  planes[3]->RequestUnlock(7);
  while (planes[0]->Receive()->unlock_requested < 7) planes[0]->Wait(absl::InfiniteFuture());
  ASSERT_EQ(planes[0]->Broadcast("x"), absl::OkStatus());
  EXPECT_EQ(ReceiveSome(*planes[3]).broadcasts, std::vector<std::string>{"x"});
}

// A collective that waits for messages learns of a failure only through failure().
TEST(MessageControlPlaneTest, FailureReachesARankThatOnlyAsksForIt) {
  const auto planes = Connect({.size = 5, .fan_out = 2});
  planes[4]->Fail(absl::DataLossError("lost"));
  for (const auto& plane : planes) {
    while (plane->failure().ok()) std::this_thread::yield();
    EXPECT_EQ(plane->failure(), absl::DataLossError(PeerText(4) + ": lost"));
  }
}

// The control plane must report the rank's departure and exit to its caller, which then notifies the other ranks of the
// host.
TEST(MessageControlPlaneTest, DepartureAndExitAreAlsoToldTheCaller) {
  std::vector<std::string> told;
  const auto planes = Connect({.size = 2, .adapt = [&](MessageControlPlaneOptions& options) {
                                 if (options.rank != 1) return;
                                 options.on_depart = [&] { told.push_back("departs"); };
                                 options.on_exit = [&] { told.push_back("exits"); };
                               }});
  planes[1]->AnnounceExit();
  EXPECT_THAT(told, ::testing::ElementsAre("exits"));
  for (const auto& plane : planes) plane->Depart();
  EXPECT_THAT(told, ::testing::ElementsAre("exits", "departs"));
}

// After a failure, the buffer of a collective may be gone, but any call to the library may still write to it.
TEST(MessageControlPlaneTest, RankThatKnowsOfTheFailureCallsTheLibraryNoMore) {
  MessageRanks ranks = {.size = 5, .fan_out = 2};
  const auto traffic = Count(&ranks);
  std::counting_semaphore<8> called(0);
  std::vector<std::atomic<uint64_t>> calls_when_told(5);
  ranks.adapt = [&, adapt = ranks.adapt](MessageControlPlaneOptions& options) {
    adapt(options);
    options.heartbeat = absl::Milliseconds(10);
    options.on_failure = [&, rank = static_cast<size_t>(options.rank)](const absl::Status&) {
      calls_when_told[rank] = traffic[rank]->calls.load();
      called.release();
    };
  };
  auto planes = Connect(ranks);
  ASSERT_EQ(planes.size(), 5U);
  planes[3]->Fail(absl::InternalError("first"));
  for (int i = 0; i < 5; ++i) called.acquire();
  std::vector<uint64_t> calls_when_known;
  for (size_t rank = 0; rank < planes.size(); ++rank) {
    EXPECT_FALSE(planes[rank]->failure().ok());
    calls_when_known.push_back(traffic[rank]->calls);
    EXPECT_EQ(calls_when_known.back(), calls_when_told[rank]) << "rank " << rank;
  }
  for (auto& plane : planes) {
    plane->RequestUnlock(1);
    EXPECT_FALSE(plane->Receive().ok());
    plane->Depart();
    plane.reset();
  }
  for (size_t rank = 0; rank < planes.size(); ++rank) EXPECT_EQ(traffic[rank]->calls, calls_when_known[rank]);
}

// A rank runs out of memory while its control plane's thread forwards a message of another rank. This message may be
// lost, so the rank must not forward the next one.
TEST(MessageControlPlaneTest, RankThatRunsOutOfMemoryFailsAndTellsTheOthers) {
  const auto [traffic, planes] =
      ConnectAndCount({.size = 7, .fan_out = 2, .adapt = WithHeartbeats(absl::Milliseconds(20), absl::Seconds(60))});
  ASSERT_EQ(planes.size(), 7U);
  traffic[1]->has_no_memory = true;
  for (const auto& plane : planes) {
    EXPECT_EQ(Text(AwaitFailure(*plane)), PeerText(1) + ": out of memory in the control plane");
  }
}

// Makes all calls at the same time, so that ThreadSanitizer can find races.
TEST(MessageControlPlaneTest, AllThreadsOfAllRanksMayCallAtOnce) {
  const auto planes = Connect({.size = 7, .fan_out = 2});
  std::atomic<int> heard{0};
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < planes.size(); ++rank) {
    ControlPlane& control = *planes[rank];
    threads.emplace_back([&control] {
      for (uint64_t i = 1; control.failure().ok(); ++i) {
        if (i <= 100) control.RequestUnlock(i);
        control.Wake();
        std::this_thread::yield();
      }
    });
    threads.emplace_back([&control, &heard, rank] {
      for (;;) {
        absl::StatusOr<ControlPlane::Inbox> inbox = control.Receive();
        if (!inbox.ok()) return;
        heard += static_cast<int>(inbox->broadcasts.size());
        if (!control.SendToCoordinator("report").ok()) return;
        if (rank == 0 && !control.Broadcast("list").ok()) return;
        control.Wait(absl::InfiniteFuture());
      }
    });
  }
  while (heard < 200) std::this_thread::yield();
  std::thread failing([&] { planes[6]->Fail(absl::InternalError("enough")); });
  planes[5]->Fail(absl::InternalError("enough, too"));
  failing.join();
  for (std::thread& thread : threads) thread.join();
  for (const auto& plane : planes) EXPECT_EQ(plane->failure(), planes[0]->failure());
}

TEST(MessageControlPlaneTest, SilentRankIsNamedByAllOnceTheHeartbeatTimeoutHasPassed) {
  const auto [traffic, planes] =
      ConnectAndCount({.size = 4, .fan_out = 2, .adapt = WithHeartbeats(absl::Milliseconds(50), absl::Seconds(1))});
  ASSERT_EQ(planes.size(), 4U);
  traffic[3]->is_cut = true;  // nothing moves at its end, as if the rank were stopped
  for (const RankId rank : {0, 1, 2}) {
    EXPECT_EQ(Text(AwaitFailure(*planes[static_cast<size_t>(rank)])),
              PeerText(3) + " gave no sign of life for 1s (host down or network cut?)");
  }
  EXPECT_THAT(Text(AwaitFailure(*planes[3])), HasSubstr(PeerText(1) + " gave no sign of life"));
}

TEST(MessageControlPlaneTest, HeartbeatsKeepAnIdleJobAlive) {
  const auto planes =
      Connect({.size = 3, .fan_out = 1, .adapt = WithHeartbeats(absl::Milliseconds(20), absl::Seconds(1))});
  planes[0]->Wait(SteadyNow() + absl::Milliseconds(1500));
  for (const auto& plane : planes) EXPECT_EQ(plane->failure(), absl::OkStatus());
}

// 33 ranks send equal reports. A rank sends at most one message per message from its children, plus one for its own
// report. Rank 0 receives each rank's report once.
TEST(MessageControlPlaneTest, EqualReportsThatMeetOnTheirWayAreOneMessage) {
  const auto [traffic, planes] =
      ConnectAndCount({.size = 33, .fan_out = 4, .adapt = WithHeartbeats(absl::Hours(1), absl::InfiniteDuration())});
  ASSERT_EQ(planes.size(), 33U);
  std::vector<int> before;
  for (const auto& of_rank : traffic) before.push_back(of_rank->sent);
  std::vector<std::thread> threads;
  for (const auto& plane : planes) {
    threads.emplace_back([&plane] { EXPECT_EQ(plane->SendToCoordinator("all ready"), absl::OkStatus()); });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<RankId> heard;
  while (heard.size() < 33) {
    const ControlPlane::Inbox inbox = ReceiveSome(*planes[0]);
    for (const ControlMessage& message : inbox.to_coordinator) {
      EXPECT_TRUE(heard.insert(message.from).second) << message.from;
    }
  }
  // Ranks 1 to 4 are rank 0's children. Rank 1 has 16 ranks below it in the tree, and also sends its own report.
  EXPECT_LE(traffic[1]->sent - before[1], 17);
  for (RankId leaf = 9; leaf < 33; ++leaf) {
    EXPECT_EQ(traffic[static_cast<size_t>(leaf)]->sent - before[static_cast<size_t>(leaf)], 1) << leaf;
  }
}

TEST(MessageControlPlaneTest, RanksLeaveInAnyOrderWithoutAFailureAndFinishTheirTransfers) {
  for (const bool parents_first : {true, false}) {
    std::atomic<int> abandoned{0};
    auto planes = Connect({.size = 7, .fan_out = 2, .adapt = [&](MessageControlPlaneOptions& options) {
                             options.abandon_messages = [&] { ++abandoned; };
                           }});
    if (!parents_first) std::reverse(planes.begin(), planes.end());
    for (auto& plane : planes) {
      EXPECT_EQ(plane->failure(), absl::OkStatus());
      plane->Depart();
      plane.reset();
    }
    EXPECT_EQ(abandoned, 0);
  }
}

TEST(MessageControlPlaneTest, MessageSentBeforeLeavingArrives) {
  for (int round = 0; round < 20; ++round) {
    auto planes = Connect({.size = 3, .fan_out = 1, .seed = static_cast<uint64_t>(round)});
    std::thread leaving([&] {
      ASSERT_EQ(planes[0]->Broadcast("last"), absl::OkStatus());
      planes[0]->Depart();
      planes[0].reset();
    });
    for (const size_t rank : {1, 2}) {
      EXPECT_EQ(ReceiveSome(*planes[rank]).broadcasts, std::vector<std::string>{"last"});
    }
    leaving.join();
  }
}

}  // namespace
}  // namespace ronda::testing
