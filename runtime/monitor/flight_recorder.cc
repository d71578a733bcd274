// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/flight_recorder.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// A FlightRecorder contains no pointers or locks of this process, because other processes map its memory.
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t kByte = 0xff;

struct Description {
  FlightKind kind;
  OpType op;
  size_t name_bytes;
};

uint64_t Pack(const Description& what) {
  return static_cast<uint64_t>(what.kind) | static_cast<uint64_t>(what.op) << 8 |
         static_cast<uint64_t>(what.name_bytes) << 16;
}

// Returns nullopt if Record() cannot have written these bits.
std::optional<Description> Unpack(uint64_t bits) {
  const uint64_t kind = bits & kByte;
  const std::optional<OpType> op = OpTypeFromInt(static_cast<int64_t>(bits >> 8 & kByte));
  const uint64_t name_bytes = bits >> 16;
  if (kind < 1 || kind > kLastFlightKind || !op.has_value() || name_bytes > FlightRecorder::kNameBytes) {
    return std::nullopt;
  }
  return Description{static_cast<FlightKind>(kind), *op, name_bytes};
}

uint64_t ReadClock(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

constexpr const char* Verb(FlightKind kind) {
  constexpr const char* kVerbs[kLastFlightKind + 1] = {"",          "submitted", "reported", "was ordered", "started",
                                                       "waited in", "finished",  "failed",   "joined:"};
  return kVerbs[static_cast<int>(kind)];
}

}  // namespace

uint64_t FlightNanoseconds() { return ReadClock(CLOCK_MONOTONIC); }

FlightTime FlightNow() { return absl::Nanoseconds(ReadClock(CLOCK_MONOTONIC)); }

FlightTime CoarseFlightNow() { return absl::Nanoseconds(ReadClock(CLOCK_MONOTONIC_COARSE)); }

void FlightRecorder::Record(FlightKind kind, OpType op, absl::string_view name, uint64_t bytes, uint64_t time) {
  const uint64_t ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[ticket % kEvents];
  uint64_t found = slot.sequence.load(std::memory_order_relaxed);
  // Drops the event if another writer is still writing to the slot, or if a later writer has already written to it.
  if (found % 2 != 0 || found > 2 * ticket) return;
  if (!slot.sequence.compare_exchange_strong(found, 2 * ticket + 1, std::memory_order_acq_rel)) return;
  name = ShortName(name, kNameBytes);
  slot.time.store(time, std::memory_order_release);
  slot.bytes.store(bytes, std::memory_order_release);
  slot.what.store(Pack({kind, op, name.size()}), std::memory_order_release);
  for (size_t at = 0; at < name.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, name.data() + at, std::min(sizeof(word), name.size() - at));
    slot.name[at / sizeof(word)].store(word, std::memory_order_release);
  }
  slot.sequence.store(2 * ticket + 2, std::memory_order_release);
}

std::optional<FlightEvent> FlightRecorder::Read(uint64_t ticket, absl::string_view prefix) const {
  const Slot& slot = slots_[ticket % kEvents];
  const uint64_t complete = 2 * ticket + 2;
  if (slot.sequence.load(std::memory_order_acquire) != complete) return std::nullopt;
  const uint64_t time = slot.time.load(std::memory_order_acquire);
  const uint64_t bytes = slot.bytes.load(std::memory_order_acquire);
  const uint64_t bits = slot.what.load(std::memory_order_acquire);
  uint64_t name[kNameWords];
  for (size_t i = 0; i < kNameWords; ++i) name[i] = slot.name[i].load(std::memory_order_acquire);
  if (slot.sequence.load(std::memory_order_relaxed) != complete) return std::nullopt;
  const std::optional<Description> what = Unpack(bits);
  if (!what.has_value()) return std::nullopt;
  const absl::string_view text(reinterpret_cast<const char*>(name), what->name_bytes);
  if (!absl::StartsWith(text, prefix)) return std::nullopt;
  return FlightEvent{.kind = what->kind,
                     .op = what->op,
                     .name = std::string(text),
                     .bytes = bytes,
                     .time = absl::Nanoseconds(static_cast<int64_t>(time))};
}

std::vector<FlightEvent> FlightRecorder::Events(absl::string_view prefix) const {
  const uint64_t end = next_ticket_.load(std::memory_order_acquire);
  std::vector<FlightEvent> events;
  for (uint64_t ticket = end - std::min<uint64_t>(end, kEvents); ticket < end; ++ticket) {
    if (std::optional<FlightEvent> event = Read(ticket, prefix); event.has_value()) events.push_back(*std::move(event));
  }
  return events;
}

std::optional<FlightEvent> FlightRecorder::Last() const {
  const uint64_t end = next_ticket_.load(std::memory_order_acquire);
  const uint64_t begin = end - std::min<uint64_t>(end, kEvents);
  for (uint64_t ticket = end; ticket > begin; --ticket) {
    if (std::optional<FlightEvent> event = Read(ticket - 1); event.has_value()) return event;
  }
  return std::nullopt;
}

std::string DescribeEvent(const FlightEvent& last, FlightTime now) {
  std::string text =
      absl::StrCat("did last, ", absl::FormatDuration(absl::Trunc(now - last.time, absl::Milliseconds(1))),
                   " ago: ", Verb(last.kind), " ", Name(last.op), " '", last.name, "'");
  if (last.bytes > 0) absl::StrAppend(&text, " (", last.bytes, " bytes)");
  return text;
}

std::string DescribeLastEvent(const FlightRecorder& recorder, FlightTime now) {
  const std::optional<FlightEvent> last = recorder.Last();
  return last.has_value() ? DescribeEvent(*last, now) : "has done nothing yet";
}

}  // namespace ronda
