// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/convert.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cc"
#include "hwy/foreach_target.h"
// These must come after foreach_target.h, which sets the SIMD target for which they are compiled.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

struct Unscaled {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> value) const {
    return value;
  }
};

struct Scaled {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> value) const {
    return hn::Mul(value, hn::Set(d, static_cast<hn::TFromD<D>>(factor)));
  }

  double factor;
};

template <class From, class To, class Scaling>
void ConvertLoop(const uint8_t* src, uint8_t* dst, size_t count, Scaling scaling) {
  constexpr bool kWide = std::is_same_v<From, double> || std::is_same_v<To, double>;
  const hn::ScalableTag<std::conditional_t<kWide, double, float>> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = LoadElements<From>(d, src + i * sizeof(From));
    StoreElements<To>(d, scaling(d, value), dst + i * sizeof(To));
  }
  if (i == count) return;
  uint8_t in[HWY_MAX_BYTES] = {};
  uint8_t out[HWY_MAX_BYTES];
  std::memcpy(in, src + i * sizeof(From), (count - i) * sizeof(From));
  StoreElements<To>(d, scaling(d, LoadElements<From>(d, in)), out);
  std::memcpy(dst + i * sizeof(To), out, (count - i) * sizeof(To));
}

template <class Scaling>
void ConvertScaled(const uint8_t* src, DType src_dtype, uint8_t* dst, DType dst_dtype, size_t count, Scaling scaling) {
  VisitFloatType(src_dtype, [&]<class From>(ElementType<From>) {
    VisitFloatType(dst_dtype, [&]<class To>(ElementType<To>) { ConvertLoop<From, To>(src, dst, count, scaling); });
  });
}

void ConvertOnTarget(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, double factor) {
  const auto* from = static_cast<const uint8_t*>(src);
  auto* to = static_cast<uint8_t*>(dst);
  if (factor == 1.0) return ConvertScaled(from, src_dtype, to, dst_dtype, count, Unscaled{});
  return ConvertScaled(from, src_dtype, to, dst_dtype, count, Scaled{factor});
}

template <class From, class To>
HWY_INLINE void NarrowVector(const uint8_t* src, double factor, uint8_t* dst, float* residual) {
  const FloatsFor<From> d;
  const auto value = hn::Add(LoadScaledFloats<From>(d, src, factor), hn::LoadU(d, residual));
  StoreElements<To>(d, value, dst);
  hn::StoreU(Lost(d, value, LoadElements<To>(d, dst)), d, residual);
}

template <class From, class To>
void NarrowLoop(const ConvertWithFeedbackArgs& args) {
  const auto* src = static_cast<const uint8_t*>(args.src);
  auto* dst = static_cast<uint8_t*>(args.dst);
  const double factor = args.scale.Factor();
  const size_t lanes = hn::Lanes(FloatsFor<From>());
  size_t i = 0;
  for (; i + lanes <= args.count; i += lanes) {
    NarrowVector<From, To>(src + i * sizeof(From), factor, dst + i * sizeof(To), args.residual + i);
  }
  if (i == args.count) return;
  const size_t rest = args.count - i;
  uint8_t in[HWY_MAX_BYTES] = {};
  uint8_t out[HWY_MAX_BYTES];
  float residual[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(in, src + i * sizeof(From), rest * sizeof(From));
  std::memcpy(residual, args.residual + i, rest * sizeof(float));
  NarrowVector<From, To>(in, factor, out, residual);
  std::memcpy(dst + i * sizeof(To), out, rest * sizeof(To));
  std::memcpy(args.residual + i, residual, rest * sizeof(float));
}

void ConvertWithFeedbackOnTarget(const ConvertWithFeedbackArgs& args) {
  VisitFloatType(args.src_dtype, [&]<class From>(ElementType<From>) {
    switch (args.dst_dtype) {
      case DType::kFloat16:
        return NarrowLoop<From, Float16>(args);
      case DType::kBfloat16:
        return NarrowLoop<From, Bfloat16>(args);
      default:
        HWY_ABORT("%s is not a floating-point type of 16 bits", Name(args.dst_dtype));
    }
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(ConvertOnTarget);
HWY_EXPORT(ConvertWithFeedbackOnTarget);

namespace {

void NormalizeBools(const void* src, void* dst, size_t count) {
  const auto* from = static_cast<const uint8_t*>(src);
  auto* to = static_cast<uint8_t*>(dst);
  for (size_t i = 0; i < count; ++i) to[i] = from[i] != 0;
}

// Scales `count` elements of type T. `src` and `dst` need no alignment, and may be equal.
template <class T>
void ScaleIntegers(const void* src, void* dst, size_t count, const Scale& scale) {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    value = ScaleInteger<T>(value, scale);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void Convert(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, const Scale& scale) {
  if (count == 0) return;
  if (src_dtype == dst_dtype && src_dtype != DType::kBool && scale.IsIdentity()) {
    if (src != dst) std::memcpy(dst, src, count * SizeOf(src_dtype));
    return;
  }
  VisitDType(src_dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      HWY_DYNAMIC_DISPATCH(ConvertOnTarget)(src, src_dtype, dst, dst_dtype, count, scale.Factor());
    } else if constexpr (kKindOf<E> == DTypeKind::kBool) {
      NormalizeBools(src, dst, count);
    } else {
      ScaleIntegers<E>(src, dst, count, scale);
    }
  });
}

void ConvertWithFeedback(const ConvertWithFeedbackArgs& args) {
  HWY_DYNAMIC_DISPATCH(ConvertWithFeedbackOnTarget)(args);
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
