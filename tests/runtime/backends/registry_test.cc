// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/registry.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

using Carriers = std::map<absl::string_view, absl::Status>;

const absl::Status kNoLauncher = absl::FailedPreconditionError("no launcher of MPI has started the ranks");
const absl::Status kNoListener = absl::FailedPreconditionError("rank 3 listens nowhere");
const Carriers kNoMpi = {{"mpi", kNoLauncher}};
const Carriers kNoTcp = {{"tcp", kNoListener}};
const Carriers kNeither = {{"mpi", kNoLauncher}, {"tcp", kNoListener}};

struct Case {
  const char* name;
  HostSituation situation;
  std::string wanted;
  std::string chosen;
};

TEST(RegistryTest, BestBackendThatCanIsChosen) {
  const std::vector<Case> cases = {
      {"one host", {.hosts = 1, .most_ranks_on_a_host = 4, .carriers = kNoMpi}, "", "shm"},
      {"one host with MPI", {.hosts = 1, .most_ranks_on_a_host = 4}, "", "shm"},
      {"a rank on each host", {.hosts = 3, .most_ranks_on_a_host = 1}, "", "mpi"},
      {"the same without MPI", {.hosts = 3, .most_ranks_on_a_host = 1, .carriers = kNoMpi}, "", "tcp"},
      {"several on one of them", {.hosts = 3, .most_ranks_on_a_host = 2}, "", "hierarchical-mpi"},
      {"no MPI there", {.hosts = 3, .most_ranks_on_a_host = 2, .carriers = kNoMpi}, "", "hierarchical-tcp"},
      {"no TCP there", {.hosts = 3, .most_ranks_on_a_host = 2, .carriers = kNoTcp}, "", "hierarchical-mpi"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<absl::string_view> chosen = ChooseHostBackend(RateHostBackends(c.situation), c.wanted);
    ASSERT_TRUE(chosen.ok()) << c.name << ": " << chosen.status();
    EXPECT_EQ(*chosen, c.chosen) << c.name;
  }
}

TEST(RegistryTest, WantedBackendIsChosenIfItCan) {
  const std::vector<Case> cases = {
      {"MPI on one host", {.hosts = 1, .most_ranks_on_a_host = 4}, "mpi", "mpi"},
      {"TCP on one host", {.hosts = 1, .most_ranks_on_a_host = 4, .carriers = kNoMpi}, "tcp", "tcp"},
      {"flat", {.hosts = 2, .most_ranks_on_a_host = 2}, "mpi", "mpi"},
      {"flat, TCP", {.hosts = 2, .most_ranks_on_a_host = 2}, "tcp", "tcp"},
      {"two levels", {.hosts = 2, .most_ranks_on_a_host = 2}, "hierarchical", "hierarchical-mpi"},
      {"no MPI", {.hosts = 2, .most_ranks_on_a_host = 2, .carriers = kNoMpi}, "hierarchical", "hierarchical-tcp"},
      {"TCP beside MPI", {.hosts = 2, .most_ranks_on_a_host = 2}, "hierarchical-tcp", "hierarchical-tcp"},
      {"what is best", {.hosts = 2, .most_ranks_on_a_host = 2}, "hierarchical-mpi", "hierarchical-mpi"},
      {"shm", {.hosts = 1, .most_ranks_on_a_host = 2, .carriers = kNoMpi}, "shm", "shm"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<absl::string_view> chosen = ChooseHostBackend(RateHostBackends(c.situation), c.wanted);
    ASSERT_TRUE(chosen.ok()) << c.name << ": " << chosen.status();
    EXPECT_EQ(*chosen, c.chosen) << c.name;
  }
}

struct Refusal {
  HostSituation situation;
  std::string wanted;
  std::string reason;
};

TEST(RegistryTest, WantedBackendThatCannotIsRefusedWithItsReason) {
  const std::vector<Refusal> cases = {
      {{.hosts = 2, .most_ranks_on_a_host = 2}, "shm", "the ranks are on 2 hosts"},
      {{.hosts = 1, .most_ranks_on_a_host = 2}, "hierarchical", "data: all ranks are on one host"},
      {{.hosts = 2, .most_ranks_on_a_host = 1}, "hierarchical-tcp", "no two ranks share a host"},
      {{.hosts = 2, .most_ranks_on_a_host = 2, .carriers = kNoMpi}, "hierarchical-mpi", "no launcher of MPI"},
      {{.hosts = 2, .most_ranks_on_a_host = 2, .carriers = kNeither},
       "hierarchical",
       "no launcher of MPI has started the ranks; rank 3 listens nowhere"},
      {{.hosts = 1, .most_ranks_on_a_host = 2, .carriers = kNoMpi}, "mpi", "no launcher of MPI"},
      {{.hosts = 2, .most_ranks_on_a_host = 2, .carriers = kNoTcp}, "tcp", "rank 3 listens nowhere"},
  };
  for (const Refusal& c : cases) {
    const absl::Status status = ChooseHostBackend(RateHostBackends(c.situation), c.wanted).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << c.reason;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("RONDA_BACKEND=\"" + c.wanted + "\""), HasSubstr(c.reason)));
  }
}

