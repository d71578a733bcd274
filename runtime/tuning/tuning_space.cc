#include "runtime/tuning/tuning_space.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

std::vector<int64_t> Values(int64_t first, std::initializer_list<int64_t> others) {
  std::vector<int64_t> values = {first};
  for (const int64_t other : others) {
    if (other != first) values.push_back(other);
  }
  return values;
}

}  // namespace

std::string Describe(const TunedSettings& settings) {
  return absl::StrCat(
      "fusion threshold ", settings.fusion_threshold, " bytes, smallest bucket ", settings.min_bucket_bytes,
      " bytes, chunks of ",
      settings.chunk_bytes == 0 ? "the backend's own size" : absl::StrCat(settings.chunk_bytes, " bytes"),
      ", cycle time ", absl::FormatDuration(settings.cycle_time));
}

// No fusion at all (a threshold of 0) is no choice of ours: groups could not be locked then.
TuningSpace::TuningSpace(const TunedSettings& defaults)
    : values_({Values(static_cast<int64_t>(defaults.fusion_threshold),
                      {512 * kKiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}),
               Values(static_cast<int64_t>(defaults.min_bucket_bytes), {256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}),
               Values(static_cast<int64_t>(defaults.chunk_bytes), {0, 128 * kKiB, 256 * kKiB, kMiB}),
               Values(absl::ToInt64Nanoseconds(defaults.cycle_time), {0, 200'000, 1'000'000})}) {}

std::vector<size_t> TuningSpace::grid() const {
  std::vector<size_t> grid;
  for (const std::vector<int64_t>& values : values_) grid.push_back(values.size());
  return grid;
}

TunedSettings TuningSpace::At(const TuningPoint& point) const {
  return {.fusion_threshold = static_cast<size_t>(values_[0].at(point.at(0))),
          .min_bucket_bytes = static_cast<size_t>(values_[1].at(point.at(1))),
          .chunk_bytes = static_cast<size_t>(values_[2].at(point.at(2))),
          .cycle_time = absl::Nanoseconds(values_[3].at(point.at(3)))};
}

}  // namespace ronda
