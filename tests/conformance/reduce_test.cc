// SPDX-License-Identifier: Apache-2.0

// Tests reductions on every communicator.
#include <gtest/gtest.h>

#include <vector>

#include "tests/conformance/conformance_suite.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::testing {
namespace {

constexpr size_t kCounts[] = {0, 1, 3, 7, 13, 127, 4096};
constexpr size_t kLargeCount = (size_t{1} << 20) + 1;
constexpr WireFormat kWires[] = {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kFp8E4M3,
                                 WireFormat::kFp8E5M2};
constexpr Receives kParts[] = {Receives::kRootAll, Receives::kRows, Receives::kAnyPart};

class ReduceConformanceTest : public ConformanceTest {
 protected:
  // Derives the memory layout from the seed, so that the cases together cover all layouts.
  static ReduceCase LaidOut(ReduceCase c) {
    c.cut = c.seed % 2 == 0 ? Cut::kWhole : Cut::kPieces;
    c.placement = c.seed / 2 % 2 == 0 ? Placement::kInPlace : Placement::kOutOfPlace;
    return c;
  }

  // Returns `repeats` cases for every combination of dtype, operator and wire format. The number of elements varies, so
  // that every dtype is tested with every number.
  static std::vector<ReduceCase> EveryKind(int repeats, uint64_t seed) {
    std::vector<ReduceCase> cases;
    for (int type = 0; type < kDTypeCount; ++type) {
      const auto dtype = static_cast<DType>(type);
      for (int number = 0; number < kReduceOpCount; ++number) {
        const auto op = static_cast<ReduceOp>(number);
        if (!Supports(op, dtype)) continue;
        for (WireFormat wire : WireFormatsFor(dtype)) {
          for (int repeat = 0; repeat < repeats; ++repeat, ++seed) {
            const size_t count = kCounts[seed % std::size(kCounts)];
            cases.push_back({.count = count, .dtype = dtype, .op = op, .wire = wire, .seed = seed});
          }
        }
      }
    }
    return cases;
  }
};

RONDA_CONFORMANCE_SUITE(ReduceConformanceTest);

TEST_P(ReduceConformanceTest, AllOfEveryDtypeOperatorAndWireFormat) {
  std::vector<ReduceCase> cases;
  for (const ReduceCase& c : EveryKind(/*repeats=*/2, static_cast<uint64_t>(size()))) cases.push_back(LaidOut(c));
  CheckReduces(cases);
}

TEST_P(ReduceConformanceTest, PartsOfEveryDtypeOperatorAndWireFormat) {
  std::vector<ReduceCase> cases;
  for (ReduceCase c : EveryKind(/*repeats=*/1, 1000 + static_cast<uint64_t>(size()))) {
    c.receives = kParts[c.seed / 2 % std::size(kParts)];
    cases.push_back(LaidOut(c));
  }
  CheckReduces(cases);
}

TEST_P(ReduceConformanceTest, EveryCountInEveryLayout) {
  std::vector<ReduceCase> cases;
  uint64_t seed = 2000;
  for (size_t count : kCounts) {
    for (WireFormat wire : kWires) {
      for (int layout = 0; layout < 4; ++layout, ++seed) {
        cases.push_back(LaidOut({.count = count, .wire = wire, .seed = seed}));
        cases.push_back(LaidOut({.count = count, .wire = wire, .receives = kParts[seed % 3], .seed = seed}));
      }
    }
  }
  CheckReduces(cases);
}

// Shared memory uses a different algorithm for up to 2,240 bytes (2,048 bytes with 8 ranks).
TEST_P(ReduceConformanceTest, SizesAroundTheLimitOfTheSmallAlgorithm) {
  std::vector<ReduceCase> cases;
  uint64_t seed = 2500;
  for (size_t bytes :
       {size_t{55}, size_t{56}, size_t{57}, size_t{2047}, size_t{2048}, size_t{2049}, size_t{2240}, size_t{2241}}) {
    cases.push_back(LaidOut({.count = bytes, .dtype = DType::kUint8, .seed = ++seed}));
    cases.push_back(LaidOut({.count = bytes, .dtype = DType::kUint8, .receives = kParts[seed % 3], .seed = ++seed}));
  }
  CheckReduces(cases);
}

TEST_P(ReduceConformanceTest, ScalesBeforeAndAfter) {
  constexpr DType kDTypes[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64,
                               DType::kInt8,    DType::kInt16,    DType::kInt32,   DType::kInt64};
  std::vector<ReduceCase> cases;
  uint64_t seed = 3000;
  for (DType dtype : kDTypes) {
    for (WireFormat wire : WireFormatsFor(dtype)) {
      for (size_t count : {size_t{13}, size_t{4096}}) {
        ReduceCase c = {.count = count, .dtype = dtype, .wire = wire};
        c.postscale = {.divisor = size()};
        c.seed = seed++;
        cases.push_back(LaidOut(c));
        c.prescale = {.multiplier = 0.5};
        c.seed = seed++;
        cases.push_back(LaidOut(c));
        c.postscale = {.multiplier = 0.25};
        c.receives = kParts[seed % 3];
        c.seed = seed++;
        cases.push_back(LaidOut(c));
      }
    }
  }
  CheckReduces(cases);
}

// The sum of all ranks, and the sum of a host's ranks, is larger than the largest number in float16.
TEST_P(ReduceConformanceTest, AveragesOfFloat16NearItsLimitAreFinite) {
  constexpr double kValue = 40960;  // exact in every format
  struct Kind {
    DType dtype;
    WireFormat wire;
  };
  for (const auto& [dtype, wire] : {Kind{DType::kFloat16, WireFormat::kNone},
                                    {DType::kFloat16, WireFormat::kFp8E4M3},
                                    {DType::kFloat16, WireFormat::kFp8E5M2},
                                    {DType::kFloat32, WireFormat::kFloat16},
                                    {DType::kFloat64, WireFormat::kFloat16}}) {
    for (const kernels::Scale& postscale : {kernels::Scale{.divisor = size()}, {.multiplier = -1.0 / size()}}) {
      const ReduceCase c = {.count = 3, .dtype = dtype, .wire = wire, .postscale = postscale};
      OnEveryRank([&](RankId, Transport& transport) {
        std::string data(c.count * SizeOf(c.dtype), '\0');
        for (size_t i = 0; i < c.count; ++i) WriteElement(data.data(), c.dtype, i, kValue);
        const Segment segment = {.input = data.data(), .output = data.data(), .count = c.count};
        ReduceCall call = CallOf(c, Info("average"));
        call.segments = {&segment, 1};
        ASSERT_EQ(transport.communicator->Reduce(call), absl::OkStatus());
        for (size_t i = 0; i < c.count; ++i) {
          const double expected = postscale.multiplier < 0 ? -kValue : kValue;
          EXPECT_NEAR(ReadElement(data.data(), c.dtype, i), expected, kValue / 4) << ToString(c);
        }
      });
    }
  }
}

TEST_P(ReduceConformanceTest, GroupsAreLikeSmallerJobs) {
  uint64_t seed = 4000;
  for (const Group& group : Groups()) {
    std::vector<ReduceCase> cases;
    for (size_t count : kCounts) {
      for (WireFormat wire : kWires) {
        cases.push_back(LaidOut({.count = count, .wire = wire, .seed = ++seed}));
        cases.push_back(LaidOut({.count = count, .wire = wire, .receives = kParts[seed % 3], .seed = ++seed}));
      }
    }
    CheckReduces(cases, &group);
  }
}

TEST_P(ReduceConformanceTest, LargeOnesTakeManyChunks) {
  if (size() != 2 && size() != 3) GTEST_SKIP() << "two ranks go one way, three the other";
  CheckReduces({{.count = kLargeCount, .cut = Cut::kPieces, .seed = 1},
                {.count = kLargeCount, .wire = WireFormat::kFp8E4M3, .cut = Cut::kPieces, .seed = 2},
                {.count = kLargeCount / 4, .wire = WireFormat::kFloat16, .receives = Receives::kRows, .seed = 3},
                {.count = kLargeCount / 4, .receives = Receives::kRootAll, .cut = Cut::kPieces, .seed = 4}});
}

// In every wire format, a tensor's result has the same bits whether the tensor is alone in its bucket or not.
TEST_P(ReduceConformanceTest, FusionDoesNotChangeBits) {
  for (WireFormat wire : kWires) {
    const ReduceCase fused = {.count = 3000, .wire = wire, .cut = Cut::kPieces, .seed = 17};
    CheckReduces({fused});
    const std::vector<size_t> counts = SegmentCounts(fused);
    std::vector<std::string> alone(size());
    OnEveryRank([&](RankId rank, Transport& transport) {
      std::string input = MakeInput(fused, rank);
      size_t begin = 0;
      for (size_t count : counts) {
        float* const tensor = reinterpret_cast<float*>(input.data()) + begin;
        const Segment segment = {.input = tensor, .output = tensor, .count = count};
        ReduceCall call = CallOf(fused, Info("alone"));
        call.segments = {&segment, 1};
        ASSERT_EQ(transport.communicator->Reduce(call), absl::OkStatus());
        begin += count;
      }
      alone[rank] = input;
    });
    std::vector<std::string> inputs;
    for (RankId rank = 0; rank < size(); ++rank) inputs.push_back(MakeInput(fused, rank));
    for (RankId rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(CheckResult(fused, inputs, alone[rank]), "") << Name(wire) << " on rank " << rank;
    }
  }
}

// Inputs are only read, so segments with different outputs can have the same input, or overlapping inputs.
TEST_P(ReduceConformanceTest, SegmentsMayShareInputs) {
  constexpr size_t kCount = 3000;
  constexpr size_t kShift = 7;
  for (WireFormat wire : kWires) {
    const ReduceCase whole = {.count = kCount, .wire = wire, .seed = 19};
    std::vector<std::string> inputs;
    std::vector<std::string> shifted;
    for (RankId rank = 0; rank < size(); ++rank) {
      inputs.push_back(MakeInput(whole, rank));
      shifted.push_back(inputs.back().substr(kShift * sizeof(float)));
    }
    ReduceCase rest = whole;
    rest.count = kCount - kShift;
    OnEveryRank([&](RankId rank, Transport& transport) {
      std::string first(kCount * sizeof(float), '\0');
      std::string second = first;
      std::string third((kCount - kShift) * sizeof(float), '\0');
      const Segment segments[] = {
          {.input = inputs[rank].data(), .output = first.data(), .count = kCount},
          {.input = inputs[rank].data(), .output = second.data(), .count = kCount},
          {.input = inputs[rank].data() + kShift * sizeof(float), .output = third.data(), .count = kCount - kShift}};
      ReduceCall call = CallOf(whole, Info("shared"));
      call.segments = segments;
      ASSERT_EQ(transport.communicator->Reduce(call), absl::OkStatus());
      EXPECT_EQ(CheckResult(whole, inputs, first) + CheckResult(whole, inputs, second), "") << Name(wire);
      EXPECT_EQ(CheckResult(rest, shifted, third), "") << Name(wire);
    });
  }
}

// The residual must hold the rounding errors of a rank's contributions, whichever thread packs them.
TEST_P(ReduceConformanceTest, ResidualsHoldTheRoundingErrorsOfContributions) {
  constexpr size_t kCount = 5000;
  for (WireFormat wire : {WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kFp8E4M3, WireFormat::kFp8E5M2}) {
    OnEveryRank([&](RankId rank, Transport& transport) {
      const ReduceCase c = {.count = kCount, .wire = wire, .seed = 18};
      const std::string input = MakeInput(c, rank);
      std::vector<float> output(kCount);
      std::vector<float> residual(kCount, 0.0f);
      const Segment segment = {
          .input = input.data(), .output = output.data(), .count = kCount, .residual = residual.data()};
      ReduceCall call = CallOf(c, Info("feedback"));
      call.segments = {&segment, 1};
      ASSERT_EQ(transport.communicator->Reduce(call), absl::OkStatus());
      const std::string sent = ExpectedBits(c, {input});
      const auto* const values = reinterpret_cast<const float*>(input.data());
      const auto* const rounded = reinterpret_cast<const float*>(sent.data());
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(residual[i], values[i] - rounded[i]) << Name(wire) << ", element " << i;
      }
    });
  }
}

}  // namespace
}  // namespace ronda::testing
