// Adasum on every communicator, against a plain one in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/collectives/adasum.h"
#include "tests/conformance/conformance_suite.h"
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

// The tree of the header, level by level.
Vector Tree(std::vector<Vector> vectors) {
  while (vectors.size() > 1) {
    std::vector<Vector> next;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) next.push_back(Combine(vectors[i], vectors[i + 1]));
    if (vectors.size() % 2 == 1) next.push_back(vectors.back());
    vectors = next;
  }
  return vectors.front();
}

// What one rounding costs, and the sums of a tree: in the types that contributions are rounded to and combined in.
double RelativeTolerance(const ReduceCase& c) {
  const DType wire = WireDType(c.dtype, c.wire);
  if (wire == DType::kFloat16) return 0x1p-8;
  if (wire == DType::kBfloat16) return 0x1p-5;
  return wire == DType::kFloat32 ? 0x1p-18 : 0x1p-45;
}

class AdasumConformanceTest : public ConformanceTest {
 protected:
  // The outputs of all members; ranks outside of the group only make the call.
  std::vector<std::string> Run(const ReduceCase& c, const Group& group) {
    std::vector<std::string> outputs(group.size());
    OnEveryRank([&](RankId rank, Transport& transport) {
      const std::optional<int> self = group.PositionOf(rank);
      const std::vector<size_t> counts = SegmentCounts(c);
      const ScatteredTensor tensor(self.has_value() ? MakeInput(c, *self) : "", SizeOf(c.dtype),
                                   self.has_value() ? counts : std::vector<size_t>(counts.size(), 0), c.placement);
      std::vector<Segment> segments = tensor.segments();
      for (size_t i = 0; i < counts.size(); ++i) segments[i].count = counts[i];
      ReduceCall call = CallOf(c, Info("adasum", &group));
      call.segments = segments;
      ASSERT_EQ(Adasum(transport.communicator.get(), call), absl::OkStatus()) << ToString(c);
      EXPECT_TRUE(tensor.IsUntouchedElsewhere()) << ToString(c);
      if (self.has_value()) outputs[*self] = tensor.Output();
    });
    return outputs;
  }

  // Against the tree in fp64, tensor by tensor.
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

// Bit for bit what another backend gives, and the same tensor alone what it is among others.
TEST_P(AdasumConformanceTest, NeitherBackendNorFusionChangesBits) {
  const Group all = Group::All(size());
  const ReduceCase fused = {.count = 5000, .cut = Cut::kPieces, .seed = 77};
  const std::string output = Run(fused, all)[0];
  std::vector<std::string> alone(size());
  RunRanks(size(), [&](RankId rank, const Transport& transport) {
    std::string data = MakeInput(fused, rank);
    size_t begin = 0;
    for (size_t count : SegmentCounts(fused)) {
      float* const tensor = reinterpret_cast<float*>(data.data()) + begin;
      const Segment segment = {.input = tensor, .output = tensor, .count = count};
      ReduceCall call = CallOf(fused, Info("alone"));
      call.segments = {&segment, 1};
      ASSERT_EQ(Adasum(transport.communicator.get(), call), absl::OkStatus());
      begin += count;
    }
    alone[rank] = data;
  });
  for (const std::string& other : alone) EXPECT_TRUE(other == output);
}

TEST_P(AdasumConformanceTest, EqualVectorsAreAveragedAndOrthogonalOnesAdded) {
  OnEveryRank([&](RankId rank, Transport& transport) {
    std::vector<float> equal(8, 2.0f);
    std::vector<float> orthogonal(8, 0.0f);
    orthogonal[rank] = 2.0f;
    const std::vector<Segment> segments = {{.input = equal.data(), .output = equal.data(), .count = 8},
                                           {.input = orthogonal.data(), .output = orthogonal.data(), .count = 8}};
    ASSERT_EQ(Adasum(transport.communicator.get(), {.info = Info("adasum"), .segments = segments}), absl::OkStatus());
    EXPECT_EQ(equal, std::vector<float>(8, 2.0f));
    std::vector<float> sum(8, 0.0f);
    std::fill_n(sum.begin(), size(), 2.0f);
    EXPECT_EQ(orthogonal, sum);
  });
}

TEST_P(AdasumConformanceTest, RefusesWhatItIsNotDefinedOn) {
  OnEveryRank([&](RankId, Transport& transport) {
    Communicator* const communicator = transport.communicator.get();
    EXPECT_EQ(Adasum(communicator, {.dtype = DType::kInt32}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Adasum(communicator, {.wire = WireFormat::kFp8E4M3}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Adasum(communicator, {.delivery = ReduceCall::Delivery::kParts}).code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace ronda::testing
