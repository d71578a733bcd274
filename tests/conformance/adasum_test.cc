// SPDX-License-Identifier: Apache-2.0

// Compares Adasum on every communicator with a simple implementation in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/convert.h"
#include "runtime/collectives/adasum.h"
#include "runtime/engine/device/device_adasum_ops.h"
#include "tests/conformance/conformance_suite.h"
#include "tests/testing/on_device.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::testing {
namespace {

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Vector Combine(const Vector& a, const Vector& b) {
  const double ab = Dot(a, b);
  const double aa = Dot(a, a);
  const double bb = Dot(b, b);
  Vector combined(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    combined[i] = (aa == 0 ? 1 : 1 - ab / (2 * aa)) * a[i] + (bb == 0 ? 1 : 1 - ab / (2 * bb)) * b[i];
  }
  return combined;
}

// Combines the vectors in a tree, as adasum.h describes.
Vector Tree(std::vector<Vector> vectors) {
  while (vectors.size() > 1) {
    std::vector<Vector> next;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) next.push_back(Combine(vectors[i], vectors[i + 1]));
    if (vectors.size() % 2 == 1) next.push_back(vectors.back());
    vectors = next;
  }
  return vectors.front();
}

// Returns a tolerance that allows for one rounding of each contribution, and for the rounding errors of the sums in the
// tree.
double RelativeTolerance(const ReduceCase& c) {
  const DType wire = WireDType(c.dtype, c.wire);
  if (wire == DType::kFloat16) return 0x1p-8;
  if (wire == DType::kBfloat16) return 0x1p-5;
  return wire == DType::kFloat32 ? 0x1p-18 : 0x1p-45;
}

// The communicator and the operations that an Adasum uses on one rank.
class AdasumOnRank {
 public:
  explicit AdasumOnRank(Communicator* communicator)
      : communicator_(communicator), on_device_(dynamic_cast<OnDevice*>(communicator)) {
    if (on_device_ == nullptr) {
      place_ = std::make_unique<HostAdasumOps>();
      return;
    }
    const OnDevice::Parts& parts = on_device_->parts();
    place_ = std::make_unique<DeviceAdasumOps>(
        DeviceAdasumOps::Options{.device = parts.device,
                                 .stream = parts.stream->handle(),
                                 .blocks = DeviceBlocks::Create(parts.device, RONDA_CUDA_DEVICE_MEMORY)});
  }

  bool is_on_device() const { return on_device_ != nullptr; }

  absl::Status Run(const ReduceCall& call) {
    if (on_device_ == nullptr) return Adasum(communicator_, place_.get(), call);
    return on_device_->ReduceBy(call, [this](const ReduceCall& on_device) {
      return Adasum(on_device_->parts().communicator.get(), place_.get(), on_device);
    });
  }

 private:
  Communicator* const communicator_;
  OnDevice* const on_device_;  // nullptr: the tensors are in the host's memory
  std::unique_ptr<AdasumOps> place_;
};

