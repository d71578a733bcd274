#include "runtime/launch/host_facts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ronda {

std::string FactOr(const HostFacts& facts, absl::string_view name) {
  const auto found = facts.find(std::string(name));
  return found == facts.end() ? "" : found->second;
}

double NumberOf(const HostFacts& facts, absl::string_view name) {
  double number = 0;
  return absl::SimpleAtod(FactOr(facts, name), &number) ? number : 0;
}

std::string FormatFacts(const HostFacts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    std::string line = value;
    std::replace_if(line.begin(), line.end(), absl::ascii_iscntrl, ' ');
    absl::StrAppend(&text, name, "=", line, "\n");
  }
  return text;
}

void ParseFact(absl::string_view line, HostFacts* facts) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
  const auto is_of_name = [](char c) { return absl::ascii_islower(c) || c == '_'; };
  if (parts.first.size() == line.size() || !std::all_of(parts.first.begin(), parts.first.end(), is_of_name)) return;
  (*facts)[std::string(parts.first)] = std::string(absl::StripAsciiWhitespace(parts.second));
}

}  // namespace ronda
