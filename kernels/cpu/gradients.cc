// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/gradients.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gradients.cc"
#include "hwy/foreach_target.h"
// These must come after foreach_target.h, which sets the SIMD target for which they are compiled.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

// Sets the highest bit of a lane if its element's magnitude, as an integer, is at least `infinity`. (Adds instead of
// comparing, because some targets cannot compare 64-bit integers.)
template <class D>  // of unsigned integers
HWY_INLINE hn::Vec<D> Flags(D d, hn::Vec<D> bits, hn::TFromD<D> infinity) {
  using Lane = hn::TFromD<D>;
  constexpr Lane kHighest = Lane{1} << (8 * sizeof(Lane) - 1);
  const auto magnitude = hn::And(bits, hn::Set(d, static_cast<Lane>(kHighest - 1)));
  return hn::Add(magnitude, hn::Set(d, static_cast<Lane>(kHighest - infinity)));
}

template <class Lane>
bool AnyAtLeast(const uint8_t* data, size_t count, Lane infinity) {
  const hn::ScalableTag<Lane> d;
  const size_t lanes = hn::Lanes(d);
  auto flags = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::LoadU(d, reinterpret_cast<const Lane*>(data + i * sizeof(Lane)));
    flags = hn::Or(flags, Flags(d, bits, infinity));
  }
  Lane rest[HWY_MAX_BYTES / sizeof(Lane)] = {};
  if (i < count) std::memcpy(rest, data + i * sizeof(Lane), (count - i) * sizeof(Lane));
  flags = hn::Or(flags, Flags(d, hn::LoadU(d, rest), infinity));
  const hn::RebindToSigned<decltype(d)> di;
  return !hn::AllFalse(di, hn::Lt(hn::BitCast(di, flags), hn::Zero(di)));
}

bool HasNonFiniteOnTarget(const uint8_t* data, DType dtype, size_t count) {
  return VisitDType(dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      using Lane = hwy::UnsignedFromSize<sizeof(E)>;
      return AnyAtLeast<Lane>(data, count, static_cast<Lane>(InfoOf(kDTypeOf<E>).infinity));
    } else {
      return false;
    }
  });
}

// The number of sums accumulated in parallel: at least the number of fp64 lanes of any target.
constexpr size_t kSums = 16;

// The number of rows to add at once: few enough to be still in the L1 cache when their next column is added.
constexpr size_t kRowsAtOnce = 64;

using Doubles = hn::ScalableTag<double>;

struct Sums {
  alignas(64) double ab[kSums] = {};
  alignas(64) double aa[kSums] = {};
  alignas(64) double bb[kSums] = {};
};

// Adds the products of `rows` rows of kSums elements, one column of vectors at a time, whose sums stay in registers.
template <class E>
HWY_INLINE void AddRows(const uint8_t* a, const uint8_t* b, size_t rows, Sums& sums) {
  const Doubles d;
  for (size_t column = 0; column < kSums; column += hn::Lanes(d)) {
    auto ab = hn::Load(d, sums.ab + column);
    auto aa = hn::Load(d, sums.aa + column);
    auto bb = hn::Load(d, sums.bb + column);
    for (size_t row = 0; row < rows; ++row) {
      const size_t at = (row * kSums + column) * sizeof(E);
      const auto va = LoadElements<E>(d, a + at);
      const auto vb = LoadElements<E>(d, b + at);
      ab = hn::Add(ab, hn::Mul(va, vb));
      aa = hn::Add(aa, hn::Mul(va, va));
      bb = hn::Add(bb, hn::Mul(vb, vb));
    }
    hn::Store(ab, d, sums.ab + column);
    hn::Store(aa, d, sums.aa + column);
    hn::Store(bb, d, sums.bb + column);
  }
}

