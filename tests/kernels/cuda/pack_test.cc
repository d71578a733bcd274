// SPDX-License-Identifier: Apache-2.0

// Compares Pack with kernels/cpu, bit for bit.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/fp8.h"
#include "tests/kernels/cuda/runner.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels::cuda {
namespace {

constexpr Scale kNoScale = {};
constexpr Scale kSomeScale = {.multiplier = 0.75, .divisor = 3};
constexpr Wire::Blocks kFormats[] = {Wire::Blocks::kE4M3, Wire::Blocks::kE5M2};

Fp8Format FormatOf(Wire::Blocks blocks) { return blocks == Wire::Blocks::kE4M3 ? Fp8Format::kE4M3 : Fp8Format::kE5M2; }

size_t WireBytes(const Wire& wire, size_t count) {
  return wire.blocks == Wire::Blocks::kNone ? count * SizeOf(wire.dtype) : Fp8Bytes(count);
}

struct Conversion {
  DType dtype;
  Wire wire;
  Scale scale;
};

std::string Describe(const Conversion& conversion) {
  const Wire& wire = conversion.wire;
  const bool in_blocks = wire.blocks != Wire::Blocks::kNone;
  return absl::StrCat(Name(conversion.dtype), " to ",
                      in_blocks ? absl::StrCat("blocks ", static_cast<int>(wire.blocks)) : Name(wire.dtype), ", scale ",
                      conversion.scale.multiplier, "/", conversion.scale.divisor);
}

struct TestTensor {
  size_t count;
  size_t misalignment;
};

// Packs tensors, and compares the packed data with the result of kernels/cpu.
class Bucket {
 public:
  enum class Feedback { kNo, kYes };

  Bucket(Random& random, const Conversion& conversion, const std::vector<TestTensor>& tensors, Numbers numbers,
         Feedback feedback)
      : conversion_(conversion) {
    for (const TestTensor& tensor : tensors) {
      counts_.push_back(tensor.count);
      inputs_.emplace_back(tensor.count * SizeOf(conversion.dtype), tensor.misalignment);
      FillRandom(random, numbers, conversion.dtype, tensor.count, inputs_.back().data());
      residuals_.emplace_back(feedback == Feedback::kYes ? tensor.count * sizeof(float) : 0);
      FillRandom(random, Numbers::kOrdinary, DType::kFloat32, residuals_.back().size() / sizeof(float),
                 residuals_.back().data());
      offsets_.push_back(wire_bytes_);
      wire_bytes_ += (WireBytes(conversion.wire, tensor.count) + 15) / 16 * 16;
    }
    has_feedback_ = feedback == Feedback::kYes;
  }

  // Packs the tensors. Returns how the packed data and the residuals differ from the results of kernels/cpu, or "" if
  // they are equal.
  std::string Check() {
    std::vector<SharedBytes> expected_residuals;
    for (const SharedBytes& residual : residuals_) {
      expected_residuals.emplace_back(residual.size());
      std::memcpy(expected_residuals.back().data(), residual.data(), residual.size());
    }
    const SharedBytes wire(wire_bytes_);
    const int error = RunCall(Call(wire.data()));
    if (error != 0) return absl::StrCat("error ", error);
    if (!wire.GuardsIntact()) return "wrote outside of the wire";
    for (size_t i = 0; i < counts_.size(); ++i) {
      const std::string difference = Compare(i, wire, expected_residuals[i]);
      if (!difference.empty()) return absl::StrCat("tensor ", i, " of ", counts_[i], " elements: ", difference);
    }
    return "";
  }

  // Returns one PackCall for all tensors.
  PackCall Call(void* wire) {
    segments_.clear();
    for (size_t i = 0; i < counts_.size(); ++i) {
      segments_.push_back({.input = inputs_[i].data(),
                           .residual = has_feedback_ ? residuals_[i].as<float>() : nullptr,
                           .count = counts_[i],
                           .offset = offsets_[i]});
    }
    return {.segments = segments_.data(),
            .segment_count = static_cast<int>(segments_.size()),
            .dtype = conversion_.dtype,
            .wire = conversion_.wire,
            .scale = conversion_.scale,
            .buffer = wire};
  }

 private:
  // Computes the expected result for a tensor with kernels/cpu.
  void Expect(size_t index, float* residual, uint8_t* wire) const {
    const void* src = inputs_[index].data();
    const auto& [dtype, format, scale] = conversion_;
    if (format.blocks != Wire::Blocks::kNone) {
      EncodeFp8({.src = src,
                 .src_dtype = dtype,
                 .count = counts_[index],
                 .scale = scale,
                 .format = FormatOf(format.blocks),
                 .blocks = wire,
                 .residual = residual});
    } else if (residual != nullptr) {
      ConvertWithFeedback({.src = src,
                           .src_dtype = dtype,
                           .dst = wire,
                           .dst_dtype = format.dtype,
                           .count = counts_[index],
                           .scale = scale,
                           .residual = residual});
    } else {
      Convert(src, dtype, wire, format.dtype, counts_[index], scale);
    }
  }

