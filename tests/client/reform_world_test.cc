// SPDX-License-Identifier: Apache-2.0

// Tests ranks that leave a job because one rank has died, or because the test tells them to leave. The processes then
// meet again in the next epoch of the job. The test acts as the launcher: it decides which processes are members, and
// which rank each of them gets.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/commanded_process.h"
#include "tests/testing/fake_gpu/fake_gpu.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::CommandedProcess;
using ronda::testing::FakeGpuArray;
using ronda::testing::FakeGpuStream;
using ronda::testing::LineReader;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::TestWithParam;
using ::testing::Values;

// -- The member's side: a program that obeys commands --

int CountEntries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

int CountMappingsOfJobs() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += absl::StrContains(line, "ronda-") ? 1 : 0;
  return count;
}

int64_t ResidentKilobytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * (getpagesize() / 1024);
}

// A trainer's memory on its GPU, kept across epochs.
struct Gpu {
  explicit Gpu(int device) : stream(device) {}

  const FakeGpuStream stream;
  const FakeGpuArray<float> small{stream, 3};
  const FakeGpuArray<float> large{stream, 200'000};

  ronda::Tensor View(const std::string& name, const FakeGpuArray<float>& array) const {
    return ronda::cuda_tensor(name, array.data(), {static_cast<std::int64_t>(array.size())}, stream.handle());
  }
};

// REFORM_GPU is the number of a member's GPU. If it is not set, tensors are in host memory.
std::unique_ptr<Gpu> GpuOfEnvironment() {
  const char* const device = std::getenv("REFORM_GPU");
  return device == nullptr ? nullptr : std::make_unique<Gpu>(std::atoi(device));
}

class Member {
 public:
  void Obey() {
    while (std::optional<std::string> order = orders_.Next(absl::InfiniteDuration())) {
      std::istringstream words(*order);
      std::string verb;
      words >> verb;
      if (verb == "join") Join(words);
      if (verb == "train") Train(words);
      if (verb == "leave") Answer("left", ronda::try_shutdown());
      if (verb == "count") Count();
    }
  }