TEST(RegistryTest, WithoutAnyBackendAllReasonsAreGiven) {
  const HostSituation situation = {.hosts = 2, .most_ranks_on_a_host = 2, .carriers = kNeither};
  const absl::Status status = ChooseHostBackend(RateHostBackends(situation), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("shm (no: the ranks are on 2 hosts)"),
                    HasSubstr("hierarchical-mpi (no: no launcher of MPI has started the ranks)"),
                    HasSubstr("mpi (no: no launcher"), HasSubstr("tcp (no: rank 3 listens nowhere")));
}

TEST(RegistryTest, RatingsArePrintedBestFirst) {
  EXPECT_EQ(ToString(RateHostBackends({.hosts = 2, .most_ranks_on_a_host = 4, .carriers = kNoTcp})),
            "hierarchical-mpi (score 200: shared memory on each of 2 hosts, MPI across), mpi (score 100: MPI between "
            "all ranks), shm (no: the ranks are on 2 hosts), hierarchical-tcp (no: rank 3 listens nowhere), tcp (no: "
            "rank 3 listens nowhere)");
}

TEST(RegistryTest, EveryEntryIsCompleteAndItsNameIsUnique) {
  std::set<absl::string_view> names;
  for (const HostBackend& backend : HostBackends()) {
    EXPECT_TRUE(names.insert(backend.name).second) << backend.name;
    EXPECT_FALSE(backend.help.empty()) << backend.name;
    EXPECT_GT(backend.score, 0) << backend.name;
    EXPECT_NE(backend.rate, nullptr) << backend.name;
    EXPECT_NE(backend.connect, nullptr) << backend.name;
    EXPECT_EQ(FindHostBackend(backend.name), &backend);
  }
  names.clear();
  for (const DeviceBackend& backend : AllDeviceBackends()) {
    EXPECT_TRUE(names.insert(backend.name).second) << backend.name;
    EXPECT_FALSE(backend.help.empty()) << backend.name;
    EXPECT_GT(backend.score, 0) << backend.name;
    EXPECT_NE(backend.rate, nullptr) << backend.name;
    EXPECT_NE(backend.connect, nullptr) << backend.name;
    EXPECT_EQ(FindDeviceBackend(backend.name), &backend);
  }
  EXPECT_EQ(FindHostBackend("gloo"), nullptr);
  EXPECT_EQ(FindDeviceBackend("gloo"), nullptr);
}

TEST(RegistryTest, FamiliesAreValuesOfTheVariableToo) {
  EXPECT_THAT(HostBackendNames(),
              IsSupersetOf({"shm", "hierarchical", "hierarchical-mpi", "hierarchical-tcp", "mpi", "tcp"}));
  EXPECT_THAT(DeviceBackendNames(),
              IsSupersetOf({"nccl", "hierarchical-staged", "staged", "hierarchical-nccl", "peer"}));
}

TEST(RegistryTest, NeedsOfAValueAreThoseOfTheBackendsItCanMean) {
  using Needs = Carrier::Needs;
  EXPECT_TRUE(MayNeed("hierarchical", Needs::kMpi));
  EXPECT_TRUE(MayNeed("hierarchical", Needs::kAddress));
  EXPECT_FALSE(AlwaysNeeds("hierarchical", Needs::kMpi));
  EXPECT_TRUE(AlwaysNeeds("hierarchical-mpi", Needs::kMpi));
  EXPECT_TRUE(AlwaysNeeds("tcp", Needs::kAddress));
  EXPECT_FALSE(MayNeed("mpi", Needs::kAddress));
  EXPECT_FALSE(MayNeed("shm", Needs::kMpi));
  EXPECT_TRUE(MayNeed("", Needs::kMpi));
  EXPECT_FALSE(AlwaysNeeds("", Needs::kMpi));
  EXPECT_FALSE(MayNeed("gloo", Needs::kMpi));
  EXPECT_FALSE(AlwaysNeeds("gloo", Needs::kMpi));
}

TEST(RegistryTest, UnknownNameIsRefused) {
  const absl::Status status = ChooseHostBackend(RateHostBackends({}), "gloo").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no RONDA_BACKEND=\"gloo\""));
}

}  // namespace
}  // namespace ronda
