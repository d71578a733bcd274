#ifndef RONDA_RUNTIME_COLLECTIVES_WIRE_LAYOUT_H_
#define RONDA_RUNTIME_COLLECTIVES_WIRE_LAYOUT_H_

#include <cstddef>

#include "runtime/base/types.h"

namespace ronda {

// How the elements of a reduction lie on the wire: as granules, one after the other, which are never cut. Each segment
// begins a new one, so that the bits of a result do not depend on what else is in the bucket.
struct WireLayout {
  DType dtype;              // of the elements
  size_t granule_elements;  // a power of two
  size_t granule_bytes;
};

// A granule is one element.
inline WireLayout LayoutOf(DType dtype, WireFormat wire) {
  const DType travels_as = WireDType(dtype, wire);
  return {.dtype = travels_as, .granule_elements = 1, .granule_bytes = SizeOf(travels_as)};
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_WIRE_LAYOUT_H_