 private:
  static void Say(const std::string& line) {
    const std::string text = line + "\n";
    if (write(STDOUT_FILENO, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  }

  static void Answer(const std::string& what, const ronda::Status& status) {
    Say(absl::StrCat(what, " ", static_cast<int>(status.code()), status.recoverable() ? " recoverable " : " ",
                     status.message()));
  }

  // The command is "join EPOCH RANK SIZE PORT [SECONDS]". If PORT is 0, the environment names the job.
  static void Join(std::istream& words) {
    ronda::Options options;
    options.place.emplace();
    words >> options.epoch >> options.place->rank >> options.place->size >> options.master_port;
    if (double seconds = 0; words >> seconds) options.start_timeout = ronda::Options::Seconds(seconds);
    Answer("joined", ronda::try_init(options));
  }

  // The command is "train STEP". Trains until the job must stop, or fails. If STEP is not negative, announces the
  // beginning of step STEP.
  void Train(std::istream& words) {
    int announced = -1;
    words >> announced;
    is_told_to_stop_ = false;
    bool stop = false;
    for (int step = 0; !stop; ++step) {
      if (step == announced) Say("step");
      try {
        stop = Step(step);
      } catch (const ronda::Error& error) {
        return Answer("failed", ronda::Status(error.code(), error.what()));
      }
    }
    Say(is_right_ ? "stopped" : "stopped with wrong sums");
  }

  // Computes a small and a large sum, which every rank can check. The ranks also vote on whether any rank must stop.
  bool Step(int step) {
    const auto own = static_cast<float>(ronda::rank() + 1 + step % 100);
    const int size = ronda::size();
    const auto expected = static_cast<float>(size * (size + 1) / 2 + size * (step % 100));
    std::vector<float> small(3, own), large(200'000, own);
    if (gpu_ != nullptr) gpu_->small.Set(small), gpu_->large.Set(large);
    is_told_to_stop_ = is_told_to_stop_ || orders_.Next(absl::ZeroDuration()).has_value();
    int stop = is_told_to_stop_ ? 1 : 0;
    {
      std::vector<ronda::Handle> handles;
      const auto view = [&](const std::string& name, std::vector<float>& host, const FakeGpuArray<float> Gpu::*array) {
        return gpu_ == nullptr ? ronda::tensor(name, host) : gpu_->View(name, (*gpu_).*array);
      };
      handles.push_back(ronda::allreduce_async(view("large", large, &Gpu::large), {ronda::Op::Sum}));
      handles.push_back(ronda::allreduce_async(view("small", small, &Gpu::small), {ronda::Op::Sum}));
      handles.push_back(ronda::allreduce_async(ronda::tensor("stop", &stop), {ronda::Op::Max}));
      for (ronda::Handle& handle : handles) handle.synchronize();
    }
    if (gpu_ != nullptr) small = gpu_->small.Get(), large = gpu_->large.Get();
    const auto is_sum = [expected](float value) { return value == expected; };
    is_right_ =
        is_right_ && std::all_of(small.begin(), small.end(), is_sum) && std::all_of(large.begin(), large.end(), is_sum);
    return stop != 0;
  }

  void Count() const {
    std::string counts = absl::StrCat(CountEntries("/proc/self/fd"), " ", CountEntries("/proc/self/task"), " ",
                                      CountMappingsOfJobs(), " ", ResidentKilobytes());
    if (gpu_ != nullptr) {
      const ronda::testing::FakeNcclCounts nccl = ronda::testing::CountFakeNcclCommunicators();
      absl::StrAppend(&counts, " ", nccl.live, " ", nccl.made, " ", nccl.aborted, " ", ronda::testing::FakeGpuLeaks());
    }
    Say(counts);
  }

  LineReader orders_{STDIN_FILENO};
  const std::unique_ptr<Gpu> gpu_ = GpuOfEnvironment();
  bool is_right_ = true;
  bool is_told_to_stop_ = false;
};

void Obeys() {
  // If a test is killed, no member keeps training forever.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Member().Obey();
}

const std::vector<ronda::testing::RankProgram> kPrograms = {{"Obeys", Obeys}};

// -- The test's side --

enum class Meeting { kInSharedMemory, kAtAnAddress, kWithTensorsOnGpus };

std::string NameOf(const ::testing::TestParamInfo<Meeting>& info) {
  if (info.param == Meeting::kWithTensorsOnGpus) return "WithTensorsOnGpus";
  return info.param == Meeting::kInSharedMemory ? "InSharedMemory" : "AtAnAddress";
}

struct Resources {
  int descriptors = 0;
  int threads = 0;
  int mappings = 0;
  int64_t kilobytes = 0;
  int live_communicators = 0;  // of NCCL, here and below
  int made_communicators = 0;
  int aborted_communicators = 0;
  std::string of_gpus;
};

class ReformTest : public TestWithParam<Meeting> {
 protected:
  ReformTest() : job_id_(NewJobId()) {
    if (GetParam() == Meeting::kAtAnAddress) port_ = ronda::testing::FreePort();
  }

  ~ReformTest() override {
    members_.clear();
    std::vector<std::string> left;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
      if (absl::StrContains(file.path().string(), job_id_)) left.push_back(file.path());
    }
    EXPECT_THAT(left, IsEmpty());
  }

  static std::string NewJobId() {
    static std::atomic<int> jobs{0};
    return absl::StrCat("test-reform-", getpid(), "-", jobs++);
  }

  std::unique_ptr<CommandedProcess> NewMember() const {
    std::vector<std::pair<std::string, std::string>> env;
    if (GetParam() != Meeting::kAtAnAddress) env.emplace_back("RONDA_JOB_ID", job_id_);
    if (GetParam() == Meeting::kWithTensorsOnGpus) AddGpu(&env);
    return std::make_unique<CommandedProcess>("Obeys", env);
  }

  // Gives a new member a GPU. The member keeps the GPU, and its memory on it, even if its rank changes.
  static void AddGpu(std::vector<std::pair<std::string, std::string>>* env) {
    static std::atomic<int> gpus{0};
    const int gpu = gpus++;
    env->emplace_back("RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath);
    env->emplace_back("RONDA_NCCL_LIBRARY", ronda::testing::kFakeNcclLibraryPath);
    env->emplace_back("RONDA_DEVICE_BACKEND", "nccl");
    env->emplace_back("FAKE_CUDA_STRICT", "1");
    env->emplace_back("FAKE_CUDA_DEVICES", absl::StrCat(gpu + 1));
    env->emplace_back("REFORM_GPU", absl::StrCat(gpu));
  }

  void AddMembers(int count) {
    for (int i = 0; i < count; ++i) members_.push_back(NewMember());
  }

  void TellToJoin(CommandedProcess& member, int64_t epoch, size_t rank, size_t size,
                  const std::string& timeout = "") const {
    member.Tell(absl::StrCat("join ", epoch, " ", rank, " ", size, " ", port_, " ", timeout));
  }

  void TellAll(const std::string& order) {
    for (const auto& member : members_) member->Tell(order);
  }

  void ExpectOfAll(const std::string& beginning) {
    for (const auto& member : members_) EXPECT_THAT(member->Hear(), StartsWith(beginning));
  }

  // Makes all members join the next epoch. Member `first` of the list gets rank 0, the next member rank 1, and so on,
  // wrapping around at the end of the list.
  void Meet(size_t first = 0) {
    ++epoch_;
    const size_t size = members_.size();
    for (size_t i = 0; i < size; ++i) TellToJoin(*members_[i], epoch_, (i + size - first % size) % size, size);
    ExpectOfAll("joined 0");
  }

  // All members train, and member `victim` is killed after it has begun step `step`. The other members notice its
  // death, and leave the epoch.
  void KillInTraining(size_t victim, int step) {
    for (size_t i = 0; i < members_.size(); ++i) members_[i]->Tell(absl::StrCat("train ", i == victim ? step : -1));
    EXPECT_EQ(members_[victim]->Hear(), "step");
    const std::string name = absl::StrCat("pid ", members_[victim]->pid());
    members_[victim]->Kill();
    members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(victim));
    const std::string failed = absl::StrCat(static_cast<int>(RONDA_ERROR_PEER_FAILED), " recoverable");
    for (const auto& member : members_) {
      EXPECT_THAT(member->Hear(), AllOf(StartsWith("failed " + failed), HasSubstr(name)));
    }
    TellAll("leave");
    ExpectOfAll("left " + failed);
  }

  // All members train for a while, find all sums correct, and leave together.
  void TrainAndLeave() {
    TellAll("train -1");
    members_.back()->Tell("stop");
    ExpectOfAll("stopped");
    TellAll("leave");
    ExpectOfAll("left 0");
  }

  static Resources CountOf(CommandedProcess& member) {
    member.Tell("count");
    Resources counted;
    std::istringstream counts(member.Hear());
    counts >> counted.descriptors >> counted.threads >> counted.mappings >> counted.kilobytes;
    counts >> counted.live_communicators >> counted.made_communicators >> counted.aborted_communicators;
    std::getline(counts, counted.of_gpus);
    return counted;
  }

  const std::string job_id_;
  std::string port_ = "0";
  int64_t epoch_ = 0;
  std::vector<std::unique_ptr<CommandedProcess>> members_;  // the oldest first
};

TEST_P(ReformTest, SurvivorsOfKilledRanksGoOnAndAFreshProcessJoinsThem) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  AddMembers(4);
  for (const size_t size : {4, 3}) {
    Meet();
    KillInTraining(random() % size, static_cast<int>(random() % 20));
  }
  Meet();
  TrainAndLeave();
  AddMembers(1);
  Meet();
  TrainAndLeave();
  for (const auto& member : members_) member->ExpectEnd();
}

TEST_P(ReformTest, TheOldestSurvivorTakesThePlaceOfRankZero) {
  AddMembers(4);
  for (int step = 0; step < 2; ++step) {
    Meet();
    KillInTraining(0, step);
  }
  Meet();
  TrainAndLeave();
}

// A member dies while the members connect. The other members wait for it until their time limit, or notice its death.
// Then they meet in the next epoch.
TEST_P(ReformTest, AMemberThatDiesWhileTheyMeetIsLeftBehind) {
  constexpr char kSeconds[] = "1";
  for (const size_t victim : {2, 0}) {
    SCOPED_TRACE(absl::StrCat("rank ", victim));
    members_.clear();
    AddMembers(3);
    ++epoch_;
    for (size_t rank = 0; rank < 2; ++rank) TellToJoin(*members_[rank], epoch_, rank, 3, kSeconds);
    members_[victim]->Kill();
    members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(victim));
    if (victim == 0) TellToJoin(*members_[1], epoch_, 2, 3, kSeconds);
    for (const auto& member : members_) {
      EXPECT_THAT(
          member->Hear(),
          AnyOf(StartsWith(absl::StrCat("joined ", static_cast<int>(RONDA_ERROR_DEADLINE), " recoverable")),
                StartsWith(absl::StrCat("joined ", static_cast<int>(RONDA_ERROR_PEER_FAILED), " recoverable"))));
    }
    Meet();
    TrainAndLeave();
  }
}

// In every epoch, one of three members is killed and replaced. The first member survives, and gets a different rank in
// each epoch.
TEST_P(ReformTest, SurvivorKeepsNoStateOfAnEarlierEpoch) {
  constexpr int kWarmUp = 5;
  const char* const wanted = std::getenv("REFORM_EPOCHS");
  const int epochs = wanted == nullptr ? 30 : std::atoi(wanted);
  AddMembers(3);
  Resources before;
  for (int i = 0; i < epochs; ++i) {
    if (i == kWarmUp) before = CountOf(*members_[0]);
    Meet(static_cast<size_t>(i));
    KillInTraining(static_cast<size_t>(1 + i % 2), i % 7);
    AddMembers(1);
  }
  const Resources after = CountOf(*members_[0]);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.mappings, 0);
  EXPECT_EQ(after.of_gpus, before.of_gpus);
  EXPECT_EQ(after.live_communicators, 0);
  EXPECT_EQ(after.aborted_communicators, after.made_communicators) << "those of a failed epoch are not used again";
  // Each epoch creates two communicators, unless a rank has died before they were created.
  if (GetParam() == Meeting::kWithTensorsOnGpus) {
    EXPECT_GT(after.made_communicators, epochs);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(after.kilobytes, before.kilobytes + 4096) << "resident memory, from " << before.kilobytes;
#endif
  RecordProperty("kilobytes_before", absl::StrCat(before.kilobytes));
  RecordProperty("kilobytes_after", absl::StrCat(after.kilobytes));
  Meet();
  TrainAndLeave();
}

TEST_P(ReformTest, AProcessThatComesForAnEarlierEpochIsToldBothAndTheOthersMeet) {
  AddMembers(2);
  const std::unique_ptr<CommandedProcess> late = NewMember();
  TellToJoin(*members_[0], 3, 0, 2);
  TellToJoin(*late, 2, 1, 2);
  EXPECT_THAT(late->Hear(), AllOf(StartsWith(absl::StrCat("joined ", static_cast<int>(RONDA_ERROR_INVALID_ARGUMENT))),
                                  HasSubstr("has come for epoch 2 of"), HasSubstr("is in epoch 3")));
  TellToJoin(*members_[1], 3, 1, 2);
  ExpectOfAll("joined 0");
  TrainAndLeave();
}

INSTANTIATE_TEST_SUITE_P(Meetings, ReformTest,
                         Values(Meeting::kInSharedMemory, Meeting::kAtAnAddress, Meeting::kWithTensorsOnGpus), NameOf);

class ReformInSharedMemoryTest : public ReformTest {};

TEST_P(ReformInSharedMemoryTest, AnEpochThatRunsIsKnownToAProcessOfAnEarlierOne) {
  AddMembers(2);
  epoch_ = 6;
  Meet();
  const std::unique_ptr<CommandedProcess> late = NewMember();
  TellToJoin(*late, 0, 1, 2);
  EXPECT_THAT(late->Hear(), AllOf(HasSubstr("has come for epoch 0 of"), HasSubstr("is in epoch 7")));
  TrainAndLeave();
}

TEST_P(ReformInSharedMemoryTest, ARankZeroOfAnEarlierEpochStopsWaiting) {
  AddMembers(2);
  const std::unique_ptr<CommandedProcess> late = NewMember();
  TellToJoin(*late, 2, 0, 2);
  TellToJoin(*members_[0], 3, 0, 2);
  EXPECT_THAT(late->Hear(), AllOf(HasSubstr("has come for epoch 2 of"), HasSubstr("is in epoch 3")));
  TellToJoin(*members_[1], 3, 1, 2);
  ExpectOfAll("joined 0");
  TrainAndLeave();
}

TEST_P(ReformInSharedMemoryTest, TheLinkOfARankZeroThatDiesWhileTheyMeetIsRemovedInTheNextEpoch) {
  AddMembers(3);
  TellToJoin(*members_[0], ++epoch_, 0, 3);
  const std::string link = absl::StrCat("/dev/shm/ronda-", job_id_, "@", epoch_);
  const auto is_there = [&link] { return std::filesystem::is_symlink(std::filesystem::symlink_status(link)); };
  while (!is_there()) absl::SleepFor(absl::Milliseconds(1));
  members_[0]->Kill();
  members_.erase(members_.begin());
  ASSERT_TRUE(is_there());
  Meet();
  EXPECT_FALSE(is_there());
  TrainAndLeave();
}

INSTANTIATE_TEST_SUITE_P(Meetings, ReformInSharedMemoryTest, Values(Meeting::kInSharedMemory), NameOf);

class ReformAtAnAddressTest : public ReformTest {};

// Member 0 is rank 0 of epoch 2, so it listens on the port at which member 1 waits for rank 0 of epoch 3.
TEST_P(ReformAtAnAddressTest, ARankZeroOfAnEarlierEpochIsToldByARankOfALaterOneThatWaitsForIt) {
  AddMembers(2);
  TellToJoin(*members_[0], 2, 0, 2);
  TellToJoin(*members_[1], 3, 1, 2);
  EXPECT_THAT(members_[0]->Hear(), AllOf(HasSubstr("has come for epoch 3 of"), HasSubstr("is in epoch 2")));
  TellToJoin(*members_[0], 3, 0, 2);
  ExpectOfAll("joined 0");
  TrainAndLeave();
}

INSTANTIATE_TEST_SUITE_P(Meetings, ReformAtAnAddressTest, Values(Meeting::kAtAnAddress), NameOf);

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& ReformPrograms() { return kPrograms; }

}  // namespace ronda::testing
