// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/reference_fp8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/kernels/reference_kernels.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

using ::ronda::testing::ReadElement;
using ::ronda::testing::WriteElement;

const uint8_t* Block(const void* blocks, size_t index) {
  return static_cast<const uint8_t*>(blocks) + index * kFp8BlockBytes;
}

float ScaleOf(const uint8_t* block) {
  float scale;
  std::memcpy(&scale, block, sizeof(scale));
  return scale;
}

// Returns the scale of a block whose largest finite magnitude is `largest`.
float ScaleFor(Fp8Format format, double largest) {
  if (largest == 0) return 1;
  double scale = std::ldexp(1.0, -126);
  // The largest number of both formats has the mantissa 1.75. With a larger scale, decoding it would overflow to
  // infinity.
  while (largest > scale * LargestCode(format) && scale * LargestCode(format) < std::ldexp(1.75, 127)) scale *= 2;
  return static_cast<float>(scale);
}

// Encodes `count` values, which fit into one block.
void EncodeBlock(Fp8Format format, const float* values, size_t count, uint8_t* block) {
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
  }
  const float scale = ScaleFor(format, largest);
  std::memset(block, 0, kFp8BlockBytes);
  std::memcpy(block, &scale, sizeof(scale));
  for (size_t i = 0; i < count; ++i) {
    block[sizeof(scale) + i] = CodeFromDouble(format, static_cast<double>(values[i]) / static_cast<double>(scale));
  }
}

void EncodeValues(Fp8Format format, const std::vector<float>& values, void* blocks) {
  for (size_t begin = 0, block = 0; begin < values.size(); begin += kFp8BlockElements, ++block) {
    const size_t count = std::min(values.size() - begin, kFp8BlockElements);
    EncodeBlock(format, values.data() + begin, count, static_cast<uint8_t*>(blocks) + block * kFp8BlockBytes);
  }
}

float ValueAt(const void* blocks, Fp8Format format, size_t index) {
  const uint8_t* block = Block(blocks, index / kFp8BlockElements);
  const uint8_t code = block[sizeof(float) + index % kFp8BlockElements];
  return static_cast<float>(DoubleFromCode(format, code) * static_cast<double>(ScaleOf(block)));
}

float Scaled(const void* src, DType dtype, size_t index, const Scale& scale) {
  const double factor = scale.multiplier / static_cast<double>(scale.divisor);
  const double value = ReadElement(src, dtype, index);
  if (dtype == DType::kFloat64) return static_cast<float>(value * factor);
  return static_cast<float>(value) * static_cast<float>(factor);
}

}  // namespace

double DoubleFromCode(Fp8Format format, uint8_t code) {
  return format == Fp8Format::kE4M3 ? testing::DoubleFromE4M3(code) : testing::DoubleFromE5M2(code);
}

uint8_t CodeFromDouble(Fp8Format format, double value) {
  return format == Fp8Format::kE4M3 ? testing::E4M3FromDouble(value) : testing::E5M2FromDouble(value);
}

double LargestCode(Fp8Format format) { return format == Fp8Format::kE4M3 ? 448 : 57344; }

void ReferenceEncodeFp8(const EncodeFp8Args& args) {
  std::vector<float> values(args.count);
  for (size_t i = 0; i < args.count; ++i) {
    values[i] = Scaled(args.src, args.src_dtype, i, args.scale);
    if (args.residual != nullptr) values[i] += args.residual[i];
  }
  EncodeValues(args.format, values, args.blocks);
  if (args.residual == nullptr) return;
  for (size_t i = 0; i < args.count; ++i) {
    const float lost = values[i] - ValueAt(args.blocks, args.format, i);
    args.residual[i] = std::isfinite(lost) ? lost : 0;
  }
}

void ReferenceDecodeFp8(const void* blocks, Fp8Format format, void* dst, DType dst_dtype, size_t count) {
  for (size_t i = 0; i < count; ++i) WriteElement(dst, dst_dtype, i, ValueAt(blocks, format, i));
}

void ReferenceReduceFp8(const ReduceFp8Args& args) {
  const auto factor = static_cast<float>(args.scale.multiplier / static_cast<double>(args.scale.divisor));
  std::vector<float> values(args.count);
  for (size_t i = 0; i < args.count; ++i) {
    values[i] = ValueAt(args.sources[0], args.format, i);
    for (size_t s = 1; s < args.sources.size(); ++s) {
      values[i] = CombinedFloats(args.op, values[i], ValueAt(args.sources[s], args.format, i));
    }
    values[i] *= factor;
  }
  std::vector<uint8_t> blocks(Fp8Bytes(args.count));
  EncodeValues(args.format, values, blocks.data());
  if (args.dst_dtype.has_value()) {
    return ReferenceDecodeFp8(blocks.data(), args.format, args.dst, *args.dst_dtype, args.count);
  }
  if (!blocks.empty()) std::memcpy(args.dst, blocks.data(), blocks.size());
}

}  // namespace ronda::kernels
