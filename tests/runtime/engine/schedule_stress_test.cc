// Jobs that repeat themselves for random times, and then do something else: everything completes, with the right
// results, whatever a locked schedule had foreseen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::CarryOut;
using ::ronda::testing::Join;
using ::ronda::testing::RunRuntimesOn;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;
using ::testing::HasSubstr;

// A tensor of a step: an allreduce, or a broadcast of rank 0's.
struct Tensor {
  std::string name;
  size_t count = 1;
  enum class Kind { kSum, kBroadcast } kind = Kind::kSum;
};

// What one rank does. All ranks draw the same numbers from common(), so that they do the same; what they may do each in
// its own way is drawn from own().
class RandomTrainer {
 public:
  RandomTrainer(Runtime& runtime, uint32_t seed)
      : runtime_(runtime), common_(seed), own_(seed + 1 + static_cast<uint32_t>(runtime.topology().rank)) {}

  void Train(int phases) {
    for (int phase = 0; phase < phases && !::testing::Test::HasFailure(); ++phase) {
      RepeatSteps();
      Deviate();
    }
  }

 private:
  int rank() const { return runtime_.topology().rank; }
  int size() const { return runtime_.topology().size; }
  int Common(int below) { return static_cast<int>(common_() % static_cast<uint32_t>(below)); }
  int Own(int below) { return static_cast<int>(own_() % static_cast<uint32_t>(below)); }

  std::vector<Tensor> RandomStep() {
    std::vector<Tensor> step;
    const int tensors = 1 + Common(6);
    for (int i = 0; i < tensors; ++i) {
      step.push_back({.name = absl::StrCat("t", i),
                      .count = static_cast<size_t>(1 + Common(2000)),
                      .kind = Common(4) == 0 ? Tensor::Kind::kBroadcast : Tensor::Kind::kSum});
    }
    return step;
  }

  void RepeatSteps() {
    const std::vector<Tensor> step = RandomStep();
    const int times = 1 + Common(16);
    const int way = Common(3);
    for (int i = 0; i < times; ++i) {
      if (way == 0) {
        RunOneByOne(step);
      } else {
        RunAtOnce(step);
      }
    }
  }

  float Contribution(const Tensor& tensor, int of_rank) const {
    return static_cast<float>((of_rank + 1) * static_cast<int>(tensor.count % 7 + 1) + round_ % 5);
  }

  float Result(const Tensor& tensor) const {
    if (tensor.kind == Tensor::Kind::kBroadcast) return Contribution(tensor, 0);
    float sum = 0.0f;
    for (int of_rank = 0; of_rank < size(); ++of_rank) sum += Contribution(tensor, of_rank);
    return sum;
  }

  Submission Prepare(const Tensor& tensor, std::vector<float>* data) const {
    data->assign(tensor.count, Contribution(tensor, rank()));
    Submission submission = Sum(tensor.name, data);
    if (tensor.kind == Tensor::Kind::kBroadcast) {
      submission.request.op = OpType::kBroadcast;
      submission.input = nullptr;
    }
    return submission;
  }

  // In an order of this rank's own.
  void RunAtOnce(const std::vector<Tensor>& step) {
    ++round_;
    std::vector<size_t> order;
    for (size_t i = 0; i < step.size(); ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), own_);
    std::vector<std::vector<float>> data(step.size());
    std::vector<std::shared_ptr<Handle>> handles;
    for (size_t i : order) {
      const auto handle = runtime_.Submit(Prepare(step[i], &data[i]));
      ASSERT_TRUE(handle.ok()) << handle.status();
      handles.push_back(*handle);
    }
    std::shuffle(handles.begin(), handles.end(), own_);
    for (const auto& handle : handles) ASSERT_TRUE(handle->Wait().ok()) << handle->Wait();
    for (size_t i = 0; i < step.size(); ++i) ASSERT_THAT(data[i], Each(Result(step[i]))) << step[i].name;
  }

  void RunOneByOne(const std::vector<Tensor>& step) {
    ++round_;
    for (const Tensor& tensor : step) {
      std::vector<float> data;
      const Submission submission = Prepare(tensor, &data);
      const auto handle = Own(2) == 0 ? runtime_.Run(submission) : runtime_.Submit(submission);
      ASSERT_TRUE(handle.ok()) << handle.status();
      ASSERT_TRUE((*handle)->Wait().ok()) << (*handle)->Wait();
      ASSERT_THAT(data, Each(Result(tensor))) << tensor.name;
    }
  }

  void Deviate() {
    switch (Common(6)) {
      case 0:
        return RunAtOnce({{.name = absl::StrCat("new", round_), .count = 3}, {.name = "t0", .count = 4}});
      case 1:
        return JoinBut(Common(size()));
      case 2:
        return Disagree();
      case 3:
        return UseProcessSet();
      case 4:
        return RunGroup();
      default:
        return;  // the next steps are others
    }
  }

  // One rank has a step more than the others.
  void JoinBut(int last) {
    if (rank() == last) {
      std::vector<float> data(3, 1.0f);
      Succeed(runtime_, Sum("t0", &data));
      EXPECT_THAT(data, Each(1.0f));
    }
    Succeed(runtime_, Join());
  }

  void Disagree() {
    if (size() == 1) return;
    std::vector<float> data(static_cast<size_t>(3 + rank()), 1.0f);
    const absl::Status status = CarryOut(runtime_, Sum("t1", &data));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("t1"));
  }

  void UseProcessSet() {
    const RankId alone = Common(size());
    const ProcessSetId set = testing::AddSet(runtime_, {alone});
    if (rank() == alone) Succeed(runtime_, testing::Barrier("alone", set));
    Succeed(runtime_, {.request = {.name = "remove", .op = OpType::kRemoveProcessSet, .subject = set}});
  }

  void RunGroup() {
    std::vector<float> a(5, 1.0f);
    std::vector<float> b(50, 2.0f);
    std::vector<Submission> group = {Sum("g0", &a), Sum("g1", &b)};
    for (Submission& submission : group) {
      submission.request.group = "group";
      submission.request.group_size = 2;
    }
    std::vector<std::shared_ptr<Handle>> handles;
    ASSERT_TRUE(runtime_.RunAll(group, &handles).ok());
    EXPECT_THAT(a, Each(static_cast<float>(size())));
    EXPECT_THAT(b, Each(static_cast<float>(2 * size())));
  }

  Runtime& runtime_;
  std::mt19937 common_;
  std::mt19937 own_;
  int round_ = 0;
};

struct Job {
  Backend backend;
  int size;
};

class ScheduleStressTest : public ::testing::TestWithParam<Job> {};

TEST_P(ScheduleStressTest, EverythingCompletesWithTheRightResults) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RecordProperty("seed", absl::StrCat(seed));
  std::atomic<uint64_t> rounds{0};
  std::atomic<uint64_t> left{0};
  RunRuntimesOn(GetParam().backend, GetParam().size, {}, [&](Runtime& runtime) {
    RandomTrainer(runtime, seed).Train(/*phases=*/15);
    rounds += runtime.statistics().schedule_rounds;
    left += runtime.statistics().schedules_left;
  });
  EXPECT_GT(rounds, 0u);
  EXPECT_GT(left, 0u);
  if (HasFailure()) ADD_FAILURE() << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Jobs, ScheduleStressTest,
                         ::testing::Values(Job{Backend::kSelf, 1}, Job{Backend::kInProcess, 3}, Job{Backend::kShm, 2},
                                           Job{Backend::kShmSeparately, 3}),
                         [](const auto& info) { return absl::StrCat(Name(info.param.backend), "_", info.param.size); });

}  // namespace
}  // namespace ronda
