#ifndef RONDA_RUNTIME_COLLECTIVES_ADASUM_LAYOUT_H_
#define RONDA_RUNTIME_COLLECTIVES_ADASUM_LAYOUT_H_

#include <cstddef>

#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// How the tensors of an Adasum are cut into shards, one a member, and where these lie in a buffer: those of the first
// member, tensor by tensor, then those of the second. On the wire, and in any wider type, each begins at a multiple of
// 16 bytes, where the kernels of devices access it best.
//
// A value; the segments must outlive it.
class AdasumLayout {
 public:
  AdasumLayout(absl::Span<const Segment> segments, int members, DType wire)
      : segments_(segments), members_(static_cast<size_t>(members)), unit_(kAccessBytes / SizeOf(wire)) {}

  // A member's share of one tensor; may be empty.
  struct Shard {
    size_t begin;  // element of the tensor
    size_t count;
    size_t place;  // elements from the member's first shard to this one
  };

  // Calls visit(segment, shard) for the shards of a member.
  template <typename Visit>
  void ForEach(int member, const Visit& visit) const {
    size_t place = 0;
    for (const Segment& segment : segments_) {
      const size_t begin = BeginOf(segment, member);
      const size_t count = BeginOf(segment, member + 1) - begin;
      visit(segment, Shard{.begin = begin, .count = count, .place = place});
      place += RoomFor(count);
    }
  }

  // Elements that the shards of a member take up.
  size_t Elements(int member) const {
    size_t elements = 0;
    for (const Segment& segment : segments_) {
      elements += RoomFor(BeginOf(segment, member + 1) - BeginOf(segment, member));
    }
    return elements;
  }

 private:
  static constexpr size_t kAccessBytes = 16;

  size_t BeginOf(const Segment& segment, int member) const {
    return segment.count * static_cast<size_t>(member) / members_;
  }
  size_t RoomFor(size_t count) const { return (count + unit_ - 1) / unit_ * unit_; }

  const absl::Span<const Segment> segments_;
  const size_t members_;
  const size_t unit_;  // elements
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_ADASUM_LAYOUT_H_
