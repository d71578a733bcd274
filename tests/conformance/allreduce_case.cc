#include "tests/conformance/allreduce_case.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::testing {
namespace {

// The tolerance table, and the only one: what one rounding to a wire's dtype costs, relative and (below the normal
// numbers) absolute, and what one operation in its accumulator costs.
struct Precision {
  double rounding;
  double smallest;
  double accumulation;
};

Precision PrecisionOf(DType wire) {
  switch (wire) {
    case DType::kFloat16:
      return {.rounding = 0x1p-11, .smallest = 0x1p-24, .accumulation = 0x1p-24};
    case DType::kBfloat16:
      return {.rounding = 0x1p-8, .smallest = 0x1p-133, .accumulation = 0x1p-24};
    case DType::kFloat32:
      return {.rounding = 0x1p-24, .smallest = 0x1p-149, .accumulation = 0x1p-24};
    case DType::kFloat64:
      // The oracle itself is no better than this.
      return {.rounding = 0x1p-52, .smallest = 0x1p-1074, .accumulation = 0x1p-52};
    default:
      return {.rounding = 0, .smallest = 0, .accumulation = 0};
  }
}

struct OracleValue {
  double value;
  double tolerance;
};

double Apply(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    default:
      break;
  }
  return 0;
}

double Apply(const kernels::Scale& scale, double x) {
  return x * scale.multiplier / static_cast<double>(scale.divisor);
}

OracleValue FloatOracle(const AllreduceCase& c, const std::vector<std::string>& inputs, size_t i) {
  double value = Apply(c.prescale, ReadElement(inputs[0].data(), c.dtype, i));
  double magnitude = std::abs(value);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const double next = Apply(c.prescale, ReadElement(inputs[rank].data(), c.dtype, i));
    value = Apply(c.op, value, next);
    magnitude = c.op == ReduceOp::kProduct ? std::abs(value) : magnitude + std::abs(next);
  }
  const double ranks = static_cast<double>(inputs.size());
  const Precision precision = PrecisionOf(WireDType(c.dtype, c.wire));
  // Each contribution is rounded to the wire's dtype, then the result, once: of a sum that is two roundings, of a
  // product one a factor and one more.
  const double roundings = c.op == ReduceOp::kProduct ? ranks + 1 : 2;
  const double relative = roundings * precision.rounding + (ranks + 2) * precision.accumulation;
  return {.value = Apply(c.postscale, value),
          .tolerance = relative * std::abs(Apply(c.postscale, magnitude)) + 2 * precision.smallest};
}

// Arithmetic modulo 2^64, of which that modulo 2^8 or 2^32 is a part.
OracleValue IntegerOracle(const AllreduceCase& c, const std::vector<std::string>& inputs, size_t i) {
  const auto contribution = [&](size_t rank) {
    return static_cast<int64_t>(std::trunc(Apply(c.prescale, ReadElement(inputs[rank].data(), c.dtype, i))));
  };
  int64_t value = contribution(0);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const int64_t next = contribution(rank);
    const auto a = static_cast<uint64_t>(value);
    const auto b = static_cast<uint64_t>(next);
    if (c.op == ReduceOp::kSum) value = static_cast<int64_t>(a + b);
    if (c.op == ReduceOp::kProduct) value = static_cast<int64_t>(a * b);
    if (c.op == ReduceOp::kMin) value = std::min(value, next);
    if (c.op == ReduceOp::kMax) value = std::max(value, next);
  }
  if (c.dtype == DType::kUint8) value = static_cast<uint8_t>(value);
  if (c.dtype == DType::kInt8) value = static_cast<int64_t>(static_cast<int8_t>(value));
  if (c.dtype == DType::kInt32) value = static_cast<int32_t>(value);
  return {.value = std::trunc(Apply(c.postscale, static_cast<double>(value))), .tolerance = 0};
}

