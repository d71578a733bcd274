#ifndef RONDA_RUNTIME_COLLECTIVES_LOGICAL_BUFFER_H_
#define RONDA_RUNTIME_COLLECTIVES_LOGICAL_BUFFER_H_

#include <algorithm>
#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// A list of segments seen as one array of elements, without copying them together.
//
// Finding a place in it is a binary search over the segments' ends. Immutable, thus thread-safe; the segments and what
// they point to must outlive it.
class LogicalBuffer {
 public:
  LogicalBuffer(absl::Span<const Segment> segments, DType dtype) : segments_(segments), element_bytes_(SizeOf(dtype)) {
    ends_.reserve(segments.size());
    for (const Segment& segment : segments) ends_.push_back(count() + segment.count);
  }

  // Elements in all segments.
  size_t count() const { return ends_.empty() ? 0 : ends_.back(); }

  // Elements that lie in one segment, one after the other.
  struct Run {
    const void* input;
    void* output;
    size_t count;
    size_t offset;  // of its first element from the beginning of the visited range
  };

  // Calls visit(Run) for the non-empty pieces of [begin, begin + n), in order.
  // REQUIRES: begin + n <= count().
  template <typename Visit>
  void ForEachRun(size_t begin, size_t n, const Visit& visit) const {
    size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (size_t done = 0; done < n; ++i) {
      const Segment& segment = segments_[i];
      const size_t skip = begin + done - (ends_[i] - segment.count);
      const size_t take = std::min(n - done, segment.count - skip);
      if (take == 0) continue;
      visit(Run{.input = static_cast<const char*>(segment.input) + skip * element_bytes_,
                .output = static_cast<char*>(segment.output) + skip * element_bytes_,
                .count = take,
                .offset = done});
      done += take;
    }
  }

 private:
  const absl::Span<const Segment> segments_;
  const size_t element_bytes_;
  absl::InlinedVector<size_t, 16> ends_;  // ends_[i]: elements in segments 0 to i
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_LOGICAL_BUFFER_H_