class AdasumConformanceTest : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    for (RankId rank = 0; rank < size(); ++rank) ranks_.emplace_back(transport(rank).communicator.get());
  }
  void TearDown() override {
    ranks_.clear();
    ConformanceTest::TearDown();
  }

  bool IsOnDevice() const { return ranks_.front().is_on_device(); }
  AdasumOnRank& OnRank(RankId rank) { return ranks_[static_cast<size_t>(rank)]; }

  // Returns the outputs of all members of the group. Ranks outside the group make the call without tensors.
  std::vector<std::string> Run(const ReduceCase& c, const Group& group) {
    std::vector<std::string> outputs(group.size());
    OnEveryRank([&](RankId rank, Transport&) {
      if (const std::optional<int> self = group.PositionOf(rank); self.has_value()) {
        outputs[*self] = RunAsMember(c, group, *self, rank);
      } else {
        RunAsOutsider(c, group, rank);
      }
    });
    return outputs;
  }

  std::string RunAsMember(const ReduceCase& c, const Group& group, int self, RankId rank) {
    const ScatteredTensor tensor(MakeInput(c, self), SizeOf(c.dtype), SegmentCounts(c), c.placement);
    ReduceCall call = CallOf(c, Info("adasum", &group));
    call.segments = tensor.segments();
    EXPECT_EQ(OnRank(rank).Run(call), absl::OkStatus()) << ToString(c);
    EXPECT_TRUE(tensor.IsUntouchedElsewhere()) << ToString(c);
    return tensor.Output();
  }

  void RunAsOutsider(const ReduceCase& c, const Group& group, RankId rank) {
    std::vector<Segment> segments;
    for (size_t count : SegmentCounts(c)) segments.push_back({.count = count});
    ReduceCall call = CallOf(c, Info("adasum", &group));
    call.segments = segments;
    EXPECT_EQ(OnRank(rank).Run(call), absl::OkStatus()) << ToString(c);
  }

  // Compares two float32 results, which must have the same bits on the host. On a device they need only be close,
  // because devices may sum the dot products in a different order.
  void ExpectAgreement(const std::string& output, const std::string& other) const {
    ASSERT_EQ(output.size(), other.size());
    if (!IsOnDevice()) {
      EXPECT_TRUE(output == other) << "the results have different bits";
      return;
    }
    for (size_t i = 0; i < output.size() / sizeof(float); ++i) {
      ASSERT_NEAR(ReadElement(output.data(), DType::kFloat32, i), ReadElement(other.data(), DType::kFloat32, i),
                  0x1p-18)
          << "element " << i;
    }
  }

  // Compares each tensor of `output` with the Adasum tree in fp64.
  static void CompareWithTree(const ReduceCase& c, int members, const std::string& output) {
    size_t begin = 0;
    for (size_t count : SegmentCounts(c)) {
      std::vector<Vector> vectors;
      for (int member = 0; member < members; ++member) {
        const std::string input = MakeInput(c, member);
        Vector vector(count);
        for (size_t i = 0; i < count; ++i) {
          vector[i] = ReadElement(input.data(), c.dtype, begin + i) * c.prescale.Factor();
        }
        vectors.push_back(vector);
      }
      const Vector expected = Tree(vectors);
      const double tolerance = RelativeTolerance(c) * members * 2 * c.postscale.Factor();
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(ReadElement(output.data(), c.dtype, begin + i), expected[i] * c.postscale.Factor(), tolerance)
            << ToString(c) << ", element " << begin + i;
      }
      begin += count;
    }
  }

 private:
  std::vector<AdasumOnRank> ranks_;
};

RONDA_CONFORMANCE_SUITE(AdasumConformanceTest);

TEST_P(AdasumConformanceTest, IsTheTreeOfPairsOnEveryMember) {
  uint64_t seed = 0;
  for (const Group& group : Groups()) {
    for (DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
      for (WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16}) {
        const size_t count = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 13 : 700;
        const ReduceCase c = {.count = count,
                              .dtype = dtype,
                              .wire = wire,
                              .prescale = {.multiplier = 0.5},
                              .postscale = {.multiplier = seed % 2 == 0 ? 1.0 : 0.25},
                              .cut = seed % 2 == 0 ? Cut::kPieces : Cut::kWhole,
                              .placement = seed % 4 < 2 ? Placement::kInPlace : Placement::kOutOfPlace,
                              .seed = seed++};
        const std::vector<std::string> outputs = Run(c, group);
        CompareWithTree(c, group.size(), outputs[0]);
        for (const std::string& output : outputs) EXPECT_TRUE(output == outputs[0]) << ToString(c);
      }
    }
  }
}

// In host memory, a result has the same bits on every backend, whether or not the tensor is fused with others.
TEST_P(AdasumConformanceTest, NeitherBackendNorFusionChangesResults) {
  const Group all = Group::All(size());
  const ReduceCase fused = {.count = 5000, .cut = Cut::kPieces, .seed = 77};
  const std::string output = Run(fused, all)[0];
  std::vector<std::string> alone(size());
  RunRanks(size(), [&](RankId rank, const Transport& transport) {
    std::string data = MakeInput(fused, rank);
    size_t begin = 0;
    HostAdasumOps place;
    for (size_t count : SegmentCounts(fused)) {
      float* const tensor = reinterpret_cast<float*>(data.data()) + begin;
      const Segment segment = {.input = tensor, .output = tensor, .count = count};
      ReduceCall call = CallOf(fused, Info("alone"));
      call.segments = {&segment, 1};
      ASSERT_EQ(Adasum(transport.communicator.get(), &place, call), absl::OkStatus());
      begin += count;
    }
    alone[rank] = data;
  });
  for (const std::string& other : alone) ExpectAgreement(output, other);
}

TEST_P(AdasumConformanceTest, TheSameTensorsHaveTheSameBitsAgain) {
  const ReduceCase c = {.count = 3000, .wire = WireFormat::kBfloat16, .cut = Cut::kPieces, .seed = 78};
  const std::string first = Run(c, Group::All(size()))[0];
  Run({.count = 20000, .dtype = DType::kFloat64, .seed = 79}, Group::All(size()));  // leaves other bytes in memory
  EXPECT_TRUE(Run(c, Group::All(size()))[0] == first);
}