OracleValue BoolOracle(const AllreduceCase& c, const std::vector<std::string>& inputs, size_t i) {
  const bool is_or = c.op == ReduceOp::kSum || c.op == ReduceOp::kMax;
  const auto is_true = [&](const std::string& input) { return input[i] != 0; };
  const bool value =
      is_or ? std::any_of(inputs.begin(), inputs.end(), is_true) : std::all_of(inputs.begin(), inputs.end(), is_true);
  return {.value = value ? 1.0 : 0.0, .tolerance = 0};
}

OracleValue Oracle(const AllreduceCase& c, const std::vector<std::string>& inputs, size_t i) {
  if (c.dtype == DType::kBool) return BoolOracle(c, inputs, i);
  return IsFloatingPoint(c.dtype) ? FloatOracle(c, inputs, i) : IntegerOracle(c, inputs, i);
}

// Numbers whose sums and products over 8 ranks stay in the range of fp16; integers that, scaled, do not leave int8.
double RandomValue(const AllreduceCase& c, std::mt19937_64& random) {
  if (IsFloatingPoint(c.dtype)) {
    const double magnitude = std::uniform_real_distribution<double>(0.5, 2.0)(random);
    return random() % 2 == 0 ? magnitude : -magnitude;
  }
  const bool is_scaled = !c.prescale.IsIdentity() || !c.postscale.IsIdentity();
  const int64_t limit = is_scaled ? 15 : 100;
  return static_cast<double>(
      std::uniform_int_distribution<int64_t>(c.dtype == DType::kUint8 ? 0 : -limit, limit)(random));
}

}  // namespace

std::string ToString(const AllreduceCase& c) {
  return absl::StrCat(Name(c.op), " of ", c.count, " ", Name(c.dtype), " over ", Name(c.wire), ", prescale ",
                      c.prescale.multiplier, "/", c.prescale.divisor, ", postscale ", c.postscale.multiplier, "/",
                      c.postscale.divisor, ", seed ", c.seed);
}

std::string MakeInput(const AllreduceCase& c, RankId rank) {
  std::mt19937_64 random(c.seed * 1000 + static_cast<uint64_t>(rank));
  std::string input(c.count * SizeOf(c.dtype), '\0');
  constexpr char kBools[] = {0, 0, 1, 2, '\xff'};
  for (size_t i = 0; i < c.count; ++i) {
    if (c.dtype == DType::kBool) {
      input[i] = kBools[random() % std::size(kBools)];
    } else {
      WriteElement(input.data(), c.dtype, i, RandomValue(c, random));
    }
  }
  return input;
}

std::string ExpectedBits(const AllreduceCase& c, const std::vector<std::string>& inputs) {
  const DType wire = WireDType(c.dtype, c.wire);
  std::vector<std::string> contributions;
  for (const std::string& input : inputs) {
    contributions.emplace_back(c.count * SizeOf(wire), '\0');
    kernels::Convert(input.data(), c.dtype, contributions.back().data(), wire, c.count, c.prescale);
  }
  std::vector<const void*> sources;
  sources.reserve(contributions.size());
  for (const std::string& contribution : contributions) sources.push_back(contribution.data());
  std::string result(c.count * SizeOf(c.dtype), '\0');
  kernels::Reduce({.sources = sources,
                   .dtype = wire,
                   .op = c.op,
                   .scale = c.postscale,
                   .dst = result.data(),
                   .dst_dtype = c.dtype,
                   .count = c.count});
  return result;
}

std::string CompareWithOracle(const AllreduceCase& c, const std::vector<std::string>& inputs,
                              const std::string& output) {
  for (size_t i = 0; i < c.count; ++i) {
    const OracleValue expected = Oracle(c, inputs, i);
    const double actual = ReadElement(output.data(), c.dtype, i);
    if (!(std::abs(actual - expected.value) <= expected.tolerance)) {
      return absl::StrCat("element ", i, " is ", actual, ", not ", expected.value, " within ", expected.tolerance);
    }
  }
  return "";
}

}  // namespace ronda::testing
