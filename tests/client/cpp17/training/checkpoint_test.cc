// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/checkpoint.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// If true, allocations of 1 MB or more fail in this thread.
thread_local bool lacks_memory = false;

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = lacks_memory && bytes >= 1000000 ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using ronda::training::CheckpointOptions;
using ronda::training::Checkpoints;
using ronda::training::Resumed;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : folder_(fs::path(::testing::TempDir()) / ("checkpoints." + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  CheckpointOptions options(int keep = 3) const {
    CheckpointOptions options;
    options.folder = folder_.string();
    options.keep = keep;
    return options;
  }

  // Saves a state in a job of one rank. Every element of the state is `step`.
  void save(std::int64_t step, int keep = 3) const {
    ronda::run_threads(1, [&] {
      std::vector<float> w(1000, static_cast<float>(step));
      Checkpoints(options(keep)).save(step, {ronda::tensor("w", w)}, "at " + std::to_string(step));
    });
  }

  // Resumes from the newest checkpoint, and checks that all elements come from the same step.
  Resumed resume() const {
    Resumed resumed;
    ronda::run_threads(1, [&] {
      std::vector<float> w(1000, -1);
      resumed = Checkpoints(options()).resume({ronda::tensor("w", w)});
      EXPECT_THAT(w, Each(static_cast<float>(resumed.step)));
      EXPECT_EQ(resumed.extra, resumed.step < 0 ? "" : "at " + std::to_string(resumed.step));
    });
    return resumed;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.push_back(entry.path().filename().string());
    std::sort(files.begin(), files.end());
    return files;
  }

  fs::path path(const std::string& file) const { return folder_ / file; }

 private:
  const fs::path folder_;
};

TEST_F(CheckpointTest, RestoresWhatRankZeroHadOnEveryRank) {
  ronda::run_threads(3, [&] {
    const auto me = static_cast<float>(ronda::rank());
    std::vector<float> w = {1 + me, 2 + me};
    std::vector<std::int64_t> counts = {7};
    const std::vector<ronda::Tensor> state = {ronda::tensor("w", w.data(), {1, 2}), ronda::tensor("counts", counts)};
    Checkpoints checkpoints(options());
    EXPECT_EQ(checkpoints.resume(state).step, -1);
    EXPECT_EQ(w[0], 1 + me);
    checkpoints.save(41, state, std::string("a\0b", 3));
    w = {0, 0};
    counts = {0};
    const Resumed resumed = checkpoints.resume(state);
    EXPECT_EQ(resumed.step, 41);
    EXPECT_EQ(resumed.extra, std::string("a\0b", 3));
    EXPECT_THAT(w, ElementsAre(1, 2));
    EXPECT_THAT(counts, ElementsAre(7));
  });
}

TEST_F(CheckpointTest, KeepsTheLastOnes) {
  for (const int step : {10, 20, 1000}) save(step, 2);
  EXPECT_THAT(files(), ElementsAre("checkpoint-000000000020.ronda", "checkpoint-000000001000.ronda"));
  // A new checkpoint is kept, even if there are enough checkpoints of later steps.
  save(5, 2);
  EXPECT_THAT(files(), ElementsAre("checkpoint-000000000005.ronda", "checkpoint-000000000020.ronda",
                                   "checkpoint-000000001000.ronda"));
  EXPECT_EQ(resume().step, 1000);
}

TEST_F(CheckpointTest, ADamagedFileIsNamedAndTheOneBeforeIsTaken) {
  for (const int step : {1, 2, 3}) save(step);
  std::fstream(path("checkpoint-000000000003.ronda"), std::ios::in | std::ios::out | std::ios::binary).seekp(500)
      << 'x';
  fs::resize_file(path("checkpoint-000000000002.ronda"), 2000);
  std::ofstream(path("checkpoint-000000000004.ronda")) << "short";
  fs::copy_file(path("checkpoint-000000000001.ronda"), path("checkpoint-000000000005.ronda"));
  std::ofstream(path("checkpoint-6.ronda")) << "of another name";
  const Resumed resumed = resume();
  EXPECT_EQ(resumed.step, 1);
  EXPECT_THAT(resumed.problems, ElementsAre(HasSubstr("000005.ronda is damaged: it is of step 1"),
                                            HasSubstr("000004.ronda is damaged: it is too short"),
                                            HasSubstr("000003.ronda is damaged: its checksum does not match"),
                                            HasSubstr("000002.ronda is damaged: its checksum does not match")));
}

TEST_F(CheckpointTest, AFileThatCannotBeReadIsAnErrorAndNoOlderOneIsTaken) {
  save(1);
  const fs::path newest = path("checkpoint-000000000002.ronda");
  fs::create_symlink(newest, newest);
  ronda::run_threads(2, [&] {
    std::vector<float> w(1000, -1);
    const auto resumed = Checkpoints(options()).try_resume({ronda::tensor("w", w)});
    EXPECT_EQ(resumed.status().code(), RONDA_ERROR_INTERNAL);
    EXPECT_EQ(resumed.status().message(), "cannot read checkpoint " + newest.string() +
                                              ": Too many levels of symbolic links. Resume again when it can be read; "
                                              "or move it to another folder, to go on from the checkpoint before");
  });
  fs::remove(newest);
  EXPECT_EQ(resume().step, 1);
}

TEST_F(CheckpointTest, OtherTensorsAreAnErrorThatChangesNothing) {
  save(1);
  ronda::run_threads(2, [&] {
    std::vector<float> w(1000, -1), other(999, -1);
    Checkpoints checkpoints(options());
    const auto shape = checkpoints.try_resume({ronda::tensor("w", other)});
    EXPECT_EQ(shape.status().code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(shape.status().message(), HasSubstr("tensor 'w' with shape [1000]"));
    EXPECT_THAT(checkpoints.try_resume({ronda::tensor("v", w)}).status().message(),
                HasSubstr("has tensor 'w' where the program has 'v'"));
    EXPECT_THAT(checkpoints.try_resume({ronda::tensor("w", w), ronda::tensor("b", other)}).status().message(),
                HasSubstr("has 1 tensors, and the program 2"));
    EXPECT_THAT(w, Each(-1));
    EXPECT_THAT(other, Each(-1));
  });
}

TEST_F(CheckpointTest, ADiskThatIsFullLeavesTheCheckpointsBefore) {
  save(1);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {2000, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  ronda::run_threads(2, [&] {
    std::vector<float> w(1000);
    const ronda::Status status = Checkpoints(options()).try_save(2, {ronda::tensor("w", w)});
    EXPECT_EQ(status.code(), RONDA_ERROR_INTERNAL);
    EXPECT_THAT(status.message(), HasSubstr("checkpoint-000000000002.ronda: File too large"));
  });
  const rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  EXPECT_THAT(files(), ElementsAre("checkpoint-000000000001.ronda"));
  EXPECT_EQ(resume().step, 1);
}

TEST_F(CheckpointTest, ALackOfMemoryOnRankZeroIsAnErrorOnEveryRank) {
  ronda::run_threads(2, [&] {
    std::vector<float> w(10, 1);
    Checkpoints checkpoints(options());
    checkpoints.save(1, {ronda::tensor("w", w)}, std::string(1000000, 'x'));
    lacks_memory = ronda::rank() == 0;
    const ronda::Status status = checkpoints.try_resume({ronda::tensor("w", w)}).status();
    lacks_memory = false;
    EXPECT_EQ(status.code(), RONDA_ERROR_OUT_OF_MEMORY);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 has not enough memory"));
    EXPECT_EQ(checkpoints.resume({ronda::tensor("w", w)}).step, 1);
  });
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeOrListedIsNamedOnEveryRank) {
  std::ofstream(path("").parent_path()) << "a file";
  ronda::run_threads(2, [&] {
    Checkpoints checkpoints(options());
    const std::string folder = options().folder;
    EXPECT_EQ(checkpoints.try_save(1, {}).message(), "cannot make folder " + folder + ": File exists");
    EXPECT_EQ(checkpoints.try_resume({}).status().message(), "cannot list folder " + folder + ": Not a directory");
  });
}

TEST_F(CheckpointTest, RefusesWhatCannotBeSaved) {
  EXPECT_THROW(Checkpoints({}), ronda::Error);
  EXPECT_THROW(Checkpoints(options(0)), ronda::Error);
  ronda::run_threads(1, [&] {
    float on_device = 0;
    ronda::Tensor tensor = ronda::tensor("w", &on_device);
    tensor.memory = RONDA_MEMORY_CUDA;
    EXPECT_THAT(Checkpoints(options()).try_save(1, {tensor}).message(), HasSubstr("'w' is in a GPU's memory"));
    EXPECT_EQ(Checkpoints(options()).try_save(-1, {}).code(), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST_F(CheckpointTest, TensorWithoutElementsToReadIsNamedOnEveryRank) {
  ronda::run_threads(2, [&] {
    Checkpoints checkpoints(options());
    float value = 0;
    const ronda::Tensor null = ronda::tensor("null", static_cast<float*>(nullptr), {3});
    const ronda::Tensor negative = ronda::tensor("negative", &value, {2, -1});
    EXPECT_THAT(checkpoints.try_save(1, {null}).message(), HasSubstr("tensor 'null' has a null pointer, and elements"));
    EXPECT_THAT(checkpoints.try_save(1, {negative}).message(), HasSubstr("tensor 'negative' has a shape with a neg"));
    const ronda::Tensor good = ronda::tensor("null", &value, {1}), none = ronda::tensor<float>("none", nullptr, {0});
    checkpoints.save(1, {good, none});
    EXPECT_THAT(checkpoints.try_resume({null, none}).status().message(), HasSubstr("tensor 'null' has a null pointer"));
  });
}

TEST_F(CheckpointTest, NameThatTwoTensorsHaveIsRefusedWhenTheyAreSaved) {
  ronda::run_threads(2, [&] {
    Checkpoints checkpoints(options());
    float first = 1, second = 2;
    EXPECT_EQ(checkpoints.try_save(1, {ronda::tensor("w", &first), ronda::tensor("w", &second)}).message(),
              "checkpoint: two tensors are named 'w': give each its own name");
    const std::vector<ronda::Tensor> unnamed = {ronda::tensor("", &first), ronda::tensor("", &second)};
    checkpoints.save(2, unnamed);
    first = second = 0;
    checkpoints.resume(unnamed);
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 2);
  });
}

}  // namespace
