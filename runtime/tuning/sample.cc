#include "runtime/tuning/sample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/base/logging.h"

namespace ronda {
namespace {

// Appends the rounds of `sample`, in units of `unit`.
void AppendRelative(const Sample& sample, double unit, std::vector<double>* relative) {
  for (const double round : sample.microseconds()) relative->push_back(round / unit);
}

}  // namespace

Sample::Sample(std::vector<double> microseconds) : microseconds_(std::move(microseconds)) {
  RONDA_CHECK(!microseconds_.empty());
  std::sort(microseconds_.begin(), microseconds_.end());
}

double Sample::Quantile(double fraction) const {
  const double place = fraction * static_cast<double>(microseconds_.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, microseconds_.size() - 1);
  return std::lerp(microseconds_[below], microseconds_[above], place - static_cast<double>(below));
}

double Sample::median_error() const {
  return 1.57 * (upper_quartile() - lower_quartile()) / std::sqrt(static_cast<double>(microseconds_.size()));
}

bool IsFaster(absl::Span<const Sample> challenger, absl::Span<const Sample> incumbent, double min_gain) {
  RONDA_CHECK(challenger.size() == incumbent.size());
  std::vector<double> challenger_rounds;
  std::vector<double> incumbent_rounds;
  for (size_t pair = 0; pair < incumbent.size(); ++pair) {
    const double unit = incumbent[pair].median();
    if (challenger[pair].median() > (1 - min_gain) * unit) return false;
    AppendRelative(challenger[pair], unit, &challenger_rounds);
    AppendRelative(incumbent[pair], unit, &incumbent_rounds);
  }
  const Sample challengers(std::move(challenger_rounds));
  const Sample incumbents(std::move(incumbent_rounds));
  return challengers.median() + challengers.median_error() < incumbents.median() - incumbents.median_error();
}

}  // namespace ronda
