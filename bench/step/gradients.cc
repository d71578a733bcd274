#include "bench/step/gradients.h"

#include <algorithm>
#include <cmath>

namespace ronda::bench {
namespace {

// What rank r holds at place i is (r + 1) * Pattern(i): exact in 16 bits on up to 8 ranks, and their sums too.
float Pattern(int64_t place) { return static_cast<float>(place % 13); }

// Relative to the largest element, which the scale of an 8-bit block follows: half a unit in the last place of each
// contribution and of the result.
double ToleranceOf(WireFormat wire) {
  switch (wire) {
    case WireFormat::kNone:
      return 1e-6;
    case WireFormat::kFloat16:
      return 1.0 / 1024;
    case WireFormat::kBfloat16:
      return 1.0 / 128;
    case WireFormat::kFp8E4M3:
      return 1.0 / 8;
    case WireFormat::kFp8E5M2:
      return 1.0 / 4;
  }
  return 0;
}

}  // namespace

Gradients::Gradients(const ModelShapes& model) {
  constexpr size_t kLineBytes = 64;
  for (const Parameter& parameter : model.parameters) {
    const size_t bytes = static_cast<size_t>(parameter.count()) * sizeof(float);
    counts_.push_back(parameter.count());
    buffers_.emplace_back(
        static_cast<float*>(std::aligned_alloc(kLineBytes, (bytes + kLineBytes - 1) / kLineBytes * kLineBytes)));
  }
}

void Gradients::FillForTiming() {
  for (size_t i = 0; i < size(); ++i) std::fill_n(data(i), counts_[i], 1.0f);
}

void Gradients::FillForCheck(int rank) {
  for (size_t i = 0; i < size(); ++i) {
    for (int64_t place = 0; place < counts_[i]; ++place) data(i)[place] = static_cast<float>(rank + 1) * Pattern(place);
  }
}

int64_t Gradients::CountWrong(int ranks, Expected expected, WireFormat wire) const {
  const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
  const float factor = expected == Expected::kSum ? sum : sum / static_cast<float>(ranks);
  const double tolerance = ToleranceOf(wire) * factor * Pattern(12);
  int64_t wrong = 0;
  for (size_t i = 0; i < size(); ++i) {
    const float* const values = buffers_[i].get();
    for (int64_t place = 0; place < counts_[i]; ++place) {
      // Written so that a NaN counts.
      if (!(std::abs(values[place] - factor * Pattern(place)) <= tolerance)) ++wrong;
    }
  }
  return wrong;
}

}  // namespace ronda::bench
