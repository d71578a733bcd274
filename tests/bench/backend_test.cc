#include "bench/backend.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace ronda::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What --backend=`text` is read as.
std::vector<Backend> Read(const std::string& text, absl::Status* status) {
  std::vector<Backend> backends = {Backend::kShm};
  Flags flags("test", "");
  AddBackendFlag(&flags, "Backends", &backends);
  *status = flags.Parse({"--backend", text});
  return backends;
}

TEST(BackendTest, ThoseThatTakeTurnsAreAListAndTheOthersStandAlone) {
  absl::Status status;
  EXPECT_THAT(Read("inprocess,shm", &status), ElementsAre(Backend::kInProcess, Backend::kShm));
  EXPECT_THAT(Read("all", &status), ElementsAre(Backend::kShm, Backend::kInProcess));
  EXPECT_THAT(Read("hierarchical-tcp", &status), ElementsAre(Backend::kHierarchicalTcp));
  EXPECT_TRUE(status.ok()) << status;
  for (const char* mistake : {"shm,mpi", "mpi,tcp", "nccl", ""}) {
    EXPECT_THAT(Read(mistake, &status), ElementsAre(Backend::kShm));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("one of mpi, tcp, hierarchical"));
  }
}

TEST(BackendTest, OnlyThoseThatStandAloneAreTheJobs) {
  EXPECT_EQ(JobBackend({Backend::kShm, Backend::kInProcess}), "");
  EXPECT_EQ(JobBackend({Backend::kHierarchicalMpi}), "hierarchical-mpi");
}

TEST(BackendTest, EveryNameIsThatOfItsBackend) {
  for (const std::string& name : BackendNames()) EXPECT_EQ(Name(BackendOf(name)), name);
  EXPECT_EQ(Name(Backend::kShm), "shm");
  EXPECT_EQ(Name(Backend::kInProcess), "inprocess");
}

}  // namespace
}  // namespace ronda::bench