TEST_P(AdasumConformanceTest, ManyTensorsAreWeighedEachForItself) {
  constexpr size_t kTensors = 40;
  OnEveryRank([&](RankId rank, Transport&) {
    std::vector<float> values(2 * kTensors);
    std::vector<Segment> segments;
    for (size_t i = 0; i < kTensors; ++i) {
      // Even-numbered tensors are the same on all ranks. Odd-numbered tensors of the first two ranks are orthogonal.
      values[2 * i] = static_cast<float>(i % 2 == 0 ? i : rank == 0 ? i : 0);
      values[2 * i + 1] = static_cast<float>(i % 2 == 0 ? 1 : rank == 1 ? i : 0);
      segments.push_back({.input = &values[2 * i], .output = &values[2 * i], .count = 2});
    }
    ASSERT_EQ(OnRank(rank).Run({.info = Info("many"), .segments = segments}), absl::OkStatus());
    for (size_t i = 0; i < kTensors; ++i) {
      const auto value = static_cast<float>(i);
      EXPECT_FLOAT_EQ(values[2 * i], value);
      EXPECT_FLOAT_EQ(values[2 * i + 1], i % 2 == 0 ? 1 : size() == 1 ? 0 : value);
    }
  });
}

TEST_P(AdasumConformanceTest, EqualVectorsAreAveragedAndOrthogonalOnesAdded) {
  OnEveryRank([&](RankId rank, Transport&) {
    std::vector<float> equal(8, 2.0f);
    std::vector<float> orthogonal(8, 0.0f);
    orthogonal[rank] = 2.0f;
    const std::vector<Segment> segments = {{.input = equal.data(), .output = equal.data(), .count = 8},
                                           {.input = orthogonal.data(), .output = orthogonal.data(), .count = 8}};
    ASSERT_EQ(OnRank(rank).Run({.info = Info("adasum"), .segments = segments}), absl::OkStatus());
    EXPECT_EQ(equal, std::vector<float>(8, 2.0f));
    std::vector<float> sum(8, 0.0f);
    std::fill_n(sum.begin(), size(), 2.0f);
    EXPECT_EQ(orthogonal, sum);
  });
}

// All ranks contribute the same vector, so the result equals each rank's contribution.
TEST_P(AdasumConformanceTest, RoundingErrorsAreSentTheNextTime) {
  constexpr size_t kCount = 100;
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = 1.0f + 1e-4f * static_cast<float>(i);
  OnEveryRank([&](RankId rank, Transport&) {
    std::vector<float> residual(kCount, 0.0f);
    std::vector<float> expected_residual(kCount, 0.0f);
    for (int step = 0; step < 3; ++step) {
      std::vector<uint16_t> sent(kCount);
      kernels::ConvertWithFeedback({.src = values.data(),
                                    .src_dtype = DType::kFloat32,
                                    .dst = sent.data(),
                                    .dst_dtype = DType::kFloat16,
                                    .count = kCount,
                                    .residual = expected_residual.data()});
      std::vector<float> output(kCount);
      const Segment segment = {
          .input = values.data(), .output = output.data(), .count = kCount, .residual = residual.data()};
      ASSERT_EQ(OnRank(rank).Run({.info = Info("feedback"), .segments = {&segment, 1}, .wire = WireFormat::kFloat16}),
                absl::OkStatus());
      EXPECT_EQ(residual, expected_residual);
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(output[i], ReadElement(sent.data(), DType::kFloat16, i)) << "element " << i << " of step " << step;
      }
    }
  });
}

TEST_P(AdasumConformanceTest, TensorsWithoutElementsAreLeftAlone) {
  OnEveryRank([&](RankId rank, Transport&) {
    const std::vector<Segment> segments(3);
    EXPECT_EQ(OnRank(rank).Run({.info = Info("empty"), .segments = segments}), absl::OkStatus());
  });
}

TEST_P(AdasumConformanceTest, RefusesTypesWithoutAdasum) {
  OnEveryRank([&](RankId rank, Transport&) {
    AdasumOnRank& adasum = OnRank(rank);
    EXPECT_EQ(adasum.Run({.dtype = DType::kInt32}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(adasum.Run({.wire = WireFormat::kFp8E4M3}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(adasum.Run({.delivery = ReduceCall::Delivery::kParts}).code(), absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace ronda::testing
