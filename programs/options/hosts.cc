// SPDX-License-Identifier: Apache-2.0

#include "programs/options/hosts.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Some editors write this mark at the start of UTF-8 files.
constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

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

// The values of the keys on a line of a host file. The keys may come in any order. Open MPI's manual uses both
// "max_slots" and "max-slots".
struct LineKeys {
  std::optional<int> slots;
  std::optional<int> max_slots;

  bool Read(absl::string_view key, absl::string_view value) {
    std::optional<int>* place = nullptr;
    if (key == "slots") place = &slots;
    if (key == "max_slots" || key == "max-slots") place = &max_slots;
    int number = 0;
    if (place == nullptr || place->has_value() || !IsSlotCount(value, &number)) return false;
    *place = number;
    return true;
  }
};

// Splits a line into words. "slots = 2" is one word, because "=" joins the words on either side.
std::vector<std::string> LineWords(absl::string_view line) {
  std::vector<std::string> words;
  bool continues = false;
  for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    continues = continues || absl::StartsWith(word, "=");
    if (continues && !words.empty()) {
      absl::StrAppend(&words.back(), word);
    } else {
      words.emplace_back(word);
    }
    continues = absl::EndsWith(word, "=");
  }
  return words;
}

absl::Status NotRead(absl::string_view word) {
  return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is not read"));
}

// Returns the host on a line whose comment has been removed. Errors: INVALID_ARGUMENT with the reason.
absl::StatusOr<HostSlots> ParseHostLine(absl::string_view line) {
  const std::vector<std::string> words = LineWords(line);
  HostSlots host = {.host = words.front()};
  LineKeys keys;
  if (const auto parts = SplitHost(words.front())) {
    int slots = 0;
    if (!IsSlotCount(parts->second, &slots)) return NotRead(words.front());
    host.host = std::string(parts->first);
    keys.slots = slots;
  }
  if (!IsHostName(host.host)) return NotRead(words.front());
  for (size_t i = 1; i < words.size(); ++i) {
    const std::vector<absl::string_view> pair = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (pair.size() != 2 || !keys.Read(pair[0], pair[1])) return NotRead(words[i]);
  }
  // For a line with max_slots but without slots, Open MPI would use the number of cores.
  if (keys.max_slots && !keys.slots) return absl::InvalidArgumentError("max_slots needs slots");
  host.slots = keys.slots.value_or(1);
  if (keys.max_slots.value_or(host.slots) < host.slots) {
    return absl::InvalidArgumentError("max_slots is less than slots");
  }
  return host;
}

bool IsUtf16(absl::string_view content) {
  return absl::StartsWith(content, "\xFF\xFE") || absl::StartsWith(content, "\xFE\xFF");
}

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

void AddHost(HostSlots added, std::vector<HostSlots>* hosts) {
  const auto known =
      std::find_if(hosts->begin(), hosts->end(), [&](const HostSlots& host) { return host.host == added.host; });
  if (known == hosts->end()) {
    hosts->push_back(std::move(added));
  } else {
    known->slots += added.slots;
  }
}

int CountSlots(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostSlots& host) { return sum + host.slots; });
}

std::string FormatHosts(const std::vector<HostSlots>& hosts) {
  return absl::StrJoin(hosts, ",", [](std::string* out, const HostSlots& host) {
    const bool is_ipv6 = absl::StrContains(host.host, ':');
    absl::StrAppend(out, is_ipv6 ? "[" : "", host.host, is_ipv6 ? "]" : "", ":", host.slots);
  });
}

absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text) {
  std::vector<HostSlots> hosts;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    RONDA_ASSIGN_OR_RETURN(HostSlots parsed, ParseEntry(entry));
    AddHost(std::move(parsed), &hosts);
  }
  return hosts;
}

absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view path, absl::string_view content) {
  if (IsUtf16(content)) return absl::InvalidArgumentError(absl::StrCat(path, ": is UTF-16; save it as UTF-8"));
  std::vector<HostSlots> hosts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::StripPrefix(content, kByteOrderMark), '\n')) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (text.empty()) continue;
    absl::StatusOr<HostSlots> host = ParseHostLine(text);
    if (!host.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", host.status().message(),
                                                     "; a line takes HOST slots=N with 1 to ", kMaxSlots,
                                                     " slots, for example alpha slots=4; got \"", text, "\""));
    }
    AddHost(*std::move(host), &hosts);
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
      if (parts->second == "0") continue;
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
  if (hosts.empty()) return absl::InvalidArgumentError("it lists no host with a slot");
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

absl::string_view ShortName(absl::string_view hostname) { return hostname.substr(0, hostname.find('.')); }

bool IsThisHost(absl::string_view host, const std::vector<std::string>& own) {
  if (host == "localhost" || host == "127.0.0.1" || host == "::1") return true;
  return std::any_of(own.begin(), own.end(),
                     [&](const std::string& name) { return host == name || host == ShortName(name); });
}

}  // namespace ronda
