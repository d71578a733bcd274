// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_REDUCE_LAYOUT_H_
#define RONDA_RUNTIME_COLLECTIVES_REDUCE_LAYOUT_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// The format in which the elements of a reduction travel: a sequence of granules, which are never split. A granule is
// one element, or one block of 8-bit codes with its scale. Each segment starts a new granule, so that the bits of its
// result do not depend on the other tensors in the bucket.
struct WireLayout {
  DType dtype;                            // of the elements; unused for blocks
  std::optional<kernels::Fp8Format> fp8;  // the format, if granules are blocks
  size_t granule_elements;                // a power of two
  size_t granule_bytes;
};

inline std::optional<kernels::Fp8Format> Fp8FormatOf(DType dtype, WireFormat wire) {
  const bool as_blocks = TraitsOf(wire).encoding == WireFormatTraits::Encoding::kBlocks;
  if (!as_blocks || !IsNarrowed(dtype, wire)) return std::nullopt;
  return wire == WireFormat::kFp8E4M3 ? kernels::Fp8Format::kE4M3 : kernels::Fp8Format::kE5M2;
}

inline WireLayout LayoutOf(DType dtype, WireFormat wire) {
  const DType travels_as = WireDType(dtype, wire);
  const std::optional<kernels::Fp8Format> fp8 = Fp8FormatOf(dtype, wire);
  return {.dtype = travels_as,
          .fp8 = fp8,
          .granule_elements = fp8.has_value() ? kernels::kFp8BlockElements : 1,
          .granule_bytes = fp8.has_value() ? kernels::kFp8BlockBytes : SizeOf(travels_as)};
}

// Treats a list of segments as one array of granules, without copying them.
//
// Finds positions by binary search over the ends of the segments. Immutable, thus thread-safe. The segments and their
// tensors must outlive this object.
class LogicalBuffer {
 public:
  // Memory that one LogicalBuffer passes on to the next, so that only the first one allocates.
  using Memory = std::vector<size_t>;

  // `memory` may be null. It must outlive the LogicalBuffer, and must not be used by two LogicalBuffers at the same
  // time. REQUIRES: granule_elements is a power of two.
  LogicalBuffer(absl::Span<const Segment> segments, size_t granule_elements, Memory* memory = nullptr)
      : segments_(segments), shift_(std::countr_zero(granule_elements)), memory_(memory) {
    if (memory_ != nullptr) ends_.swap(*memory_);
    ends_.clear();
    ends_.reserve(segments.size());
    for (const Segment& segment : segments) {
      ends_.push_back(granules() + GranulesOf(segment));
      elements_ += segment.count;
    }
  }

  LogicalBuffer(const LogicalBuffer&) = delete;
  LogicalBuffer& operator=(const LogicalBuffer&) = delete;
  ~LogicalBuffer() {
    if (memory_ != nullptr) ends_.swap(*memory_);
  }

  // Returns the number of granules of all segments.
  size_t granules() const { return ends_.empty() ? 0 : ends_.back(); }

  // Returns the number of elements of all segments. A segment's last granule may have fewer elements than
  // granule_elements.
  size_t elements() const { return elements_; }

  absl::Span<const Segment> segments() const { return segments_; }

  // Consecutive elements of one segment, the first of which begins a granule.
  struct Run {
    size_t segment;  // the segment's index
    size_t begin;    // the first element's index in the segment
    size_t count;    // elements
    size_t offset;   // granules from the start of the visited range to this run
  };

  // Divides granules [begin, begin + n) into one run per segment, and calls visit(run) for each nonempty run, in order.
  // REQUIRES: begin + n <= granules().
  template <typename Visit>
  void ForEachRun(size_t begin, size_t n, const Visit& visit) const {
    size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (size_t done = 0; done < n; ++i) {
      const Segment& segment = segments_[i];
      const size_t granules = GranulesOf(segment);
      const size_t skip = begin + done - (ends_[i] - granules);
      const size_t take = std::min(n - done, granules - skip);
      if (take == 0) continue;
      const size_t first = skip << shift_;
      visit(
          Run{.segment = i, .begin = first, .count = std::min(take << shift_, segment.count - first), .offset = done});
      done += take;
    }
  }

 private:
  size_t GranulesOf(const Segment& segment) const { return (segment.count + (size_t{1} << shift_) - 1) >> shift_; }

  const absl::Span<const Segment> segments_;
  const int shift_;  // log2 of a granule's elements
  Memory* const memory_;
  size_t elements_ = 0;
  Memory ends_;  // ends_[i]: granules of segments 0 to i
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_REDUCE_LAYOUT_H_