  std::string Compare(size_t index, const SharedBytes& wire, const SharedBytes& expected_residual) const {
    const size_t bytes = WireBytes(conversion_.wire, counts_[index]);
    const SharedBytes expected((bytes + 15) / 16 * 16);  // bytes after the tensor must not change
    Expect(index, has_feedback_ ? expected_residual.as<float>() : nullptr, expected.data());
    const uint8_t* actual = wire.data() + offsets_[index];
    const bool in_blocks = conversion_.wire.blocks != Wire::Blocks::kNone;
    const DType unit = in_blocks ? DType::kUint8 : conversion_.wire.dtype;
    const std::string difference = Difference(unit, bytes / SizeOf(unit), expected.data(), actual);
    if (!difference.empty()) return difference;
    if (std::memcmp(expected.data() + bytes, actual + bytes, expected.size() - bytes) != 0) return "gap written";
    if (!has_feedback_) return "";
    if (!residuals_[index].GuardsIntact()) return "wrote outside of the residual";
    return Difference(DType::kFloat32, counts_[index], expected_residual.data(), residuals_[index].data());
  }

  const Conversion conversion_;
  bool has_feedback_;
  std::vector<size_t> counts_;
  std::vector<SharedBytes> inputs_;
  std::vector<SharedBytes> residuals_;
  std::vector<size_t> offsets_;
  std::vector<PackSegment> segments_;
  size_t wire_bytes_ = 0;
};

std::vector<Conversion> AllConversions() {
  std::vector<Conversion> all;
  for (const Scale& scale : {kNoScale, kSomeScale}) {
    for (DType dtype : kAllDTypes) {
      if (!IsFloatingPoint(dtype)) all.push_back({dtype, {.dtype = dtype}, scale});
    }
    for (DType from : kFloatDTypes) {
      for (DType to : kFloatDTypes) all.push_back({from, {.dtype = to}, scale});
      for (Wire::Blocks blocks : kFormats) all.push_back({from, {.blocks = blocks}, scale});
    }
  }
  return all;
}

// Returns the conversions that support error feedback.
std::vector<Conversion> NarrowingConversions() {
  std::vector<Conversion> all = AllConversions();
  const auto is_other = [](const Conversion& conversion) {
    const Wire& wire = conversion.wire;
    return wire.blocks == Wire::Blocks::kNone && !(IsFloatingPoint(wire.dtype) && SizeOf(wire.dtype) == 2);
  };
  all.erase(std::remove_if(all.begin(), all.end(), is_other), all.end());
  return all;
}

class PackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = WhyNotHere();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  std::string Check(const Conversion& conversion, const std::vector<TestTensor>& tensors,
                    Numbers numbers = Numbers::kAnyBits, Bucket::Feedback feedback = Bucket::Feedback::kNo) {
    const std::string difference = Bucket(random_, conversion, tensors, numbers, feedback).Check();
    return difference.empty() ? "" : absl::StrCat(Describe(conversion), ": ", difference);
  }

  // Returns tensors with sizes as in a model: most are small, some are large, and a few are empty.
  std::vector<TestTensor> ManyTensors(size_t number) {
    std::vector<TestTensor> tensors;
    for (size_t i = 0; i < number; ++i) {
      const size_t limit = i % 40 == 0 ? 30000 : 700;
      tensors.push_back({i % 50 == 7 ? 0 : random_() % limit, (random_() % 4) * 4});
    }
    return tensors;
  }

  Random random_{20240607};  // fixed, so that a failure repeats
};

TEST_F(PackTest, EveryConversionOfEveryCountAndAlignmentIsTheCpus) {
  std::vector<TestTensor> tensors;
  for (size_t count : {0, 1, 3, 7, 13, 255, 256, 257, 4096, 4097}) {
    for (size_t misalignment : {0, 1, 2, 4, 8, 15}) tensors.push_back({count, misalignment});
  }
  for (const Conversion& conversion : AllConversions()) EXPECT_EQ(Check(conversion, tensors), "");
}

TEST_F(PackTest, OrdinaryNumbersAreTheCpus) {
  // Random bit patterns do not suffice as inputs, because most of them are huge or tiny numbers. Few codes in a block
  // are then nonzero.
  for (const Conversion& conversion : AllConversions()) {
    EXPECT_EQ(Check(conversion, {{2000, 0}, {300, 4}, {255, 3}}, Numbers::kOrdinary), "");
  }
}

