// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/backends/left_ranks.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/backends/job.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/config.h"
#include "runtime/engine/runtime.h"
#include "tests/testing/await.h"

namespace ronda::testing {
namespace {

// Waits until each rank has written a file into the directory WORDS. Otherwise, mpirun might kill a rank too soon,
// because it kills all ranks when one of them ends without MPI_Finalize.
void AwaitTheOthersWords(int size) {
  const std::filesystem::path directory = std::getenv("WORDS");
  std::ofstream(directory / absl::StrCat(getpid()));
  const auto words = [&] { return std::distance(std::filesystem::directory_iterator(directory), {}); };
  EXPECT_TRUE(Await([&] { return words() >= size; }));
}

}  // namespace

void IsLeftByTheLastRank() {
  const absl::StatusOr<Config> config = ReadConfig(ProcessEnvironment());
  ASSERT_TRUE(config.ok()) << config.status();
  absl::StatusOr<ConnectedJob> job = ConnectJob(*config);
  ASSERT_TRUE(job.ok()) << job.status();
  const int size = config->job.size;
  auto runtime = Runtime::Create({.tunables = config->tunables}, job->topology, std::move(job->transport));
  const auto wait = [&](const std::string& name) {
    const auto handle = runtime->Submit({.request = {.name = name, .op = OpType::kBarrier}});
    return handle.ok() ? (*handle)->Wait() : handle.status();
  };
  // The first barrier may fail, because the last rank may give up before all other ranks have passed it.
  wait("all are here").IgnoreError();
  if (config->job.rank < size - 1) {
    EXPECT_FALSE(wait("not all come").ok());
    const absl::Status told = runtime->Shutdown();
    std::printf("rank %d was told: %s\n", config->job.rank, std::string(told.message()).c_str());
  }
  runtime.reset();
  std::fflush(stdout);
  AwaitTheOthersWords(size);
}

}  // namespace ronda::testing
