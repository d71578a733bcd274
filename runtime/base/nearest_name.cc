// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"

namespace ronda {
namespace {

// A name with more wrong letters than this is not a misspelling, but a different name. Very short and very long names
// are not compared, because they resemble too many names.
size_t MostWrongLetters(absl::string_view name) {
  constexpr size_t kLong = 9;
  return std::min(name.size() / 2, size_t{name.size() < kLong ? 2u : 3u});
}

constexpr size_t kShortest = 3;
constexpr size_t kLongest = 64;

// Returns the Levenshtein distance: the minimum number of letters to insert, remove or replace.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's first letters to each prefix of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

absl::string_view NearestName(absl::string_view wrong, const std::vector<absl::string_view>& known) {
  if (wrong.size() < kShortest || wrong.size() > kLongest) return "";
  absl::string_view nearest;
  size_t least = MostWrongLetters(wrong) + 1;
  for (const absl::string_view candidate : known) {
    const size_t distance = absl::StartsWith(candidate, wrong) ? 1 : Distance(wrong, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace ronda
