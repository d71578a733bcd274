// SPDX-License-Identifier: Apache-2.0

// Tests the runtime's Adasum of tensors in device memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"

namespace ronda::testing {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::Pointwise;

class DeviceAdasum : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  static std::string backend() { return std::get<0>(GetParam()); }
  static int size() { return std::get<1>(GetParam()); }

  static void Run(const std::function<void(DeviceRank& rank)>& body) {
    RunDeviceRanks({.size = size(), .backend = backend(), .cuda = {.delay_seed = static_cast<uint64_t>(size())}}, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, DeviceAdasum,
                         ::testing::Combine(::testing::Values("nccl", "staged", "peer"), ::testing::Values(1, 2, 3, 5)),
                         [](const auto& parameter) {
                           return absl::StrCat(std::get<0>(parameter.param), std::get<1>(parameter.param));
                         });

Submission Weighed(Submission submission) {
  submission.request.reduction = Reduction::kAdasum;
  return submission;
}

Submission DeviceAdasumOf(const std::string& name, DeviceRank& rank, const DeviceTensor& tensor, size_t count) {
  return Weighed(DeviceSum(name, rank, tensor, count));
}

TEST_P(DeviceAdasum, EqualGradientsAreAveragedAndOrthogonalOnesAdded) {
  Run([](DeviceRank& rank) {
    const DeviceTensor equal(rank, std::vector<float>{3, -4, 5});
    ASSERT_NE(SucceedOn(rank, DeviceAdasumOf("equal", rank, equal, 3)), nullptr);
    EXPECT_THAT(equal.Get<float>(), Pointwise(FloatNear(1e-5f), {3.0f, -4.0f, 5.0f}));
    const auto count = static_cast<size_t>(size());
    std::vector<float> own(count, 0.0f);
    own[static_cast<size_t>(rank.rank())] = 2;
    const DeviceTensor orthogonal(rank, own);
    ASSERT_NE(SucceedOn(rank, DeviceAdasumOf("orthogonal", rank, orthogonal, count)), nullptr);
    EXPECT_THAT(orthogonal.Get<float>(), Each(2.0f));
  });
}

// More consecutive tensors than one kernel launch can process, some of them without elements.
struct Tensors {
  static constexpr size_t kCount = 500;
  Tensors() {
    for (size_t i = 0; i < kCount; ++i) counts.push_back(i % 7 == 0 ? i : i % 5);
    for (size_t count : counts) elements += count;
  }
  std::vector<float> Values(RankId rank) const {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> values(elements);
    for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
    return values;
  }
  // Returns submissions of all tensors, the first of which begins at `data`.
  template <typename Describe>
  std::vector<Submission> Submissions(float* data, const Describe& describe) const {
    std::vector<Submission> submissions;
    for (size_t i = 0; i < kCount; ++i) {
      submissions.push_back(Weighed(describe(i)));
      Submission& submission = submissions.back();
      submission.request.shape = {static_cast<int64_t>(counts[i])};
      submission.request.wire = WireFormat::kBfloat16;
      submission.request.prescale = 0.5;
      submission.request.postscale = 3;
      submission.input = submission.output = data;
      data += counts[i];
    }
    return submissions;
  }
  std::vector<size_t> counts;
  size_t elements = 0;
};

void CarryOutAll(Runtime& runtime, const std::vector<Submission>& submissions) {
  const auto handles = SubmitAll(runtime, submissions);
  ASSERT_TRUE(handles.ok()) << handles.status();
  for (const auto& handle : *handles) ASSERT_EQ(handle->Wait(), absl::OkStatus());
}

TEST_P(DeviceAdasum, ManyTensorsHaveTheHostsResultsAndTheSameBitsOnAllRanks) {
  const Tensors tensors;
  std::vector<std::vector<float>> results(static_cast<size_t>(size()));
  Run([&](DeviceRank& rank) {
    std::vector<float> host = tensors.Values(rank.rank());
    const DeviceTensor device(rank, host);
    CarryOutAll(rank.runtime(), tensors.Submissions(static_cast<float*>(device.data()), [&](size_t i) {
      return DeviceSum(absl::StrCat("device", i), rank, device, 0);
    }));
    CarryOutAll(rank.runtime(),
                tensors.Submissions(host.data(), [&](size_t i) { return Sum(absl::StrCat("host", i), &host); }));
    std::vector<float> result = device.Get<float>();
    // The results of the device and the host differ by one unit of bfloat16 if they lie on different sides of a
    // rounding boundary.
    EXPECT_THAT(result, Pointwise(FloatNear(0x1p-5f), host));
    results[static_cast<size_t>(rank.rank())] = std::move(result);
  });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
}

TEST_P(DeviceAdasum, OverflowIsFound) {
  Run([](DeviceRank& rank) {
    for (const bool overflows : {false, true}) {
      const bool is_it = overflows && rank.rank() == size() - 1;
      const DeviceTensor tensor(rank, std::vector<float>{1, is_it ? std::numeric_limits<float>::infinity() : 1, 1});
      Submission submission = DeviceAdasumOf("x", rank, tensor, 3);
      submission.request.overflow = TensorRequest::Overflow::kDetected;
      const auto handle = SucceedOn(rank, submission);
      ASSERT_NE(handle, nullptr);
      using Overflow = OperationResult::Overflow;
      EXPECT_EQ(handle->result().FindOverflow(), overflows ? Overflow::kFound : Overflow::kNone);
    }
  });
}

// The members have equal gradients, which Adasum does not change. It would change them if other ranks took part.
TEST_P(DeviceAdasum, RanksOutsideOfAProcessSetAreLeftAlone) {
  Run([](DeviceRank& rank) {
    std::vector<RankId> members;
    for (RankId member = 0; member < size(); member += 2) members.push_back(member);
    const ProcessSetId set = AddSet(rank.runtime(), members);
    const bool is_member = rank.rank() % 2 == 0;
    const DeviceTensor tensor(rank, std::vector<float>(5, is_member ? 2.0f : 7.0f));
    Submission submission = DeviceAdasumOf("x", rank, tensor, 5);
    submission.request.process_set = set;
    if (is_member) {
      ASSERT_NE(SucceedOn(rank, submission), nullptr);
    }
    EXPECT_THAT(tensor.Get<float>(), Each(is_member ? 2.0f : 7.0f));
  });
}

// Rank r has r + 1 batches, and then joins.
TEST_P(DeviceAdasum, RanksThatHaveJoinedAreNotCounted) {
  Run([](DeviceRank& rank) {
    for (int step = 0; step <= rank.rank(); ++step) {
      std::vector<float> own(8, 0.0f);
      own[static_cast<size_t>(rank.rank())] = 2;
      const DeviceTensor tensor(rank, own);
      ASSERT_NE(SucceedOn(rank, DeviceAdasumOf(absl::StrCat("x", step), rank, tensor, 8)), nullptr);
      std::vector<float> sum(8, 0.0f);
      for (int present = step; present < size(); ++present) sum[static_cast<size_t>(present)] = 2;
      EXPECT_EQ(tensor.Get<float>(), sum) << "step " << step;
    }
    ASSERT_NE(SucceedOn(rank, Join()), nullptr);
  });
}

TEST_P(DeviceAdasum, StepsThatRepeatThemselvesAreScheduledAndAllocateNothing) {
  std::barrier<> meeting(size());
  Run([&](DeviceRank& rank) {
    DeviceTensor small(rank, 3 * sizeof(float));
    DeviceTensor large(rank, 9000 * sizeof(float));
    const auto run = [&](int step) {
      const auto value = static_cast<float>(step + 1);
      small.Set(std::vector<float>(3, value));
      large.Set(std::vector<float>(9000, -value));
      // The tensors are summed one by one, so that the small tensor reuses the large tensor's memory.
      ASSERT_NE(SucceedOn(rank, DeviceAdasumOf("large", rank, large, 9000)), nullptr);
      ASSERT_NE(SucceedOn(rank, DeviceAdasumOf("small", rank, small, 3)), nullptr);
    };
    for (int step = 0; step < 20; ++step) run(step);
    meeting.arrive_and_wait();
    const size_t allocations = rank.fake().allocations();
    meeting.arrive_and_wait();
    for (int step = 20; step < 40; ++step) run(step);
    meeting.arrive_and_wait();
    EXPECT_EQ(rank.fake().allocations(), allocations);
    meeting.arrive_and_wait();
    EXPECT_GE(rank.runtime().statistics().schedules_begun, 1u);
    EXPECT_THAT(small.Get<float>(), Each(FloatNear(40.0f, 1e-4f)));
    EXPECT_THAT(large.Get<float>(), Each(FloatNear(-40.0f, 1e-4f)));
  });
}

TEST(DeviceAdasumOrder, NoThreadWaitsForTheDevice) {
  RunDeviceRanks({.size = 3}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 4));
    ASSERT_NE(SucceedOn(rank, DeviceAdasumOf("connects", rank, tensor, 3)), nullptr);
    const auto other = DeviceStream::Create(&rank.device());
    ASSERT_TRUE(other.ok()) << other.status();
    StreamHold hold(rank.stream());
    const auto handle = rank.runtime().Submit(DeviceAdasumOf("x", rank, tensor, 3));
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ((*handle)->OrderBefore((*other)->handle()), absl::OkStatus());
    EXPECT_FALSE((*handle)->done()) << "the device cannot have got there";
    hold.Release();
    EXPECT_EQ((*handle)->Wait(), absl::OkStatus());
    EXPECT_THAT(tensor.Get<float>(), Each(FloatNear(4.0f, 1e-5f)));
  });
}

}  // namespace
}  // namespace ronda::testing
