// SPDX-License-Identifier: Apache-2.0

// Computes results in fp64, and how far a communicator's result may be from them (the tolerance).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tests/conformance/reduce_case.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::testing {
namespace {

// The precision of a wire format: the relative error of one rounding, the absolute error of rounding a subnormal
// number, and the error of one operation in the format's accumulator. All tolerances are computed from these numbers.
// For the 8-bit formats, `smallest` is for a block whose largest magnitude is 1. The block's scale maps this magnitude
// to at least half of the format's range.
struct Precision {
  double rounding;
  double smallest;
  double accumulation;
};

Precision PrecisionOf(const ReduceCase& c) {
  if (IsFloatingPoint(c.dtype) && c.wire == WireFormat::kFp8E4M3)
    return {.rounding = 0x1p-4, .smallest = 0x1p-10 * 2 / 448, .accumulation = 0x1p-24};
  if (IsFloatingPoint(c.dtype) && c.wire == WireFormat::kFp8E5M2)
    return {.rounding = 0x1p-3, .smallest = 0x1p-17 * 2 / 57344, .accumulation = 0x1p-24};
  switch (WireDType(c.dtype, c.wire)) {
    case DType::kFloat16:
      return {.rounding = 0x1p-11, .smallest = 0x1p-24, .accumulation = 0x1p-24};
    case DType::kBfloat16:
      return {.rounding = 0x1p-8, .smallest = 0x1p-133, .accumulation = 0x1p-24};
    case DType::kFloat32:
      return {.rounding = 0x1p-24, .smallest = 0x1p-149, .accumulation = 0x1p-24};
    case DType::kFloat64:
      // The tolerance exceeds the rounding error of fp64, because the oracle computes in fp64, too.
      return {.rounding = 0x1p-52, .smallest = 0x1p-1074, .accumulation = 0x1p-52};
    default:
      return {.rounding = 0, .smallest = 0, .accumulation = 0};
  }
}

struct OracleValue {
  double value;
  double tolerance;
};

double Apply(const kernels::Scale& scale, double x) {
  return x * scale.multiplier / static_cast<double>(scale.divisor);
}

double ApplyToFloats(ReduceOp op, double a, double b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  return op == ReduceOp::kProduct ? a * b : a + b;
}

OracleValue FloatOracle(const ReduceCase& c, const std::vector<std::string>& inputs, size_t i, int levels) {
  const double ranks = static_cast<double>(inputs.size());
  double value = Apply(c.prescale, ReadElement(inputs[0].data(), c.dtype, i));
  double magnitude = std::abs(value);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const double next = Apply(c.prescale, ReadElement(inputs[rank].data(), c.dtype, i));
    value = ApplyToFloats(c.op, value, next);
    magnitude = c.op == ReduceOp::kProduct ? std::abs(value) : magnitude + std::abs(next);
  }
  const Precision precision = PrecisionOf(c);
  // Each contribution is rounded to the wire format, and the result is rounded once per level. So on one level, a sum
  // has the errors of two roundings: of a contribution, and of the result. A product has the errors of rounding all
  // factors and the result.
  const double roundings = c.op == ReduceOp::kProduct ? ranks * levels + 1 : 1 + levels;
  const double relative = std::pow(1 + precision.rounding, roundings) - 1 + (ranks + 2) * precision.accumulation;
  // No input is larger than 2.
  const double largest = std::max(Apply(c.prescale, 2.0), 1.0);
  const double largest_result = c.op == ReduceOp::kProduct ? std::pow(largest, ranks) : ranks * largest;
  const double absolute =
      precision.smallest * (ranks + levels) * std::max(1.0, std::abs(Apply(c.postscale, largest_result)));
  return {.value = Apply(c.postscale, value),
          .tolerance = relative * std::abs(Apply(c.postscale, magnitude)) + absolute};
}

// Returns the value of `bits`, a number modulo 2^64, once it is stored in an integer of type `dtype`.
double Wrapped(DType dtype, uint64_t bits) {
  return VisitDType(dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kUnsigned || kKindOf<E> == DTypeKind::kSigned) {
      return static_cast<double>(static_cast<E>(bits));
    } else {
      return static_cast<double>(bits);
    }
  });
}

// Computes modulo 2^64. Inputs are so small that they can be compared as signed numbers even if their type is unsigned.
uint64_t ApplyToIntegers(ReduceOp op, uint64_t a, uint64_t b) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return static_cast<int64_t>(a) < static_cast<int64_t>(b) ? a : b;
    case ReduceOp::kMax:
      return static_cast<int64_t>(a) > static_cast<int64_t>(b) ? a : b;
    case ReduceOp::kBitAnd:
      return a & b;
    case ReduceOp::kBitOr:
      return a | b;
    case ReduceOp::kBitXor:
      return a ^ b;
  }
  return 0;
}

OracleValue IntegerOracle(const ReduceCase& c, const std::vector<std::string>& inputs, size_t i) {
  const auto contribution = [&](size_t rank) {
    return static_cast<uint64_t>(
        static_cast<int64_t>(std::trunc(Apply(c.prescale, ReadElement(inputs[rank].data(), c.dtype, i)))));
  };
  uint64_t bits = contribution(0);
  for (size_t rank = 1; rank < inputs.size(); ++rank) bits = ApplyToIntegers(c.op, bits, contribution(rank));
  return {.value = std::trunc(Apply(c.postscale, Wrapped(c.dtype, bits))), .tolerance = 0};
}

OracleValue BoolOracle(const ReduceCase& c, const std::vector<std::string>& inputs, size_t i) {
  const auto is_true = [&](const std::string& input) { return input[i] != 0; };
  const auto truths = std::count_if(inputs.begin(), inputs.end(), is_true);
  switch (c.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return {.value = truths > 0 ? 1.0 : 0.0, .tolerance = 0};
    case ReduceOp::kBitXor:
      return {.value = truths % 2 == 1 ? 1.0 : 0.0, .tolerance = 0};
    case ReduceOp::kMin:
    case ReduceOp::kProduct:
    case ReduceOp::kBitAnd:
      break;
  }
  return {.value = truths == static_cast<ptrdiff_t>(inputs.size()) ? 1.0 : 0.0, .tolerance = 0};
}

OracleValue Oracle(const ReduceCase& c, const std::vector<std::string>& inputs, size_t i, int levels) {
  if (c.dtype == DType::kBool) return BoolOracle(c, inputs, i);
  return IsFloatingPoint(c.dtype) ? FloatOracle(c, inputs, i, levels) : IntegerOracle(c, inputs, i);
}

}  // namespace

std::string CompareWithOracle(const ReduceCase& c, const std::vector<std::string>& inputs, const std::string& output,
                              int levels) {
  for (size_t i = 0; i < c.count; ++i) {
    const OracleValue expected = Oracle(c, inputs, i, levels);
    const double actual = ReadElement(output.data(), c.dtype, i);
    if (!(std::abs(actual - expected.value) <= expected.tolerance)) {
      return absl::StrCat("element ", i, " is ", actual, ", not ", expected.value, " within ", expected.tolerance);
    }
  }
  return "";
}

}  // namespace ronda::testing