// The scale of a block changes where its largest number exceeds 1.75 times a power of two.
TEST_F(PackTest, ScalesOfBlocksAreTheCpus) {
  for (Wire::Blocks blocks : kFormats) {
    std::vector<uint32_t> largest;
    for (uint32_t exponent = 0; exponent < 255; ++exponent) {
      for (uint32_t mantissa : {0u, 0x5FFFFFu, 0x600000u, 0x600001u, 0x7FFFFFu}) {
        largest.push_back(exponent << 23 | mantissa);
      }
    }
    const size_t count = largest.size() * kFp8BlockElements;
    const SharedBytes input(count * sizeof(float));
    std::memset(input.data(), 0, input.size());
    for (size_t i = 0; i < largest.size(); ++i) input.as<uint32_t>()[i * kFp8BlockElements + i % 256] = largest[i];
    const SharedBytes wire(Fp8Bytes(count));
    const SharedBytes expected(Fp8Bytes(count));
    const PackSegment segment = {.input = input.data(), .count = count};
    ASSERT_EQ(
        RunCall(PackCall{.segments = &segment, .segment_count = 1, .wire = {.blocks = blocks}, .buffer = wire.data()}),
        0);
    EncodeFp8({.src = input.data(),
               .src_dtype = DType::kFloat32,
               .count = count,
               .format = FormatOf(blocks),
               .blocks = expected.data()});
    EXPECT_EQ(Difference(DType::kUint8, expected.size(), expected.data(), wire.data()), "");
  }
}

TEST_F(PackTest, LargeTensorsAreTheCpus) {
  constexpr size_t kCount = (1 << 20) + 1;
  for (const Wire& wire : {Wire{.dtype = DType::kFloat16}, Wire{.blocks = Wire::Blocks::kE4M3}}) {
    EXPECT_EQ(Check({DType::kFloat32, wire, kSomeScale}, {{kCount, 0}, {kCount, 4}}), "");
  }
}

TEST_F(PackTest, EveryPatternOf16BitsIsTheCpus) {
  for (DType from : {DType::kFloat16, DType::kBfloat16}) {
    for (DType to : kFloatDTypes) {
      SharedBytes input(2 << 16);
      for (size_t i = 0; i < 1 << 16; ++i) input.as<uint16_t>()[i] = static_cast<uint16_t>(i);
      const SharedBytes wire(SizeOf(to) << 16);
      const SharedBytes expected(SizeOf(to) << 16);
      const PackSegment segment = {.input = input.data(), .count = 1 << 16};
      ASSERT_EQ(RunCall(PackCall{.segments = &segment,
                                 .segment_count = 1,
                                 .dtype = from,
                                 .wire = {.dtype = to},
                                 .scale = kSomeScale,
                                 .buffer = wire.data()}),
                0);
      Convert(input.data(), from, expected.data(), to, 1 << 16, kSomeScale);
      EXPECT_EQ(Difference(to, 1 << 16, expected.data(), wire.data()), "") << Name(from) << " to " << Name(to);
    }
  }
}

TEST_F(PackTest, ManyTensorsGoWhereTheyBelong) {
  const Conversion to_half = {DType::kFloat32, {.dtype = DType::kBfloat16}, kSomeScale};
  const Conversion to_blocks = {DType::kFloat32, {.blocks = Wire::Blocks::kE5M2}, kSomeScale};
  for (size_t number : {1, 64, 65, 161, 398, 448, 449, 2000}) {
    EXPECT_EQ(Check(to_half, ManyTensors(number)), "") << number;
    EXPECT_EQ(Check(to_blocks, ManyTensors(number)), "") << number;
  }
}

TEST_F(PackTest, FeedbackIsTheCpus) {
  const std::vector<TestTensor> tensors = {{1, 0}, {7, 0}, {255, 0}, {256, 8}, {257, 0}, {4099, 0}, {5000, 2}};
  for (const Conversion& conversion : NarrowingConversions()) {
    for (Numbers numbers : {Numbers::kOrdinary, Numbers::kAnyBits}) {
      EXPECT_EQ(Check(conversion, tensors, numbers, Bucket::Feedback::kYes), "");
    }
  }
}

TEST_F(PackTest, EmptyCallSucceeds) {
  EXPECT_EQ(RunCall(PackCall{}), 0);
  EXPECT_EQ(Check({DType::kFloat32, {.dtype = DType::kFloat16}, kNoScale}, {{0, 0}, {0, 0}}), "");
}

TEST_F(PackTest, UnsupportedCallIsAnError) {
  const SharedBytes memory(256);
  PackSegment segment = {.input = memory.data(), .count = 1};
  PackCall call = {.segments = &segment, .segment_count = 1, .buffer = memory.data()};
  call.dtype = DType::kInt32;
  call.wire.dtype = DType::kFloat32;
  EXPECT_NE(RunCall(call), 0);
  call.wire = {.blocks = Wire::Blocks::kE4M3};
  EXPECT_NE(RunCall(call), 0);
  segment.residual = memory.as<float>();
  call.dtype = DType::kFloat32;
  call.wire = {.dtype = DType::kFloat32};
  EXPECT_NE(RunCall(call), 0) << "feedback of what is not rounded";
}

}  // namespace
}  // namespace ronda::kernels::cuda
