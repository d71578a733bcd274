#include "tests/conformance/scattered_tensor.h"

#include <algorithm>
#include <random>

namespace ronda::testing {
namespace {

constexpr char kGuard = '\xa5';
constexpr size_t kGuardBytes = 65;  // odd: no segment but the first is aligned
constexpr int kMaxPieces = 9;

std::vector<size_t> CutCounts(size_t count, const ScatteredTensor::Options& options) {
  if (options.cut == Cut::kWhole) return {count};
  std::mt19937_64 random(options.seed);
  std::vector<size_t> counts;
  size_t left = count;
  for (int i = 0; i < kMaxPieces; ++i) {
    const size_t take = random() % 4 == 0 ? 0 : random() % (left + 1);
    counts.push_back(take);
    left -= take;
  }
  counts.push_back(left);
  return counts;
}

}  // namespace

ScatteredTensor::ScatteredTensor(const std::string& content, size_t element_bytes, const Options& options)
    : element_bytes_(element_bytes) {
  const std::vector<size_t> counts = CutCounts(content.size() / element_bytes, options);
  input_.assign(content.size() + (counts.size() + 1) * kGuardBytes, kGuard);
  if (options.placement == Placement::kOutOfPlace) output_ = std::string(input_.size(), kGuard);
  size_t taken = 0;
  size_t at = options.cut == Cut::kWhole ? kGuardBytes - 1 : kGuardBytes;
  for (size_t count : counts) {
    const size_t bytes = count * element_bytes;
    std::copy_n(content.data() + taken, bytes, input_.data() + at);
    char* const output = output_.empty() ? input_.data() + at : output_.data() + at;
    segments_.push_back({.input = input_.data() + at, .output = output, .count = count});
    if (count == 0) segments_.back() = {};
    taken += bytes;
    at += bytes + kGuardBytes;
  }
  untouched_input_ = input_;
}

std::string ScatteredTensor::Output() const {
  std::string content;
  for (const Segment& segment : segments_) {
    if (segment.count > 0) content.append(static_cast<const char*>(segment.output), segment.count * element_bytes_);
  }
  return content;
}

bool ScatteredTensor::IsUntouchedElsewhere() const {
  const std::string& written = output_.empty() ? input_ : output_;
  std::string rest = written;
  std::string expected = output_.empty() ? untouched_input_ : std::string(output_.size(), kGuard);
  for (const Segment& segment : segments_) {
    if (segment.count == 0) continue;
    const ptrdiff_t at = static_cast<const char*>(segment.output) - written.data();
    std::fill_n(rest.begin() + at, segment.count * element_bytes_, kGuard);
    std::fill_n(expected.begin() + at, segment.count * element_bytes_, kGuard);
  }
  return rest == expected && (output_.empty() || input_ == untouched_input_);
}

}  // namespace ronda::testing
