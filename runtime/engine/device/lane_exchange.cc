// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/lane_exchange.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The memory of a part.
struct Range {
  uintptr_t begin;
  uintptr_t end;
  PartWay way;
  RankId rank;  // the other rank
};

// Marks the number of a part that lies in the lane's memory.
constexpr absl::string_view kInMemory = "m";

constexpr const char* Verb(PartWay way) { return way == PartWay::kSends ? " sends to " : " receives from "; }

template <typename... Words>
absl::Status Invalid(const LaneExchange& exchange, const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(Name(exchange.op), ": ", words...));
}

absl::Status CheckParts(const LaneExchange& exchange, PartWay way, const std::vector<DirectPart>& parts,
                        const Group& members, std::vector<Range>* ranges) {
  const char* const what = way == PartWay::kSends ? "sends" : "receives";
  if (parts.size() != static_cast<size_t>(members.size())) {
    return Invalid(exchange, what, " has ", parts.size(), " parts for ", members.size(), " ranks: pass one for each");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const RankId rank = members.ranks()[i];
    size_t bytes = 0;
    if (__builtin_mul_overflow(parts[i].count, SizeOf(exchange.dtype), &bytes)) {
      return Invalid(exchange, what, "[", i, "], for rank ", rank, ", has more bytes than 64 bits can count");
    }
    if (bytes == 0) continue;
    if (parts[i].data == nullptr) {
      return Invalid(exchange, what, "[", i, "], for rank ", rank, ", is null, but has ", parts[i].count, " elements");
    }
    const auto begin = reinterpret_cast<uintptr_t>(parts[i].data);
    ranges->push_back({.begin = begin, .end = begin + bytes, .way = way, .rank = rank});
  }
  return absl::OkStatus();
}

std::string InWords(const Range& range) { return absl::StrCat("what it", Verb(range.way), "rank ", range.rank); }

// Checks that no received part overlaps another part.
absl::Status CheckOverlap(const LaneExchange& exchange, RankId self, std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const Range* last = nullptr;      // the part that ends last
  const Range* received = nullptr;  // the received part that ends last
  for (const Range& range : ranges) {
    const Range* const before = range.way == PartWay::kReceives ? last : received;
    const bool is_own = before != nullptr && before->rank == self && range.rank == self && before->way != range.way &&
                        before->begin == range.begin;
    if (before != nullptr && !is_own && range.begin < before->end) {
      return Invalid(exchange, InWords(range), " overlaps ", InWords(*before), ": pass disjoint buffers");
    }
    if (last == nullptr || range.end > last->end) last = &range;
    if (range.way == PartWay::kReceives && (received == nullptr || range.end > received->end)) received = &range;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExchange(const LaneExchange& exchange, const Group& members, RankId self) {
  std::vector<Range> ranges;
  RONDA_RETURN_IF_ERROR(CheckParts(exchange, PartWay::kSends, exchange.sends, members, &ranges));
  RONDA_RETURN_IF_ERROR(CheckParts(exchange, PartWay::kReceives, exchange.receives, members, &ranges));
  if (TraitsOf(exchange.op).has_root() && !members.Contains(exchange.root)) {
    return Invalid(exchange, "root ", exchange.root, " is not in the process set, whose ranks are ",
                   absl::StrJoin(members.ranks(), ", "), ": name one of them");
  }
  const auto own = static_cast<size_t>(*members.PositionOf(self));
  if (exchange.sends[own].count != exchange.receives[own].count) {
    return Invalid(exchange, "rank ", self, " sends ", exchange.sends[own].count, " elements to itself, but receives ",
                   exchange.receives[own].count, ": pass the same number");
  }
  return CheckOverlap(exchange, self, std::move(ranges));
}

std::vector<const void*> BuffersOf(const LaneExchange& exchange) {
  std::vector<const void*> buffers;
  for (const std::vector<DirectPart>* parts : {&exchange.sends, &exchange.receives}) {
    const std::byte* end = nullptr;
    for (const DirectPart& part : *parts) {
      if (part.count == 0) continue;
      const auto* const begin = static_cast<const std::byte*>(part.data);
      if (begin != end) buffers.push_back(begin);
      end = begin + part.count * SizeOf(exchange.dtype);
    }
  }
  return buffers;
}

size_t BytesSent(const LaneExchange& exchange) {
  size_t count = 0;
  for (const DirectPart& part : exchange.sends) count += part.count;
  return count * SizeOf(exchange.dtype);
}

void DescribeParts(absl::string_view call, PartWay way, absl::Span<const DirectPart> parts,
                   absl::FunctionRef<bool(const void* data)> is_in_memory,
                   absl::FunctionRef<void(absl::string_view text)> record) {
  const auto record_of = [&](const DirectPart& part) {
    return PartRecord{.count = part.count, .is_in_memory = part.count > 0 && is_in_memory(part.data)};
  };
  std::string text;
  for (size_t i = 0; i < parts.size();) {
    const PartRecord first = record_of(parts[i]);
    size_t end = i + 1;
    while (end < parts.size() && record_of(parts[end]) == first) ++end;
    std::string number = absl::StrCat(" ", first.count, first.is_in_memory ? kInMemory : "");
    if (end - i > 1) absl::StrAppend(&number, "x", end - i);
    if (text.size() + number.size() > FlightRecorder::kNameBytes) {
      record(text);
      text.clear();
    }
    if (text.empty()) text = absl::StrCat(call, Verb(way), i, " on:");
    absl::StrAppend(&text, number);
    i = end;
  }
  if (!text.empty()) record(text);
}

std::optional<PartRecord> FindPart(absl::Span<const FlightEvent> events, absl::string_view call, PartWay way,
                                   int position) {
  const std::string begin = absl::StrCat(call, Verb(way));
  for (const FlightEvent& event : events) {
    absl::string_view text = event.name;
    if (!absl::ConsumePrefix(&text, begin)) continue;
    const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(text, absl::MaxSplits(" on: ", 1));
    uint64_t at = 0;
    if (!absl::SimpleAtoi(halves.first, &at)) continue;
    for (const absl::string_view number : absl::StrSplit(halves.second, ' ')) {
      const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(number, absl::MaxSplits('x', 1));
      absl::string_view digits = parts.first;
      PartRecord part = {.is_in_memory = absl::ConsumeSuffix(&digits, kInMemory)};
      uint64_t times = 1;
      if (!absl::SimpleAtoi(digits, &part.count)) break;
      if (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &times)) break;
      if (at <= static_cast<uint64_t>(position) && static_cast<uint64_t>(position) < at + times) return part;
      at += times;
    }
  }
  return std::nullopt;
}

}  // namespace ronda
