// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/slurm_variables.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ronda {
namespace {

constexpr size_t kMaxHosts = size_t{1} << 20;

using Names = std::vector<std::string>;

bool IsNumber(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c) != 0; });
}

// Appends the numbers in `range`, such as "7" or "01-03". All of them are zero-padded to the width of the first number.
bool AppendRange(absl::string_view range, Names* numbers) {
  const std::vector<absl::string_view> ends = absl::StrSplit(range, absl::MaxSplits('-', 1));
  uint32_t first = 0, last = 0;
  const bool are_numbers = IsNumber(ends.front()) && IsNumber(ends.back()) && absl::SimpleAtoi(ends.front(), &first) &&
                           absl::SimpleAtoi(ends.back(), &last);
  if (!are_numbers || first > last || last - first >= kMaxHosts - numbers->size()) return false;
  const auto width = static_cast<int>(ends.front().size());
  for (uint64_t number = first; number <= last; ++number) {
    numbers->push_back(absl::StrFormat("%0*d", width, number));
  }
  return true;
}

// Returns the numbers in the text between two brackets, such as "01-03,7".
std::optional<Names> ParseRanges(absl::string_view ranges) {
  Names numbers;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    if (!AppendRange(range, &numbers)) return std::nullopt;
  }
  return numbers;
}

// Returns every combination of a name and an ending, or nullopt if there are too many.
std::optional<Names> Combine(const Names& names, const Names& endings) {
  if (names.size() * endings.size() > kMaxHosts) return std::nullopt;
  Names combined;
  for (const std::string& name : names) {
    for (const std::string& ending : endings) combined.push_back(absl::StrCat(name, ending));
  }
  return combined;
}

// Removes the first item of `list`, up to but not including the comma, and returns its names.
std::optional<Names> PopItem(absl::string_view* list) {
  std::optional<Names> names = Names{""};
  while (!list->empty() && list->front() != ',') {
    const size_t text_end = std::min(list->find_first_of("[],"), list->size());
    names = Combine(*names, {std::string(list->substr(0, text_end))});
    list->remove_prefix(text_end);
    if (list->empty() || list->front() == ',') break;
    const size_t close = list->find(']');
    if (list->front() != '[' || close == absl::string_view::npos) return std::nullopt;
    const std::optional<Names> numbers = ParseRanges(list->substr(1, close - 1));
    if (!numbers) return std::nullopt;
    names = Combine(*names, *numbers);
    if (!names) return std::nullopt;
    list->remove_prefix(close + 1);
  }
  if (names->front().empty()) return std::nullopt;
  return names;
}

struct CountedHosts {
  int tasks = 0;
  int hosts = 1;
};

// Reads an item such as "2(x3)" or "2".
std::optional<CountedHosts> ParseCount(absl::string_view item) {
  CountedHosts counted;
  const size_t open = item.find("(x");
  if (open != absl::string_view::npos) {
    absl::string_view times = item.substr(open + 2);
    if (!absl::ConsumeSuffix(&times, ")") || !absl::SimpleAtoi(times, &counted.hosts) || counted.hosts < 1) {
      return std::nullopt;
    }
    item = item.substr(0, open);
  }
  if (!absl::SimpleAtoi(item, &counted.tasks) || counted.tasks < 0) return std::nullopt;
  return counted;
}

}  // namespace

std::optional<std::vector<std::string>> SlurmHosts(absl::string_view list) {
  Names hosts;
  while (true) {
    const std::optional<Names> item = PopItem(&list);
    if (!item || hosts.size() + item->size() > kMaxHosts) return std::nullopt;
    hosts.insert(hosts.end(), item->begin(), item->end());
    if (list.empty()) return hosts;
    list.remove_prefix(1);
  }
}

std::optional<std::vector<int>> SlurmTaskCounts(absl::string_view list) {
  std::vector<int> counts;
  for (const absl::string_view item : absl::StrSplit(list, ',')) {
    const std::optional<CountedHosts> counted = ParseCount(item);
    if (!counted || counts.size() + static_cast<size_t>(counted->hosts) > kMaxHosts) return std::nullopt;
    counts.insert(counts.end(), static_cast<size_t>(counted->hosts), counted->tasks);
  }
  return counts;
}

bool IsStepOfSrun(absl::string_view step_id) {
  int64_t step = 0;
  return !absl::SimpleAtoi(step_id, &step) || step < kSlurmSpecialSteps;
}

}  // namespace ronda
