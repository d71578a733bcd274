#include "kernels/cpu/non_finite.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/non_finite.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which decides what this means.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The highest bit of a lane is set if the element's magnitude, as an integer, is at least `infinity`. (No target lacks
// the instructions for this, as some do for comparisons of 64-bit integers.)
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
  switch (dtype) {
    case DType::kFloat16:
      return AnyAtLeast<uint16_t>(data, count, 0x7C00);
    case DType::kBfloat16:
      return AnyAtLeast<uint16_t>(data, count, 0x7F80);
    case DType::kFloat32:
      return AnyAtLeast<uint32_t>(data, count, 0x7F800000);
    case DType::kFloat64:
      return AnyAtLeast<uint64_t>(data, count, 0x7FF0000000000000);
    default:
      return false;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(HasNonFiniteOnTarget);

bool HasNonFinite(const void* data, DType dtype, size_t count) {
  return HWY_DYNAMIC_DISPATCH(HasNonFiniteOnTarget)(static_cast<const uint8_t*>(data), dtype, count);
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
