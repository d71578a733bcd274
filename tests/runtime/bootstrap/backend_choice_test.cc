#include "runtime/bootstrap/backend_choice.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Status kNoMpi = absl::FailedPreconditionError("no launcher of MPI has started the ranks");
const absl::Status kNoTcp = absl::FailedPreconditionError("rank 3 listens nowhere");

struct Case {
  const char* what;
  BackendSituation situation;
  std::string wanted;
  Backend chosen;
};

TEST(BackendChoiceTest, BestBackendThatCanIsChosen) {
  const std::vector<Case> cases = {
      {"one host", {.hosts = 1, .most_ranks_on_a_host = 4, .mpi = kNoMpi}, "", Backend::kShm},
      {"one host with MPI", {.hosts = 1, .most_ranks_on_a_host = 4}, "", Backend::kShm},
      {"a rank on each host", {.hosts = 3, .most_ranks_on_a_host = 1}, "", Backend::kMpi},
      {"the same without MPI", {.hosts = 3, .most_ranks_on_a_host = 1, .mpi = kNoMpi}, "", Backend::kTcp},
      {"several on one of them", {.hosts = 3, .most_ranks_on_a_host = 2}, "", Backend::kHierarchicalMpi},
      {"no MPI there", {.hosts = 3, .most_ranks_on_a_host = 2, .mpi = kNoMpi}, "", Backend::kHierarchicalTcp},
      {"no TCP there", {.hosts = 3, .most_ranks_on_a_host = 2, .tcp = kNoTcp}, "", Backend::kHierarchicalMpi},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Backend> chosen = ChooseBackend(RateBackends(c.situation), c.wanted);
    ASSERT_TRUE(chosen.ok()) << c.what << ": " << chosen.status();
    EXPECT_EQ(Name(*chosen), Name(c.chosen)) << c.what;
  }
}

TEST(BackendChoiceTest, WantedBackendIsChosenIfItCan) {
  const std::vector<Case> cases = {
      {"MPI on one host", {.hosts = 1, .most_ranks_on_a_host = 4}, "mpi", Backend::kMpi},
      {"TCP on one host", {.hosts = 1, .most_ranks_on_a_host = 4, .mpi = kNoMpi}, "tcp", Backend::kTcp},
      {"flat", {.hosts = 2, .most_ranks_on_a_host = 2}, "mpi", Backend::kMpi},
      {"flat, TCP", {.hosts = 2, .most_ranks_on_a_host = 2}, "tcp", Backend::kTcp},
      {"two levels", {.hosts = 2, .most_ranks_on_a_host = 2}, "hierarchical", Backend::kHierarchicalMpi},
      {"no MPI", {.hosts = 2, .most_ranks_on_a_host = 2, .mpi = kNoMpi}, "hierarchical", Backend::kHierarchicalTcp},
      {"TCP beside MPI", {.hosts = 2, .most_ranks_on_a_host = 2}, "hierarchical-tcp", Backend::kHierarchicalTcp},
      {"what is best", {.hosts = 2, .most_ranks_on_a_host = 2}, "hierarchical-mpi", Backend::kHierarchicalMpi},
      {"shm", {.hosts = 1, .most_ranks_on_a_host = 2, .mpi = kNoMpi}, "shm", Backend::kShm},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Backend> chosen = ChooseBackend(RateBackends(c.situation), c.wanted);
    ASSERT_TRUE(chosen.ok()) << c.what << ": " << chosen.status();
    EXPECT_EQ(Name(*chosen), Name(c.chosen)) << c.what;
  }
}

struct Refusal {
  BackendSituation situation;
  std::string wanted;
  std::string reason;
};

TEST(BackendChoiceTest, WantedBackendThatCannotIsRefusedWithItsReason) {
  const std::vector<Refusal> cases = {
      {{.hosts = 2, .most_ranks_on_a_host = 2}, "shm", "the ranks are on 2 hosts"},
      {{.hosts = 1, .most_ranks_on_a_host = 2}, "hierarchical", "data: all ranks are on one host"},
      {{.hosts = 2, .most_ranks_on_a_host = 1}, "hierarchical-tcp", "no two ranks share a host"},
      {{.hosts = 2, .most_ranks_on_a_host = 2, .mpi = kNoMpi}, "hierarchical-mpi", "no launcher of MPI"},
      {{.hosts = 2, .most_ranks_on_a_host = 2, .mpi = kNoMpi, .tcp = kNoTcp},
       "hierarchical",
       "no launcher of MPI has started the ranks; rank 3 listens nowhere"},
      {{.hosts = 1, .most_ranks_on_a_host = 2, .mpi = kNoMpi}, "mpi", "no launcher of MPI"},
      {{.hosts = 2, .most_ranks_on_a_host = 2, .tcp = kNoTcp}, "tcp", "rank 3 listens nowhere"},
  };
  for (const Refusal& c : cases) {
    const absl::Status status = ChooseBackend(RateBackends(c.situation), c.wanted).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << c.reason;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("RONDA_BACKEND=\"" + c.wanted + "\""), HasSubstr(c.reason)));
  }
}

TEST(BackendChoiceTest, WithoutAnyBackendAllReasonsAreGiven) {
  const BackendSituation situation = {.hosts = 2, .most_ranks_on_a_host = 2, .mpi = kNoMpi, .tcp = kNoTcp};
  const absl::Status status = ChooseBackend(RateBackends(situation), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("shm (no: the ranks are on 2 hosts)"),
                    HasSubstr("hierarchical-mpi (no: no launcher of MPI has started the ranks)"),
                    HasSubstr("mpi (no: no launcher"), HasSubstr("tcp (no: rank 3 listens nowhere")));
}

TEST(BackendChoiceTest, RatingsArePrintedBestFirst) {
  EXPECT_EQ(ToString(RateBackends({.hosts = 2, .most_ranks_on_a_host = 4, .tcp = kNoTcp})),
            "hierarchical-mpi (score 200: shared memory on each of 2 hosts, MPI across), mpi (score 100: MPI between "
            "all ranks), shm (no: the ranks are on 2 hosts), hierarchical-tcp (no: rank 3 listens nowhere), tcp (no: "
            "rank 3 listens nowhere)");
}

}  // namespace
}  // namespace ronda
