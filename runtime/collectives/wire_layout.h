#ifndef RONDA_RUNTIME_COLLECTIVES_WIRE_LAYOUT_H_
#define RONDA_RUNTIME_COLLECTIVES_WIRE_LAYOUT_H_

#include <cstddef>
#include <optional>

#include "kernels/cpu/fp8.h"
#include "runtime/base/types.h"

namespace ronda {

// How the elements of a reduction lie on the wire: as granules, one after the other, which are never cut. A granule is
// one element, or a block of 8-bit codes with their scale. Each segment begins a new one, so that the bits of a result
// do not depend on what else is in the bucket.
struct WireLayout {
  DType dtype;                            // of the elements; not of blocks
  std::optional<kernels::Fp8Format> fp8;  // granules are blocks of this format
  size_t granule_elements;                // a power of two
  size_t granule_bytes;
};

inline std::optional<kernels::Fp8Format> Fp8FormatOf(DType dtype, WireFormat wire) {
  if (!IsFloatingPoint(dtype)) return std::nullopt;
  if (wire == WireFormat::kFp8E4M3) return kernels::Fp8Format::kE4M3;
  if (wire == WireFormat::kFp8E5M2) return kernels::Fp8Format::kE5M2;
  return std::nullopt;
}

inline WireLayout LayoutOf(DType dtype, WireFormat wire) {
  const DType travels_as = WireDType(dtype, wire);
  const std::optional<kernels::Fp8Format> fp8 = Fp8FormatOf(dtype, wire);
  return {.dtype = travels_as,
          .fp8 = fp8,
          .granule_elements = fp8.has_value() ? kernels::kFp8BlockElements : 1,
          .granule_bytes = fp8.has_value() ? kernels::kFp8BlockBytes : SizeOf(travels_as)};
}

// Whether what a rank contributes can differ from its input by rounding, and packing it so changes residuals.
inline bool RoundsContributions(DType dtype, WireFormat wire) {
  const WireLayout layout = LayoutOf(dtype, wire);
  return layout.fp8.has_value() || layout.dtype != dtype;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_WIRE_LAYOUT_H_
