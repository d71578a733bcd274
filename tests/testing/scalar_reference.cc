#include "tests/testing/scalar_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ronda::testing {
namespace {

// A 16-bit binary format: sign, `exponent_bits`, then `mantissa_bits`.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int ExponentOfInfinity() const { return (1 << exponent_bits) - 1; }
};

constexpr Format kFp16 = {.exponent_bits = 5, .mantissa_bits = 10};
constexpr Format kBf16 = {.exponent_bits = 8, .mantissa_bits = 7};

double Decode(Format format, uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits & 0x7FFF) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  if (exponent == format.ExponentOfInfinity()) {
    const double special =
        mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return std::copysign(special, sign);
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.Bias() - format.mantissa_bits);
  const int implicit_bit = 1 << format.mantissa_bits;
  return sign * std::ldexp(implicit_bit + mantissa, exponent - format.Bias() - format.mantissa_bits);
}

uint16_t Encode(Format format, double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = format.ExponentOfInfinity() << format.mantissa_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (format.mantissa_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  if (value == 0) return static_cast<uint16_t>(sign);
  // Count the value in units of its last place; subnormals share the place of the smallest normal number.
  const int exponent = std::max(std::ilogb(value), 1 - format.Bias());
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  // Patterns of successive magnitudes are successive integers, across exponents and up to infinity.
  const int first = (exponent + format.Bias() - 1) << format.mantissa_bits;
  const double magnitude = std::min<double>(first + units, infinity);
  return static_cast<uint16_t>(sign | static_cast<int>(magnitude));
}

template <class T>
T Load(const void* buffer, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(buffer) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void Store(void* buffer, size_t index, T value) {
  std::memcpy(static_cast<char*>(buffer) + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

double DoubleFromFp16(uint16_t bits) { return Decode(kFp16, bits); }
double DoubleFromBf16(uint16_t bits) { return Decode(kBf16, bits); }
uint16_t Fp16FromDouble(double value) { return Encode(kFp16, value); }
uint16_t Bf16FromDouble(double value) { return Encode(kBf16, value); }

double ReadElement(const void* buffer, DType dtype, size_t index) {
  switch (dtype) {
    case DType::kUint8:
      return Load<uint8_t>(buffer, index);
    case DType::kInt8:
      return Load<int8_t>(buffer, index);
    case DType::kUint16:
      return Load<uint16_t>(buffer, index);
    case DType::kInt16:
      return Load<int16_t>(buffer, index);
    case DType::kUint32:
      return Load<uint32_t>(buffer, index);
    case DType::kInt32:
      return Load<int32_t>(buffer, index);
    case DType::kUint64:
      return static_cast<double>(Load<uint64_t>(buffer, index));
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(buffer, index));
    case DType::kFloat16:
      return DoubleFromFp16(Load<uint16_t>(buffer, index));
    case DType::kBfloat16:
      return DoubleFromBf16(Load<uint16_t>(buffer, index));
    case DType::kFloat32:
      return Load<float>(buffer, index);
    case DType::kFloat64:
      return Load<double>(buffer, index);
    case DType::kBool:
      return Load<uint8_t>(buffer, index) != 0 ? 1.0 : 0.0;
  }
  return 0;
}

void WriteElement(void* buffer, DType dtype, size_t index, double value) {
  switch (dtype) {
    case DType::kUint8:
      return Store(buffer, index, static_cast<uint8_t>(value));
    case DType::kInt8:
      return Store(buffer, index, static_cast<int8_t>(value));
    case DType::kUint16:
      return Store(buffer, index, static_cast<uint16_t>(value));
    case DType::kInt16:
      return Store(buffer, index, static_cast<int16_t>(value));
    case DType::kUint32:
      return Store(buffer, index, static_cast<uint32_t>(value));
    case DType::kUint64:
      return Store(buffer, index, static_cast<uint64_t>(value));
    case DType::kInt32:
      return Store(buffer, index, static_cast<int32_t>(value));
    case DType::kInt64:
      return Store(buffer, index, static_cast<int64_t>(value));
    case DType::kFloat16:
      return Store(buffer, index, Fp16FromDouble(value));
    case DType::kBfloat16:
      return Store(buffer, index, Bf16FromDouble(value));
    case DType::kFloat32:
      return Store(buffer, index, static_cast<float>(value));
    case DType::kFloat64:
      return Store(buffer, index, value);
    case DType::kBool:
      return Store(buffer, index, static_cast<uint8_t>(value != 0));
  }
}

double RoundedTo(DType dtype, double value) {
  unsigned char element[sizeof(double)];
  WriteElement(element, dtype, 0, value);
  return ReadElement(element, dtype, 0);
}

bool IsQuietNan(const void* buffer, DType dtype, size_t index) {
  switch (dtype) {
    case DType::kFloat16:
      return (Load<uint16_t>(buffer, index) & 0x7E00u) == 0x7E00u;
    case DType::kBfloat16:
      return (Load<uint16_t>(buffer, index) & 0x7FC0u) == 0x7FC0u;
    case DType::kFloat32:
      return (Load<uint32_t>(buffer, index) & 0x7FC00000u) == 0x7FC00000u;
    case DType::kFloat64:
      return (Load<uint64_t>(buffer, index) >> 51 & 0xFFFu) == 0xFFFu;
    default:
      return false;
  }
}

}  // namespace ronda::testing
