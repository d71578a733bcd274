// SPDX-License-Identifier: Apache-2.0

// Tests the guarantees of ControlPlane for any implementation.
//
//   INSTANTIATE_TEST_SUITE_P(Mine, ControlPlaneTest, ::testing::ValuesIn({...}), NameOfControlRanks);
#ifndef RONDA_TESTS_RUNTIME_CONTROL_CONTROL_PLANE_SUITE_H_
#define RONDA_TESTS_RUNTIME_CONTROL_CONTROL_PLANE_SUITE_H_

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/control_plane.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {

// A job whose ranks are in this process and have the same kind of control plane.
struct ControlRanks {
  std::string name;
  int size;
  // Returns one transport per rank, whose communicator may be nullptr. If the ranks do not connect, fails the test and
  // returns an empty list.
  std::function<std::vector<Transport>()> connect;
};

inline std::ostream& operator<<(std::ostream& out, const ControlRanks& ranks) {
  return out << ranks.name << " with " << ranks.size << " ranks";
}

// Returns a name such as "Shm3" (backend and number of ranks).
inline std::string NameOfControlRanks(const ::testing::TestParamInfo<ControlRanks>& info) {
  return absl::StrCat(info.param.name, info.param.size);
}

class ControlPlaneTest : public ::testing::TestWithParam<ControlRanks> {
 protected:
  void SetUp() override {
    transports_ = GetParam().connect();
    ASSERT_EQ(transports_.size(), static_cast<size_t>(size()));
  }

  // Makes all ranks leave together. If a rank left alone, the job would fail, and the other ranks would wait for it.
  void TearDown() override {
    for (Transport& transport : transports_) {
      if (transport.control != nullptr) transport.control->Depart();
    }
  }

  int size() const { return GetParam().size; }
  ControlPlane& control(RankId rank) { return *transports_[rank].control; }
  void Destroy(RankId rank) { transports_[rank].control.reset(); }

  // Runs body(rank, control plane) for each rank, on its own thread. If an expectation in `body` fails, its text names
  // the rank.
  template <typename Body>
  void OnEveryRank(const Body& body) {
    RunRanksOn(transports_, [&](RankId rank, Transport& transport) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      body(rank, *transport.control);
    });
  }

  // Returns when a wait must have ended, however busy the machine is. A test that waits longer has failed.
  static absl::Time Deadline() { return SteadyNow() + absl::Minutes(1); }

  // Receives until `done` accepts the messages so far, and returns them. At the deadline, fails the test, and still
  // returns the messages so far.
  template <typename Done>
  static ControlPlane::Inbox ReceiveUntil(ControlPlane& control, const Done& done) {
    ControlPlane::Inbox all;
    const absl::Time deadline = Deadline();
    while (SteadyNow() < deadline) {
      absl::StatusOr<ControlPlane::Inbox> more = control.Receive();
      EXPECT_TRUE(more.ok()) << more.status();
      if (!more.ok()) return all;
      for (ControlMessage& message : more->to_coordinator) all.to_coordinator.push_back(std::move(message));
      for (std::string& message : more->broadcasts) all.broadcasts.push_back(std::move(message));
      all.unlock_requested = more->unlock_requested;
      if (done(all)) return all;
      control.Wait(deadline);
    }
    ADD_FAILURE() << "after a minute only " << all.to_coordinator.size() << " reports and " << all.broadcasts.size()
                  << " broadcasts have come, and schedule " << all.unlock_requested << " has been requested to unlock";
    return all;
  }

 private:
  std::vector<Transport> transports_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_CONTROL_PLANE_SUITE_H_
