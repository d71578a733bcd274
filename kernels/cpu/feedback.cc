#include "kernels/cpu/feedback.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/feedback.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which decides what these mean.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/feedback-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

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
        return NarrowLoop<From, hwy::float16_t>(args);
      case DType::kBfloat16:
        return NarrowLoop<From, hwy::bfloat16_t>(args);
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

HWY_EXPORT(ConvertWithFeedbackOnTarget);

void ConvertWithFeedback(const ConvertWithFeedbackArgs& args) {
  HWY_DYNAMIC_DISPATCH(ConvertWithFeedbackOnTarget)(args);
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
