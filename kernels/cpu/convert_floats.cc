#include "kernels/cpu/convert_floats.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert_floats.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which decides what these mean.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"

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

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(ConvertOnTarget);

void ConvertFloats(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, double factor) {
  HWY_DYNAMIC_DISPATCH(ConvertOnTarget)(src, src_dtype, dst, dst_dtype, count, factor);
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