// Adds the sums pairwise, in place, and returns the total.
double Total(double (&sums)[kSums]) {
  for (size_t half = kSums / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

template <class E>
AdasumDots DotsOf(const uint8_t* a, const uint8_t* b, size_t count) {
  Sums sums;
  constexpr size_t kRowBytes = kSums * sizeof(E);
  const size_t rows = count / kSums;
  for (size_t row = 0; row < rows; row += kRowsAtOnce) {
    AddRows<E>(a + row * kRowBytes, b + row * kRowBytes, std::min(rows - row, kRowsAtOnce), sums);
  }
  const size_t rest = count % kSums;
  if (rest > 0) {
    // Pads the last row with zeros. Their products are +0 and change no sum, because no sum is -0.
    uint8_t last_a[kRowBytes] = {};
    uint8_t last_b[kRowBytes] = {};
    std::memcpy(last_a, a + rows * kRowBytes, rest * sizeof(E));
    std::memcpy(last_b, b + rows * kRowBytes, rest * sizeof(E));
    AddRows<E>(last_a, last_b, 1, sums);
  }
  return {.ab = Total(sums.ab), .aa = Total(sums.aa), .bb = Total(sums.bb)};
}

AdasumDots DotsOnTarget(const uint8_t* a, const uint8_t* b, DType dtype, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return DotsOf<float>(a, b, count);
    case DType::kFloat64:
      return DotsOf<double>(a, b, count);
    default:
      HWY_ABORT("Adasum has no dot products of %s", Name(dtype));
  }
}

template <class E>
HWY_INLINE void CombineVector(const uint8_t* a, const uint8_t* b, const AdasumWeights& weights, uint8_t* dst) {
  const Doubles d;
  const auto weighted_a = hn::Mul(LoadElements<E>(d, a), hn::Set(d, weights.a));
  const auto weighted_b = hn::Mul(LoadElements<E>(d, b), hn::Set(d, weights.b));
  StoreElements<E>(d, hn::Add(weighted_a, weighted_b), dst);
}

template <class E>
void CombineElements(const AdasumCombineArgs& args) {
  const auto* a = static_cast<const uint8_t*>(args.a);
  const auto* b = static_cast<const uint8_t*>(args.b);
  auto* dst = static_cast<uint8_t*>(args.dst);
  const size_t bytes = args.count * sizeof(E);
  const size_t step = hn::Lanes(Doubles()) * sizeof(E);
  size_t at = 0;
  for (; at + step <= bytes; at += step) CombineVector<E>(a + at, b + at, args.weights, dst + at);
  if (at == bytes) return;
  uint8_t last_a[HWY_MAX_BYTES] = {};
  uint8_t last_b[HWY_MAX_BYTES] = {};
  std::memcpy(last_a, a + at, bytes - at);
  std::memcpy(last_b, b + at, bytes - at);
  CombineVector<E>(last_a, last_b, args.weights, last_a);
  std::memcpy(dst + at, last_a, bytes - at);
}

void CombineOnTarget(const AdasumCombineArgs& args) {
  switch (args.dtype) {
    case DType::kFloat32:
      return CombineElements<float>(args);
    case DType::kFloat64:
      return CombineElements<double>(args);
    default:
      HWY_ABORT("Adasum does not combine %s", Name(args.dtype));
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(HasNonFiniteOnTarget);
HWY_EXPORT(DotsOnTarget);
HWY_EXPORT(CombineOnTarget);

bool HasNonFinite(const void* data, DType dtype, size_t count) {
  return HWY_DYNAMIC_DISPATCH(HasNonFiniteOnTarget)(static_cast<const uint8_t*>(data), dtype, count);
}

AdasumDots Dots(const void* a, const void* b, DType dtype, size_t count) {
  return HWY_DYNAMIC_DISPATCH(DotsOnTarget)(static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), dtype,
                                            count);
}

void Combine(const AdasumCombineArgs& args) { HWY_DYNAMIC_DISPATCH(CombineOnTarget)(args); }

}  // namespace ronda::kernels
#endif  // HWY_ONCE
