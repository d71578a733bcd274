// SPDX-License-Identifier: Apache-2.0

// The most recent events on each rank, for reports about late or dead ranks.
#ifndef RONDA_RUNTIME_MONITOR_FLIGHT_RECORDER_H_
#define RONDA_RUNTIME_MONITOR_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"

namespace ronda {

// Returns the longest prefix of `name` that fits into `bytes` and does not end within a UTF-8 character.
inline absl::string_view ShortName(absl::string_view name, size_t bytes) {
  if (name.size() <= bytes) return name;
  size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return name.substr(0, end);
}

// What happened to a tensor on a rank. The numbers never change, because they are stored in shared memory.
enum class FlightKind : uint8_t {
  kSubmitted = 1,  // the trainer submitted it
  kReported = 2,   // the rank reported it to the coordinator
  kAgreed = 3,     // the coordinator told the ranks to execute it
  kStarted = 4,    // the collective began
  kWaiting = 5,    // the collective is waiting for another rank
  kFinished = 6,
  kFailed = 7,
  kJoined = 8,  // this rank submits no more until all ranks have joined
};
inline constexpr int kLastFlightKind = 8;

// Time on the flight recorders' clock: the time since the host booted, which is the same for all processes of a host.
using FlightTime = absl::Duration;
FlightTime FlightNow();
// FlightNow() in nanoseconds, the unit of recorders and counters. A separate function, because a conversion would take
// a large part of the time it takes to record an event.
uint64_t FlightNanoseconds();
// Like FlightNow(), but the time may be a few milliseconds old. Cheap enough for frequent events.
FlightTime CoarseFlightNow();

struct FlightEvent {
  FlightKind kind = FlightKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  std::string name;  // of the tensor or bucket; truncated if too long
  uint64_t bytes = 0;
  FlightTime time;
};

// The most recent events on one rank, in memory that the rank's peers can read even while the rank is stopped, and
// after it has exited. All-zero bytes are a valid, empty recorder.
//
// Thread-safe, and also safe to use from several processes. No call ever waits for another thread or process. Slots are
// reused after kEvents events. If a thread is still writing to the slot at that time, the new event is dropped. Readers
// skip events that are being written.
//
// Memory ordering: each slot is a sequence lock. A writer draws a ticket, which determines its slot. With a
// compare-and-swap, it replaces the slot's sequence, which belongs to an earlier ticket, with its own ticket's odd
// sequence. So only one writer at a time can write to the slot. The writer stores the words of the event, each with
// release, and then its ticket's even sequence, also with release. A reader loads the sequence and then the words, each
// with acquire, and then the sequence again (relaxed). If both loads of the sequence return the ticket's even sequence,
// the words belong to that ticket. The first load makes all words of the ticket visible. If a word came from a later
// writer, loading it would also make that writer's odd sequence visible, and the second load of the sequence would
// return that. (With fences, the loads and stores of the words could be relaxed. But ThreadSanitizer does not support
// fences, and on x86 there is no difference.)
class FlightRecorder {
 public:
  static constexpr int kEvents = 512;
  static constexpr size_t kNameBytes = 96;

  // `time` is in nanoseconds.
  void Record(FlightKind kind, OpType op, absl::string_view name, uint64_t bytes, uint64_t time);
  void Record(FlightKind kind, OpType op, absl::string_view name, uint64_t bytes, FlightTime time = FlightNow()) {
    Record(kind, op, name, bytes, static_cast<uint64_t>(absl::ToInt64Nanoseconds(time)));
  }

  // Returns the readable events whose names begin with `prefix`, oldest first. Other events cost only a few nanoseconds
  // each.
  std::vector<FlightEvent> Events(absl::string_view prefix = "") const;

  // Returns the last event, or nullopt if none is readable.
  std::optional<FlightEvent> Last() const;

 private:
  static constexpr size_t kNameWords = kNameBytes / sizeof(uint64_t);

  struct alignas(64) Slot {
    std::atomic<uint64_t> sequence;  // 2 * ticket + 1 during the write, 2 * ticket + 2 afterwards; 0: never written
    std::atomic<uint64_t> time;      // nanoseconds
    std::atomic<uint64_t> bytes;
    std::atomic<uint64_t> what;  // kind, op and length of the name, one byte each
    std::atomic<uint64_t> name[kNameWords];
  };

  // Returns nullopt if the event is not readable, or if its name does not begin with `prefix`.
  std::optional<FlightEvent> Read(uint64_t ticket, absl::string_view prefix = "") const;

  alignas(64) std::atomic<uint64_t> next_ticket_;
  Slot slots_[kEvents];
};

// Returns for example "did last, 12.1s ago: started allreduce 'x' (4096 bytes)".
std::string DescribeEvent(const FlightEvent& last, FlightTime now);

// Returns DescribeEvent() for the recorder's last event, or "has done nothing yet" if there is none.
std::string DescribeLastEvent(const FlightRecorder& recorder, FlightTime now = FlightNow());

// An offset in a file that this process has open.
struct FileRange {
  int descriptor = -1;  // -1: in no file
  uint64_t offset = 0;
};

// The flight recorders of all ranks of a job, as this rank sees them. Each rank on this host writes only to its own
// recorder. Events from ranks on other hosts arrive as messages, and this process records them in its own memory.
//
// Thread-safe. Shares ownership of the recorders' memory.
class FlightBoard {
 public:
  // Creates recorders in this process's memory, for ranks that are threads of this process.
  explicit FlightBoard(int size) {
    const std::shared_ptr<FlightRecorder[]> recorders(new FlightRecorder[static_cast<size_t>(size)]());
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) recorders_.push_back(recorders.get() + i);
    memory_ = recorders;
  }

  // A file that is mapped at `base`, and stays open as long as the mapping exists.
  struct MappedFile {
    int descriptor = -1;
    const void* base = nullptr;
    size_t bytes = 0;
  };

  // Uses existing recorders in `memory`, one per rank. `file` may contain some of them.
  FlightBoard(std::vector<FlightRecorder*> recorders, std::shared_ptr<const void> memory, MappedFile file)
      : recorders_(std::move(recorders)), memory_(std::move(memory)), file_(file) {}
  FlightBoard(std::vector<FlightRecorder*> recorders, std::shared_ptr<const void> memory)
      : FlightBoard(std::move(recorders), std::move(memory), MappedFile{}) {}

  int size() const { return static_cast<int>(recorders_.size()); }
  FlightRecorder& Of(RankId rank) const { return *recorders_[static_cast<size_t>(rank)]; }

  // Returns where other processes can find the recorder of `rank`.
  FileRange PlaceOf(RankId rank) const {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(file_.base), at = reinterpret_cast<uintptr_t>(&Of(rank));
    if (file_.descriptor < 0 || at < begin || at - begin >= file_.bytes) return {};
    return {.descriptor = file_.descriptor, .offset = at - begin};
  }

 private:
  std::vector<FlightRecorder*> recorders_;
  std::shared_ptr<const void> memory_;
  MappedFile file_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_FLIGHT_RECORDER_H_
