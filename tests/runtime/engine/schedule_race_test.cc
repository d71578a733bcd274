// SPDX-License-Identifier: Apache-2.0

// Tests races between messages about a schedule. The test holds back a list that begins a schedule until another rank
// has unlocked the schedule. So the list and the message about the unlock arrive together, although the list was sent
// long before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/control/control_plane.h"
#include "runtime/negotiation/messages.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fakes.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::ForwardingControlPlane;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;

constexpr int kRanks = 2;
// After kSteps equal steps, the last step's response list begins a schedule.
constexpr int kSteps = 5;
const Tunables kTunables = {.lock_after = kSteps - 1};

using Inbox = ControlPlane::Inbox;

bool BeginsSchedule(const std::string& list) {
  const absl::StatusOr<ResponseList> decoded = DecodeResponseList(list, Tunables().cache_capacity);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return decoded.ok() && decoded->schedule.has_value();
}

bool WasSentAfterSchedule(const ControlMessage& report) {
  const absl::StatusOr<RankReport> decoded = DecodeRankReport(report.payload, Tunables().cache_capacity);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return decoded.ok() && decoded->schedule > 0;
}

// Returns whether a rank has sent a report after unlocking the schedule.
bool HasReportAfterSchedule(const Inbox& inbox) {
  return std::any_of(inbox.to_coordinator.begin(), inbox.to_coordinator.end(), WasSentAfterSchedule);
}

bool HasListAfterSchedule(const Inbox& inbox) { return !BeginsSchedule(inbox.broadcasts.back()); }

// Holds back the list that begins the first schedule, and all later messages, until `enough` returns true for the
// messages held back.
class HoldsScheduleBack : public ForwardingControlPlane {
 public:
  using Predicate = std::function<bool(const Inbox&)>;

  HoldsScheduleBack(std::unique_ptr<ControlPlane> to, Predicate enough)
      : ForwardingControlPlane(std::move(to)), enough_(std::move(enough)) {}

  ~HoldsScheduleBack() override { EXPECT_TRUE(handed_over_) << "no schedule has been overtaken"; }

  absl::StatusOr<Inbox> Receive() override {
    absl::StatusOr<Inbox> inbox = ForwardingControlPlane::Receive();
    if (!inbox.ok() || handed_over_) return inbox;
    Keep(*std::move(inbox));
    if (std::any_of(kept_.broadcasts.begin(), kept_.broadcasts.end(), BeginsSchedule)) {
      if (!enough_(kept_)) return Inbox{.unlock_requested = kept_.unlock_requested};
      handed_over_ = true;
    }
    return std::exchange(kept_, {});
  }

 private:
  void Keep(Inbox inbox) {
    std::move(inbox.to_coordinator.begin(), inbox.to_coordinator.end(), std::back_inserter(kept_.to_coordinator));
    std::move(inbox.broadcasts.begin(), inbox.broadcasts.end(), std::back_inserter(kept_.broadcasts));
    kept_.unlock_requested = inbox.unlock_requested;
  }

  const Predicate enough_;
  Inbox kept_;
  bool handed_over_ = false;
};

// Runs a job in which the rank `late` begins the first schedule only when `enough` returns true for its messages. The
// job uses shared memory, where a rank that vetoes does not wait for the other ranks.
void RunWithLate(RankId late, const HoldsScheduleBack::Predicate& enough,
                 const std::function<void(Runtime& runtime)>& body) {
  std::vector<Transport> transports = testing::ConnectRanks(Backend::kShm, {.size = kRanks});
  std::unique_ptr<ControlPlane>& control = transports[static_cast<size_t>(late)].control;
  control = std::make_unique<HoldsScheduleBack>(std::move(control), enough);
  testing::RunRanks(std::move(transports), [&](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({.tunables = kTunables}, {.rank = rank, .size = kRanks}, std::move(transport));
    body(*runtime);
    const absl::Status shutdown = runtime->Shutdown();
    EXPECT_TRUE(shutdown.ok()) << shutdown;
  });
}

// Runs steps without elements, in which no rank waits for another rank.
void RunEmptySteps(Runtime& runtime) {
  std::vector<float> none;
  for (int i = 0; i < kSteps; ++i) Succeed(runtime, Sum("empty", &none));
}

void ExpectSum(Runtime& runtime, const std::string& name) {
  std::vector<float> data(3, 1.0f);
  Succeed(runtime, Sum(name, &data));
  EXPECT_THAT(data, Each(float{kRanks}));
}

TEST(ScheduleRace, RankMayLeaveAScheduleThatRankZeroHasNotBegun) {
  RunWithLate(kCoordinatorRank, HasReportAfterSchedule, [](Runtime& runtime) {
    RunEmptySteps(runtime);
    ExpectSum(runtime, "new");
    EXPECT_EQ(runtime.statistics().schedules_left, 1u);
  });
}

TEST(ScheduleRace, IdleRankLeavesAScheduleThatRankZeroHasLeftBeforeItHasBegun) {
  RunWithLate(/*late=*/1, HasListAfterSchedule, [](Runtime& runtime) {
    const ProcessSetId set = testing::AddSet(runtime, {kCoordinatorRank});
    RunEmptySteps(runtime);
    if (runtime.topology().rank == kCoordinatorRank) Succeed(runtime, testing::Barrier("alone", set));
    while (runtime.statistics().schedules_left == 0) std::this_thread::yield();
    ExpectSum(runtime, "new");
    EXPECT_EQ(runtime.statistics().schedules_left, 1u);
  });
}

}  // namespace
}  // namespace ronda
