// SPDX-License-Identifier: Apache-2.0

#include "bench/advise/profile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bench/harness/statistics.h"
#include "nlohmann/json.hpp"

namespace ronda::bench {
namespace {

using Json = nlohmann::json;

constexpr double kMicrosecond = 1e-6;
constexpr size_t kFewestSteps = 10;
constexpr size_t kMostWarmUp = 10;

// The times of one allreduce of a tensor, in seconds on the timeline's clock.
struct Reduction {
  double submitted = 0;
  double ended = 0;
};

// The allreduces of a tensor in the order of their submission.
struct Tensor {
  double bytes = 0;
  bool is_floating = false;
  std::vector<Reduction> reductions;
};

// The tensors, keyed by the number of their row in the timeline.
using Tensors = std::map<int, Tensor>;

// Reads a span of the timeline. In a tensor's row, the first span covers the whole operation and has its outcome. The
// spans of the operation's phases follow. The ALLREDUCE span has the byte count. Spans of buckets have the bucket's
// name, and are skipped.
void AddSpan(const Json& span, std::map<int, double>* submitted, Tensors* tensors) {
  const auto args = span.find("args");
  if (args == span.end() || args->contains("bucket")) return;
  const int row = span.value("tid", 0);
  const double begin = span.value("ts", 0.0) * kMicrosecond;
  if (args->contains("outcome")) {
    (*submitted)[row] = begin;
  } else if (span.value("name", "") == "ALLREDUCE" && submitted->count(row) > 0 && span.contains("dur")) {
    Tensor& tensor = (*tensors)[row];
    tensor.bytes = args->value("bytes", 0.0);
    tensor.is_floating = absl::StrContains(args->value("dtype", ""), "float");
    tensor.reductions.push_back({(*submitted)[row], begin + span["dur"].get<double>() * kMicrosecond});
  }
}

Tensors TensorsOf(absl::string_view timeline) {
  std::map<int, double> submitted;
  Tensors tensors;
  for (absl::string_view line : absl::StrSplit(timeline, '\n')) {
    if (!absl::StartsWith(line, "{\"ph\":\"X\"")) continue;
    const Json span = Json::parse(absl::StripSuffix(line, ","), nullptr, /*allow_exceptions=*/false);
    if (span.is_object()) AddSpan(span, &submitted, &tensors);
  }
  return tensors;
}

// Removes all tensors but the gradients. Returns how many of the removed tensors are reduced in more than half of the
// steps. Tensors that are reduced less often are taken for metrics and do not count.
int KeepGradients(Tensors* tensors) {
  size_t most = 0;
  for (const auto& [row, tensor] : *tensors) most = std::max(most, tensor.reductions.size());
  int votes = 0;
  for (auto tensor = tensors->begin(); tensor != tensors->end();) {
    const bool is_frequent = 2 * tensor->second.reductions.size() > most;
    votes += is_frequent && !tensor->second.is_floating ? 1 : 0;
    tensor = is_frequent && tensor->second.is_floating ? std::next(tensor) : tensors->erase(tensor);
  }
  return votes;
}

// Returns the tensor that is submitted first in the first step.
const Tensor& FirstOf(const Tensors& tensors) {
  const auto first = std::min_element(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.second.reductions.front().submitted < b.second.reductions.front().submitted;
  });
  return first->second;
}

// When the tensors were submitted and reduced. Each vector has one number per step.
struct Steps {
  std::vector<double> begins;  // when the first gradient is submitted
  std::vector<double> last_submitted;
  std::vector<double> last_ended;
  std::map<int, std::vector<double>> offsets;  // from the step's beginning to each tensor's submission
};

Steps StepsOf(const Tensors& tensors) {
  Steps steps;
  for (const Reduction& reduction : FirstOf(tensors).reductions) steps.begins.push_back(reduction.submitted);
  steps.last_submitted = steps.begins;
  steps.last_ended = steps.begins;
  for (const auto& [row, tensor] : tensors) {
    for (const Reduction& reduction : tensor.reductions) {
      const auto after = std::upper_bound(steps.begins.begin(), steps.begins.end(), reduction.submitted);
      if (after == steps.begins.begin() || after == steps.begins.end()) continue;
      const auto step = static_cast<size_t>(after - steps.begins.begin()) - 1;
      steps.offsets[row].push_back(reduction.submitted - steps.begins[step]);
      steps.last_submitted[step] = std::max(steps.last_submitted[step], reduction.submitted);
      steps.last_ended[step] = std::max(steps.last_ended[step], reduction.ended);
    }
  }
  return steps;
}

std::vector<double> LengthsOf(const Steps& steps) {
  std::vector<double> lengths;
  const size_t count = steps.begins.size() - 1;  // the length of the last step is unknown
  for (size_t i = std::min(kMostWarmUp, count / 4); i < count; ++i) {
    const double waited = steps.last_ended[i] - steps.last_submitted[i];
    lengths.push_back(std::max(steps.begins[i + 1] - steps.begins[i] - std::max(waited, 0.0), 0.0));
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace

double Profile::median() const { return SlowestOf(1); }

double Profile::mean() const {
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
}

double Profile::bytes() const {
  double bytes = 0;
  for (const model::Gradient& gradient : gradients) bytes += gradient.bytes;
  return bytes;
}

double Profile::SlowestOf(int ranks) const { return Quantile(steps, std::pow(0.5, 1.0 / ranks)); }

absl::StatusOr<Profile> ProfileOf(absl::string_view timeline) {
  Tensors tensors = TensorsOf(timeline);
  const int votes = KeepGradients(&tensors);
  if (tensors.empty()) {
    return absl::InvalidArgumentError(
        "the program has reduced no floating-point tensor by allreduce: is it a data-parallel trainer?");
  }
  const Steps steps = StepsOf(tensors);
  Profile profile = {.gradients = {}, .steps = LengthsOf(steps), .votes = votes};
  if (profile.steps.size() < kFewestSteps) {
    return absl::InvalidArgumentError(absl::StrCat("the program has made ", steps.begins.size(), " steps, of which ",
                                                   profile.steps.size(), " count, and ", kFewestSteps,
                                                   " are needed: let it run for longer"));
  }
  std::vector<std::pair<double, double>> by_offset;
  for (const auto& [row, offsets] : steps.offsets) by_offset.emplace_back(Median(offsets), tensors[row].bytes);
  std::sort(by_offset.begin(), by_offset.end());
  for (const auto& [offset, bytes] : by_offset) {
    const double before_end = (by_offset.back().first - offset) / profile.median();
    profile.gradients.push_back({.bytes = bytes, .ready = std::max(1 - before_end, 0.0)});
  }
  return profile;
}

}  // namespace ronda::bench
