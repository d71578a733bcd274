// The reduction operators on vectors: Op::Apply(d, a, b).
//
// Included once per SIMD target by Highway's foreach_target.h, hence no ordinary include guard.
#if defined(RONDA_KERNELS_CPU_OPERATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDA_KERNELS_CPU_OPERATORS_INL_H_
#undef RONDA_KERNELS_CPU_OPERATORS_INL_H_
#else
#define RONDA_KERNELS_CPU_OPERATORS_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};

struct BitAnd {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Xor(a, b);
  }
};

// Of truth values: bytes, of which any but zero is true.
struct BoolXor {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const auto one = hn::Set(d, hn::TFromD<D>{1});
    return hn::Xor(hn::Min(a, one), hn::Min(b, one));
  }
};

struct Product {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Mul(a, b);
  }
};

// Targets differ in what their min and max instructions return for NaN and for zeros of either sign, comparisons do
// not: `keep_a` is false if either is NaN, so that b is taken unless a is the NaN.
template <class D, class M>
HWY_INLINE hn::Vec<D> SelectOrNan(D, M keep_a, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(keep_a, a, b));
}

struct Min {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return SelectOrNan(d, hn::Le(a, b), a, b);
    return hn::Min(a, b);
  }
};

struct Max {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return SelectOrNan(d, hn::Ge(a, b), a, b);
    return hn::Max(a, b);
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDA_KERNELS_CPU_OPERATORS_INL_H_
