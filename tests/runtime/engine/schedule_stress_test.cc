// SPDX-License-Identifier: Apache-2.0

// Tests jobs that repeat their steps a random number of times. Between the steps there are other operations, each of
// which every rank starts at a random moment. All operations must have the right results, inside and outside of locked
// schedules, and while autotune tries settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/control/control_plane.h"
#include "runtime/negotiation/messages.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/backends.h"
#include "tests/testing/fakes.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::CarryOut;
using ::ronda::testing::ForwardingControlPlane;
using ::ronda::testing::Join;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;
using ::testing::HasSubstr;

// A tensor of a step, for an allreduce or for a broadcast from rank 0.
struct Tensor {
  std::string name;
  size_t count = 1;
  enum class Kind { kSum, kBroadcast } kind = Kind::kSum;
};

// Operations that a rank, alone or together with other ranks, submits in addition to the steps. Also contains their
// buffers and the expected final values. A rank that takes no part has no submissions.
struct Extra {
  std::vector<Submission> submissions;
  std::vector<std::unique_ptr<std::vector<float>>> buffers;
  std::vector<float> expected;  // the value of all elements, per buffer
  std::vector<std::shared_ptr<Handle>> handles;

  std::vector<float>* AddBuffer(size_t count, float own, float result) {
    expected.push_back(result);
    return buffers.emplace_back(std::make_unique<std::vector<float>>(count, own)).get();
  }

  void Submit(Runtime& runtime) {
    const absl::Status status = runtime.SubmitAll(submissions, &handles);
    ASSERT_TRUE(status.ok()) << status;
  }

  void Await() const {
    for (const auto& handle : handles) ASSERT_TRUE(handle->Wait().ok()) << handle->Wait();
    for (size_t i = 0; i < buffers.size(); ++i) ASSERT_THAT(*buffers[i], Each(expected[i])) << "extra " << i;
  }
};

// The program of one rank. Common() returns the same random numbers on all ranks, so that they make the same choices,
// even about operations in which they take no part. Own() returns random numbers for this rank alone.
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

  // Repeats a random step. If there is an Extra, each rank submits it at a random repetition of its own.
  void RepeatSteps() {
    const std::vector<Tensor> step = RandomStep();
    const int times = 1 + Common(40);
    const int way = Common(3);
    std::optional<Extra> extra;
    if (Common(2) == 0) extra = RandomExtra();
    const int extra_at = Own(times);
    for (int i = 0; i < times; ++i) {
      if (extra && i == extra_at) extra->Submit(runtime_);
      if (way == 0) {
        RunOneByOne(step);
      } else {
        RunAtOnce(step);
      }
    }
    if (extra) extra->Await();
  }

  Extra RandomExtra() {
    ++extras_;
    const int kind = Common(4);
    if (kind == 0) return Group();
    if (kind == 1 && size() > 1) return SendRecv();
    if (kind == 2 && set_) return SumOf(members_, *set_);
    return SumOf(Everybody(), kGlobalProcessSet);
  }

  std::vector<RankId> Everybody() const {
    std::vector<RankId> ranks;
    for (RankId rank = 0; rank < size(); ++rank) ranks.push_back(rank);
    return ranks;
  }

  std::vector<RankId> RandomMembers() {
    std::vector<RankId> members = Everybody();
    std::erase_if(members, [this](RankId) { return Common(2) == 0; });
    if (members.empty()) members.push_back(Common(size()));
    return members;
  }

  static bool Contains(const std::vector<RankId>& ranks, RankId rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

  // Rank r contributes (r + 1) times `factor`.
  static float SumOver(const std::vector<RankId>& ranks, int factor) {
    int sum = 0;
    for (RankId rank : ranks) sum += (rank + 1) * factor;
    return static_cast<float>(sum);
  }

  Extra SumOf(const std::vector<RankId>& ranks, ProcessSetId set) {
    const int factor = 1 + Common(5);
    const size_t count = static_cast<size_t>(Common(3000));
    const std::string name = absl::StrCat("extra", Common(2) == 0 ? 0 : extras_);
    Extra extra;
    if (!Contains(ranks, rank())) return extra;
    extra.submissions = {
        Sum(name, extra.AddBuffer(count, static_cast<float>((rank() + 1) * factor), SumOver(ranks, factor)))};
    extra.submissions.front().request.process_set = set;
    return extra;
  }

  Extra SendRecv() {
    const RankId from = Common(size());
    const RankId to = (from + 1 + Common(size() - 1)) % size();
    const size_t count = static_cast<size_t>(1 + Common(3000));
    Extra extra;
    if (rank() != from && rank() != to) return extra;
    const float sent = static_cast<float>(extras_);
    std::vector<float>* const data = extra.AddBuffer(count, rank() == from ? sent : -1.0f, sent);
    Submission submission = Sum(absl::StrCat("message/", from, "-", to), data);
    submission.request.op = OpType::kSendRecv;
    submission.request.root = from;
    submission.request.receiver = to;
    if (rank() == from) {
      submission.output = nullptr;
    } else {
      submission.input = nullptr;
    }
    extra.submissions = {submission};
    return extra;
  }

  Extra Group() {
    Extra extra;
    for (const size_t count : {5, 50}) {
      const float own = static_cast<float>((rank() + 1) * static_cast<int>(count));
      Submission submission = Sum(absl::StrCat("grouped", count),
                                  extra.AddBuffer(count, own, SumOver(Everybody(), static_cast<int>(count))));
      submission.request.group = "group";
      submission.request.group_size = 2;
      extra.submissions.push_back(submission);
    }
    return extra;
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

  // Submits all tensors of the step at once, in this rank's own random order.
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
        return ChangeProcessSet();
      case 4:
        return RunExtra();
      default:
        return;  // the next phase has another step
    }
  }

  // The rank `last` makes one more step than the other ranks, which join.
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

  void ChangeProcessSet() {
    if (set_) Succeed(runtime_, {.request = {.name = "remove", .op = OpType::kRemoveProcessSet, .subject = *set_}});
    members_ = RandomMembers();
    set_ = testing::AddSet(runtime_, members_);
    if (Contains(members_, rank())) Succeed(runtime_, testing::Barrier("members", *set_));
  }

  void RunExtra() {
    Extra extra = RandomExtra();
    extra.Submit(runtime_);
    extra.Await();
  }

  Runtime& runtime_;
  std::mt19937 common_;
  std::mt19937 own_;
  int round_ = 0;
  int extras_ = 0;
  // A process set that does not contain all ranks.
  std::optional<ProcessSetId> set_;
  std::vector<RankId> members_;
};

