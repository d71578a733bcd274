#include "runtime/launch/options/hosts.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

bool IsSlotCount(absl::string_view text, int* slots) {
  return absl::SimpleAtoi(text, slots) && *slots >= 1 && *slots <= kMaxSlots;
}

absl::StatusOr<HostSlots> ParseEntry(absl::string_view entry) {
  const auto parts = SplitHost(entry);
  int slots = 0;
  if (!parts || !IsSlotCount(parts->second, &slots)) {
    return absl::InvalidArgumentError(
        absl::StrCat("-H takes HOST:SLOTS with 1 to ", kMaxSlots,
                     " slots, for example -H localhost:4 or -H alpha:2,[fd00::2]:2; got \"", entry, "\""));
  }
  return HostSlots{.host = std::string(parts->first), .slots = slots};
}

// One line of a host file without its comment.
bool ParseHostLine(absl::string_view line, HostSlots* host) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() != 2) return false;
  host->host = std::string(words[0]);
  absl::string_view slots = words[1];
  return IsHostName(words[0]) && absl::ConsumePrefix(&slots, "slots=") && IsSlotCount(slots, &host->slots);
}

void Add(HostSlots added, std::vector<HostSlots>* hosts) {
  const auto known =
      std::find_if(hosts->begin(), hosts->end(), [&](const HostSlots& host) { return host.host == added.host; });
  if (known == hosts->end()) {
    hosts->push_back(std::move(added));
  } else {
    known->slots += added.slots;
  }
}

absl::string_view ShortName(absl::string_view hostname) { return hostname.substr(0, hostname.find('.')); }

}  // namespace

bool IsHostName(absl::string_view host) {
  return !host.empty() && host.front() != '-' && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':' || c == '%';
  });
}

std::optional<std::pair<absl::string_view, absl::string_view>> SplitHost(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return std::nullopt;
  } else if (absl::StrContains(host, ':')) {
    return std::nullopt;
  }
  if (!IsHostName(host)) return std::nullopt;
  return std::make_pair(host, text.substr(colon + 1));
}

absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text) {
  std::vector<HostSlots> hosts;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    RONDA_ASSIGN_OR_RETURN(HostSlots parsed, ParseEntry(entry));
    Add(std::move(parsed), &hosts);
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view path, absl::string_view content) {
  std::vector<HostSlots> hosts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (text.empty()) continue;
    HostSlots host;
    if (!ParseHostLine(text, &host)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": a line takes HOST slots=N with 1 to ",
                                                     kMaxSlots, " slots, for example alpha slots=4; got \"", text,
                                                     "\""));
    }
    Add(std::move(host), &hosts);
  }
  if (hosts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no host; write a line such as alpha slots=4 for each"));
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ParseDiscoveredHosts(absl::string_view content, int slots_per_host) {
  std::vector<HostSlots> hosts;
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    const absl::string_view text = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (text.empty()) continue;
    HostSlots host = {.host = std::string(text), .slots = slots_per_host};
    if (const auto parts = SplitHost(text); parts.has_value()) {
      host.host = std::string(parts->first);
      if (!IsSlotCount(parts->second, &host.slots)) host.slots = 0;
    }
    if (host.slots == 0 || !IsHostName(host.host)) {
      return absl::InvalidArgumentError(absl::StrCat("a line takes HOST:SLOTS with 1 to ", kMaxSlots,
                                                     " slots, or HOST alone with --slots-per-host; got \"", text,
                                                     "\""));
    }
    if (std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& other) { return other.host == host.host; })) {
      return absl::InvalidArgumentError(absl::StrCat("each host once, and ", host.host, " is there twice"));
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return absl::InvalidArgumentError("it lists no host");
  return hosts;
}

std::vector<int> FillHosts(const std::vector<HostSlots>& hosts, int rank_count) {
  std::vector<int> ranks;
  for (const HostSlots& host : hosts) {
    ranks.push_back(std::min(rank_count, host.slots));
    rank_count -= ranks.back();
  }
  return ranks;
}

bool IsThisHost(absl::string_view host, const std::vector<std::string>& own) {
  if (host == "localhost" || host == "127.0.0.1" || host == "::1") return true;
  return std::any_of(own.begin(), own.end(),
                     [&](const std::string& name) { return host == name || host == ShortName(name); });
}

}  // namespace ronda
