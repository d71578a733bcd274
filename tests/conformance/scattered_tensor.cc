// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/scattered_tensor.h"

#include <random>

namespace ronda::testing {
namespace {

constexpr int kMaxPieces = 9;

}  // namespace

std::vector<size_t> CutIntoSegments(size_t count, Cut cut, uint64_t seed) {
  if (cut == Cut::kWhole) return {count};
  std::mt19937_64 random(seed);
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

ScatteredTensor::ScatteredTensor(const std::string& content, size_t element_bytes, const std::vector<size_t>& counts,
                                 Placement placement)
    : element_bytes_(element_bytes), content_(content) {
  AddInputs(counts);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (placement == Placement::kOutOfPlace) outputs_.emplace_back(counts[i] * element_bytes, AlignmentOf(counts));
    if (counts[i] > 0) segments_[i].output = outputs_.empty() ? inputs_[i].data() : outputs_[i].data();
  }
}

ScatteredTensor::ScatteredTensor(const std::string& content, size_t element_bytes, const std::vector<size_t>& counts,
                                 const std::vector<Part>& parts)
    : element_bytes_(element_bytes), content_(content) {
  AddInputs(counts);
  for (size_t i = 0; i < counts.size(); ++i) {
    outputs_.emplace_back(parts[i].count * element_bytes, AlignmentOf(counts));
    segments_[i].part_begin = parts[i].begin;
    segments_[i].part_count = parts[i].count;
    if (parts[i].count > 0) segments_[i].output = outputs_[i].data();
  }
}

void ScatteredTensor::AddInputs(const std::vector<size_t>& counts) {
  size_t begin = 0;
  for (size_t count : counts) {
    const size_t bytes = count * element_bytes_;
    inputs_.emplace_back(absl::string_view(content_).substr(begin, bytes), AlignmentOf(counts));
    segments_.push_back({.count = count});
    if (count > 0) segments_.back().input = inputs_.back().data();
    begin += bytes;
  }
}

std::string ScatteredTensor::Output() const {
  std::string content;
  for (const GuardedBytes& output : outputs_.empty() ? inputs_ : outputs_) content.append(output.content());
  return content;
}

bool ScatteredTensor::IsUntouchedElsewhere() const {
  std::string inputs;
  for (const GuardedBytes& input : inputs_) {
    if (!input.IsUntouchedElsewhere()) return false;
    inputs.append(input.content());
  }
  for (const GuardedBytes& output : outputs_) {
    if (!output.IsUntouchedElsewhere()) return false;
  }
  return outputs_.empty() || inputs == content_;
}

}  // namespace ronda::testing