// The control plane of rank 0, which counts how often rank 0 sends settings.
class CountsSettings : public ForwardingControlPlane {
 public:
  CountsSettings(std::unique_ptr<ControlPlane> to, std::atomic<int>* count)
      : ForwardingControlPlane(std::move(to)), count_(count) {}

  absl::Status Broadcast(absl::string_view payload) override {
    const absl::StatusOr<ResponseList> list = DecodeResponseList(payload, Tunables().cache_capacity);
    if (list.ok() && list->settings) ++*count_;
    return ForwardingControlPlane::Broadcast(payload);
  }

 private:
  std::atomic<int>* const count_;
};

struct Job {
  Backend backend;
  int size;
  Tunables::Autotune autotune = Tunables::Autotune::kOff;

  bool is_tuned() const { return autotune == Tunables::Autotune::kOn; }
};

std::string NameOf(const ::testing::TestParamInfo<Job>& info) {
  return absl::StrCat(Name(info.param.backend), "_", info.param.size, info.param.is_tuned() ? "_tuned" : "");
}

// Counts of events, over all ranks of a job.
struct Counts {
  std::atomic<uint64_t> rounds{0};
  std::atomic<uint64_t> left{0};
  std::atomic<int> settings{0};
};

class ScheduleStressTest : public ::testing::TestWithParam<Job> {
 protected:
  static void Run(uint32_t seed, Counts* counts) {
    const int size = GetParam().size;
    std::vector<Transport> transports = testing::ConnectRanks(GetParam().backend, {.size = size});
    std::unique_ptr<ControlPlane>& control = transports[kCoordinatorRank].control;
    control = std::make_unique<CountsSettings>(std::move(control), &counts->settings);
    testing::RunRanks(std::move(transports), [&](RankId rank, Transport transport) {
      const auto runtime =
          Runtime::Create({.tunables = Settings()}, {.rank = rank, .size = size}, std::move(transport));
      RandomTrainer(*runtime, seed).Train(/*phases=*/8);
      counts->rounds += runtime->statistics().schedule_rounds;
      counts->left += runtime->statistics().schedules_left;
      const absl::Status shutdown = runtime->Shutdown();
      EXPECT_TRUE(shutdown.ok()) << shutdown;
    });
  }

 private:
  // With these settings, autotune takes several samples while the steps repeat.
  static Tunables Settings() {
    Tunables tunables = {.autotune = GetParam().autotune};
    if (GetParam().is_tuned()) {
      tunables.lock_after = 2;
      tunables.autotune_steps_per_sample = 2;
    }
    return tunables;
  }
};

TEST_P(ScheduleStressTest, AllOperationsHaveTheRightResults) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  Counts counts;
  Run(seed, &counts);
  EXPECT_GT(counts.rounds, 0u);
  EXPECT_GT(counts.left, 0u);
  EXPECT_GE(counts.settings, GetParam().is_tuned() ? 2 : 1) << "those at the beginning and others";
}

INSTANTIATE_TEST_SUITE_P(Jobs, ScheduleStressTest,
                         ::testing::Values(Job{Backend::kSelf, 1}, Job{Backend::kInProcess, 3}, Job{Backend::kShm, 2},
                                           Job{Backend::kShmSeparately, 3},
                                           Job{Backend::kInProcess, 2, Tunables::Autotune::kOn},
                                           Job{Backend::kShm, 4, Tunables::Autotune::kOn},
                                           Job{Backend::kShmSeparately, 3, Tunables::Autotune::kOn}),
                         NameOf);

}  // namespace
}  // namespace ronda
