// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_CONFORMANCE_SCATTERED_TENSOR_H_
#define RONDA_TESTS_CONFORMANCE_SCATTERED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collectives/communicator.h"
#include "tests/conformance/guarded_bytes.h"

namespace ronda::testing {

// How many segments a tensor is divided into.
enum class Cut {
  kWhole,   // one segment
  kPieces,  // several, some empty
};

enum class Placement { kInPlace, kOutOfPlace };

// Returns the number of elements in each segment.
std::vector<size_t> CutIntoSegments(size_t count, Cut cut, uint64_t seed);

// The part of a segment's result that a rank receives.
struct Part {
  size_t begin = 0;
  size_t count = 0;
};

// A tensor in several pieces of memory (segments), as a trainer might have it. Each segment lies between guard bytes,
// which must not change. The segments are not adjacent, and if there are several, none of them is aligned.
class ScatteredTensor {
 public:
  // Copies `content`, whose elements have `element_bytes` bytes, into the inputs of the segments. The outputs are the
  // inputs, or separate memory of the same size.
  ScatteredTensor(const std::string& content, size_t element_bytes, const std::vector<size_t>& counts,
                  Placement placement);

  // Like the constructor above, but each output has room only for the segment's part in `parts`.
  ScatteredTensor(const std::string& content, size_t element_bytes, const std::vector<size_t>& counts,
                  const std::vector<Part>& parts);

  const std::vector<Segment>& segments() const { return segments_; }

  // Returns the concatenated outputs of the segments.
  std::string Output() const;

  // Returns whether all guard bytes, and all inputs that are not also outputs, are unchanged.
  bool IsUntouchedElsewhere() const;

 private:
  void AddInputs(const std::vector<size_t>& counts);
  Alignment AlignmentOf(const std::vector<size_t>& counts) const {
    return counts.size() == 1 ? Alignment::kAligned : Alignment::kOdd;
  }

  const size_t element_bytes_;
  const std::string content_;
  std::vector<GuardedBytes> inputs_;   // one per segment
  std::vector<GuardedBytes> outputs_;  // one per segment; empty if in place
  std::vector<Segment> segments_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_SCATTERED_TENSOR_H_
