#include "runtime/launch/option_list.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/launch/option_tables.h"

namespace ronda {
namespace {

// More wrong letters than that, and it is another word.
constexpr size_t kMostWrongLetters = 3;

std::string WithDashes(absl::string_view name) {
  return absl::StartsWith(name, "--") ? absl::StrReplaceAll(name, {{"_", "-"}}) : std::string(name);
}

// Levenshtein's distance: letters to insert, to remove or to replace.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's first letters to each beginning of b
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

// Of the names that `name` begins, and of those that are a few letters away, the nearest; or empty.
absl::string_view Nearest(absl::string_view name) {
  constexpr size_t kShortest = 4;
  if (name.size() < kShortest || name.size() > 64) return "";
  absl::string_view nearest;
  size_t least = kMostWrongLetters + 1;
  for (const Option& option : Options()) {
    for (const absl::string_view known : option.names) {
      const size_t distance = absl::StartsWith(known, name) ? 1 : Distance(name, known);
      if (distance >= least) continue;
      least = distance;
      nearest = known;
    }
  }
  return nearest;
}

}  // namespace

const std::vector<Option>& Options() {
  static const auto* const options = [] {
    auto* const all = new std::vector<Option>;
    for (std::vector<Option> (*table)() : {JobOptions, NodeOptions, TunableOptions, ForeignOptions}) {
      for (Option& option : table()) all->push_back(std::move(option));
    }
    return all;
  }();
  return *options;
}

const Option* FindOption(absl::string_view name) {
  const std::string dashed = WithDashes(name);
  for (const Option& option : Options()) {
    if (std::find(option.names.begin(), option.names.end(), dashed) != option.names.end()) return &option;
  }
  return nullptr;
}

absl::Status UnknownOption(absl::string_view name) {
  const absl::string_view nearest = Nearest(WithDashes(name));
  return absl::InvalidArgumentError(
      absl::StrCat("unknown option \"", name, "\"", nearest.empty() ? "" : absl::StrCat("; is it ", nearest, "?")));
}

}  // namespace ronda
