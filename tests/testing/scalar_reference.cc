// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/scalar_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ronda::testing {
namespace {

// A binary floating-point format: a sign bit, followed by the exponent and the mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int first_special;  // the first pattern that is not a finite number: infinity, if the format has it

  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int SignBit() const { return 1 << (exponent_bits + mantissa_bits); }
  int MantissaMask() const { return (1 << mantissa_bits) - 1; }
  bool HasInfinity() const { return (first_special & MantissaMask()) == 0; }
};

constexpr Format kFp16 = {.exponent_bits = 5, .mantissa_bits = 10, .first_special = 0x7C00};
constexpr Format kBf16 = {.exponent_bits = 8, .mantissa_bits = 7, .first_special = 0x7F80};
constexpr Format kE4M3 = {.exponent_bits = 4, .mantissa_bits = 3, .first_special = 0x7F};
constexpr Format kE5M2 = {.exponent_bits = 5, .mantissa_bits = 2, .first_special = 0x7C};

double Decode(Format format, int bits) {
  const double sign = (bits & format.SignBit()) != 0 ? -1.0 : 1.0;
  const int magnitude = bits & (format.SignBit() - 1);
  if (magnitude >= format.first_special) {
    const bool is_infinity = format.HasInfinity() && magnitude == format.first_special;
    const double special =
        is_infinity ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return std::copysign(special, sign);
  }
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & format.MantissaMask();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.Bias() - format.mantissa_bits);
  const int implicit_bit = 1 << format.mantissa_bits;
  return sign * std::ldexp(implicit_bit + mantissa, exponent - format.Bias() - format.mantissa_bits);
}

int Encode(Format format, double value) {
  const int sign = std::signbit(value) ? format.SignBit() : 0;
  if (std::isnan(value)) return sign | format.first_special | 1 << (format.mantissa_bits - 1);
  if (std::isinf(value)) return sign | format.first_special;
  if (value == 0) return sign;
  // Computes the value in units in the last place. For subnormal numbers, this unit is that of the smallest normal
  // number.
  const int exponent = std::max(std::ilogb(value), 1 - format.Bias());
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  // Successive magnitudes, up to infinity, have successive integers as bit patterns, even where the exponent changes.
  const int first = (exponent + format.Bias() - 1) << format.mantissa_bits;
  const double magnitude = std::min<double>(first + units, format.first_special);
  return sign | static_cast<int>(magnitude);
}

// Encodes every NaN as the same positive bit pattern.
uint8_t EncodeFp8(Format format, double value) {
  const int code = Encode(format, value);
  const bool is_nan = std::isnan(Decode(format, code));
  return static_cast<uint8_t>(is_nan ? code & ~format.SignBit() : code);
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
double DoubleFromE4M3(uint8_t code) { return Decode(kE4M3, code); }
double DoubleFromE5M2(uint8_t code) { return Decode(kE5M2, code); }
uint16_t Fp16FromDouble(double value) { return static_cast<uint16_t>(Encode(kFp16, value)); }
uint16_t Bf16FromDouble(double value) { return static_cast<uint16_t>(Encode(kBf16, value)); }
uint8_t E4M3FromDouble(double value) { return EncodeFp8(kE4M3, value); }
uint8_t E5M2FromDouble(double value) { return EncodeFp8(kE5M2, value); }

double ReadElement(const void* buffer, DType dtype, size_t index) {
  return VisitDType(dtype, [&]<class E>(ElementType<E>) -> double {
    const E element = Load<E>(buffer, index);
    if constexpr (std::is_same_v<E, Bool>) {
      return element.byte != 0 ? 1.0 : 0.0;
    } else if constexpr (std::is_same_v<E, Float16>) {
      return DoubleFromFp16(element.bits);
    } else if constexpr (std::is_same_v<E, Bfloat16>) {
      return DoubleFromBf16(element.bits);
    } else {
      return static_cast<double>(element);
    }
  });
}

void WriteElement(void* buffer, DType dtype, size_t index, double value) {
  VisitDType(dtype, [&]<class E>(ElementType<E>) {
    if constexpr (std::is_same_v<E, Bool>) {
      Store(buffer, index, Bool{value != 0});
    } else if constexpr (std::is_same_v<E, Float16>) {
      Store(buffer, index, Float16{Fp16FromDouble(value)});
    } else if constexpr (std::is_same_v<E, Bfloat16>) {
      Store(buffer, index, Bfloat16{Bf16FromDouble(value)});
    } else {
      Store(buffer, index, static_cast<E>(value));
    }
  });
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
