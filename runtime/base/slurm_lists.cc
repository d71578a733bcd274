#include "runtime/base/slurm_lists.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ronda {
namespace {

constexpr size_t kMaxHosts = size_t{1} << 20;

struct CountedHosts {
  int tasks = 0;
  int hosts = 1;
};

// "2(x3)" or "2"
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

std::optional<std::string> FirstSlurmHost(absl::string_view list) {
  std::string host;
  // A name can have several numbers, and go on behind them: "rack[1-2]n[01-03]a".
  while (!list.empty() && list.front() != ',') {
    const size_t text_end = list.find_first_of("[],");
    absl::StrAppend(&host, list.substr(0, text_end));
    if (text_end == absl::string_view::npos || list[text_end] == ',') break;
    const absl::string_view ranges = list.substr(text_end + 1);
    const size_t number_end = ranges.find_first_of("-,]");
    const size_t close = ranges.find(']');
    const bool is_range = list[text_end] == '[' && close != absl::string_view::npos && number_end != 0;
    if (!is_range) return std::nullopt;
    absl::StrAppend(&host, ranges.substr(0, number_end));
    list = ranges.substr(close + 1);
  }
  if (host.empty()) return std::nullopt;
  return host;
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

}  // namespace ronda
