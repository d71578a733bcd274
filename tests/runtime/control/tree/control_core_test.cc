// SPDX-License-Identifier: Apache-2.0

// The control plane across hosts, as its threads use it. Its streams are within the process, so that ThreadSanitizer
// can follow them.
#include "runtime/control/tree/control_core.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/control/control_plane_suite.h"
#include "tests/runtime/control/tree/memory_control_stream.h"

namespace ronda::testing {
namespace {

class CorePlane final : public ControlPlane {
 public:
  explicit CorePlane(ControlCore::Options options)
      : core_(std::make_shared<ControlCore>(std::move(options))), pulse_([core = core_] { core->Run(); }) {}
  ~CorePlane() override {
    core_->Close(absl::InfiniteDuration());
    core_->AwaitStreams();
    core_->Stop();
    pulse_.join();
  }

  ControlCore& core() { return *core_; }

  absl::Status SendToCoordinator(absl::string_view payload) override { return core_->SendToCoordinator(payload); }
  absl::Status Broadcast(absl::string_view payload) override { return core_->Broadcast(payload); }
  absl::StatusOr<Inbox> Receive() override { return core_->Receive(); }
  void Wait(absl::Time deadline) override { core_->Wait(deadline); }
  void Wake() override { core_->Wake(); }
  void RequestUnlock(uint64_t schedule) override { core_->RequestUnlock(schedule); }
  void Fail(const absl::Status& failure) override { core_->Fail(failure); }
  absl::Status failure() const override { return core_->failure(); }
  void Depart() override { core_->Depart(); }

 private:
  const std::shared_ptr<ControlCore> core_;
  std::thread pulse_;
};

using CorePlanes = std::vector<std::unique_ptr<CorePlane>>;

ControlCore::Options OptionsOf(RankId rank, const ControlTree& tree) {
  ControlCore::Options options = {.start_timeout = absl::Seconds(60)};
  for (RankId peer = 0; peer < tree.size; ++peer) {
    options.job.peers.push_back({.rank = peer, .host = "localhost", .pid = getpid()});
  }
  options.job.rank = options.node.rank = rank;
  options.job.tree = options.node.tree = tree;
  options.job.secret = "open sesame";
  options.node.peers = options.job.peers;
  options.node.heartbeat = absl::Milliseconds(5);
  options.node.heartbeat_timeout = absl::Seconds(60);
  return options;
}

// Attaches all ranks to their parents, and waits until all have started.
void Start(CorePlanes& planes, const ControlTree& tree) {
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < tree.size; ++rank) {
    threads.emplace_back([&, rank] {
      ControlCore& core = planes[rank]->core();
      if (rank > 0) {
        ASSERT_EQ(core.Attach(MemoryControlStream::Connect(planes[tree.Parent(rank)]->core())), absl::OkStatus());
      }
      EXPECT_EQ(core.AwaitStart(), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

CorePlanes ConnectCores(const ControlTree& tree) {
  CorePlanes planes;
  for (RankId rank = 0; rank < tree.size; ++rank) planes.push_back(std::make_unique<CorePlane>(OptionsOf(rank, tree)));
  Start(planes, tree);
  return planes;
}

ControlRanks Ranks(const std::string& name, const ControlTree& tree) {
  const auto connect = [tree] {
    std::vector<Transport> transports;
    for (std::unique_ptr<CorePlane>& plane : ConnectCores(tree)) {
      transports.push_back({.control = std::move(plane), .communicator = nullptr, .flights = nullptr});
    }
    return transports;
  };
  return {.name = name, .size = tree.size, .connect = connect};
}

INSTANTIATE_TEST_SUITE_P(Core, ControlPlaneTest,
                         ::testing::Values(Ranks("Alone", {.size = 1}), Ranks("Star", {.size = 5}),
                                           Ranks("Chain", {.size = 4, .fan_out = 1}),
                                           Ranks("Binary", {.size = 7, .fan_out = 2})),
                         NameOfControlRanks);

// The rank may have lost a message, so it must not go on to the next one.
TEST(ControlCoreTest, ARankThatRunsOutOfMemoryFailsAtOnceAndTellsTheOthers) {
  CorePlanes planes = ConnectCores({.size = 7, .fan_out = 2});
  planes[1]->core().RunOutOfMemory();
  EXPECT_FALSE(planes[1]->failure().ok());
  for (const std::unique_ptr<CorePlane>& plane : planes) {
    while (plane->failure().ok()) plane->Wait(SteadyNow() + absl::Seconds(1));
    EXPECT_THAT(plane->failure().message(), ::testing::HasSubstr("out of memory in the control plane"));
    EXPECT_THAT(plane->failure().message(), ::testing::HasSubstr("rank 1"));
  }
}

// Makes all calls at once, for ThreadSanitizer.
TEST(ControlCoreTest, AllThreadsOfAllRanksMayCallAtOnce) {
  CorePlanes planes = ConnectCores({.size = 7, .fan_out = 2});
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

}  // namespace
}  // namespace ronda::testing
