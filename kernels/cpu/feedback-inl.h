// What error feedback (feedback.h) keeps, in vectors.
//
// Included once per SIMD target by Highway's foreach_target.h, hence no ordinary include guard.
#if defined(RONDA_KERNELS_CPU_FEEDBACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDA_KERNELS_CPU_FEEDBACK_INL_H_
#undef RONDA_KERNELS_CPU_FEEDBACK_INL_H_
#else
#define RONDA_KERNELS_CPU_FEEDBACK_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// What rounding `value` to `rounded` lost; nothing where either is not finite, or that would stay for ever.
template <class D>  // of float
HWY_INLINE hn::Vec<D> Lost(D d, hn::Vec<D> value, hn::Vec<D> rounded) {
  const hn::RebindToSigned<D> di;
  const auto lost = hn::Sub(value, rounded);
  const auto is_finite = hn::Lt(hn::BitCast(di, hn::Abs(lost)), hn::Set(di, 0x7F800000));
  return hn::IfThenElseZero(hn::RebindMask(d, is_finite), lost);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDA_KERNELS_CPU_FEEDBACK_INL_H_
