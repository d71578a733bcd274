// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/monitor/timeline/event_queue.h"
#include "runtime/monitor/timeline/trace.h"

namespace ronda {

// The thread that writes a timeline. It takes events from a queue, and adds a batch of them to the file, at most 20
// times per second. It sleeps while no event comes. Once the file has its largest size, or cannot be written, it only
// counts events. The file's last event has the number of missing events.
//
// Any thread may call the constructor and the destructor. The object does not own the queue, and is its only reader.
class TimelineWriter {
 public:
  struct Options {
    std::string path;  // without the rank, which is inserted
    RankId rank = 0;
    std::string host;
    size_t most_bytes = size_t{256} << 20;  // of the file; some KiB at least
  };

  // Discards the events that are already in the queue.
  // Errors: the operating system's error, with the path; RESOURCE_EXHAUSTED if the system provides no thread.
  static absl::StatusOr<std::unique_ptr<TimelineWriter>> Start(const Options& options, EventQueue* queue);

  // Writes the events in the queue, and ends the file.
  ~TimelineWriter();

  const std::string& path() const { return file_->path(); }

 private:
  TimelineWriter(const Options& options, std::unique_ptr<TraceFile> file, EventQueue* queue);

  void Run();
  void WriteBatch();
  // The current end of the file: unfinished spans, and the count of missing events.
  std::string End() const;
  std::string Missing() const;
  void WriteWhatFits(absl::string_view elements);
  void Write(absl::string_view elements, absl::string_view end);

  const RankId rank_;
  const std::unique_ptr<TraceFile> file_;
  EventQueue* const queue_;
  std::atomic<bool> stopping_{false};
  // Only the thread uses the following members.
  TraceBuilder builder_;
  enum class State { kWriting, kFull, kBroken } state_ = State::kWriting;
  uint64_t missing_ = 0;   // events that came too fast, or did not fit into the file
  int64_t last_time_ = 0;  // of an event
  std::thread thread_;
};

// A rank's timeline. It is off, or a thread writes it to a file. Any thread records events. This costs one load while
// the timeline is off, and otherwise one copy (event_queue.h).
//
//   if (timeline.on()) timeline.Record(event);
//
// Thread-safe. Destroying it ends the file.
class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { Stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Begins a file at PathOfRank(path, rank).
  // Errors: FAILED_PRECONDITION if the timeline is already on. RESOURCE_EXHAUSTED if memory runs out. The
  // operating system's error, with the path, if the file cannot be made.
  absl::Status Start(const TimelineWriter::Options& options);

  // Ends the file. It contains all events that were recorded before. Does nothing if the timeline is off.
  void Stop();

  bool on() const { return queue_.load(std::memory_order_relaxed) != nullptr; }

  // Does nothing while the timeline is off.
  void Record(const TimelineEvent& event) {
    // Acquire: makes the queue that Start has created visible.
    if (EventQueue* const queue = queue_.load(std::memory_order_acquire)) queue->Push(event);
  }

 private:
  enum class State { kOff, kChanging, kOn };

  // Only the thread that changes the state calls it.
  absl::StatusOr<std::unique_ptr<TimelineWriter>> StartWriter(const TimelineWriter::Options& options);

  std::atomic<EventQueue*> queue_{nullptr};  // while it is on
  Mutex mu_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOff;
  std::unique_ptr<EventQueue> memory_;      // of the thread that changes the state; kept, as another may still record
  std::unique_ptr<TimelineWriter> writer_;  // of the thread that changes the state
  // Made in advance: when it is needed, there is no memory for it.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory for a timeline");
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_
