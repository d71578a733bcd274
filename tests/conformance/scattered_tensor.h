#ifndef RONDA_TESTS_CONFORMANCE_SCATTERED_TENSOR_H_
#define RONDA_TESTS_CONFORMANCE_SCATTERED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/collectives/communicator.h"

namespace ronda::testing {

// How a tensor is cut into the segments of a bucket.
enum class Cut {
  kWhole,   // one aligned segment
  kPieces,  // several, some empty, none aligned, none next to another
};

enum class Placement { kInPlace, kOutOfPlace };

// A tensor in memory as a trainer might have it: in segments with guard bytes around them, which nobody may touch.
class ScatteredTensor {
 public:
  struct Options {
    Cut cut = Cut::kWhole;
    Placement placement = Placement::kInPlace;
    uint64_t seed = 0;
  };

  // Copies `content`, elements of `element_bytes` each, into the segments' inputs.
  ScatteredTensor(const std::string& content, size_t element_bytes, const Options& options);

  const std::vector<Segment>& segments() const { return segments_; }

  // The outputs, one after the other.
  std::string Output() const;

  // Whether all guard bytes, and all inputs that are not outputs, are what they were.
  bool IsUntouchedElsewhere() const;

 private:
  const size_t element_bytes_;
  std::string input_;   // with guards
  std::string output_;  // with guards; empty if in place
  std::string untouched_input_;
  std::vector<Segment> segments_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_SCATTERED_TENSOR_H_
