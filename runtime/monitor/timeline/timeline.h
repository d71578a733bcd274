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

// The thread that writes a timeline. It appends events from a queue to the file in batches, at most 20 times per
// second, and sleeps while no events arrive. If the file has reached its size limit or cannot be written, it only
// counts the events. The file's last event contains the number of missing events.
//
// Any thread may create and destroy a TimelineWriter. It does not own the queue, but is the queue's only reader.
class TimelineWriter {
 public:
  struct Options {
    std::string path;  // without the rank, which is inserted
    RankId rank = 0;
    std::string host;
    size_t most_bytes = size_t{256} << 20;  // of the file; some KiB at least
  };

  // Discards the events that are already in the queue.
  // Errors: the operating system's error, with the path; RESOURCE_EXHAUSTED if the system cannot create a thread.
  static absl::StatusOr<std::unique_ptr<TimelineWriter>> Start(const Options& options, EventQueue* queue);

  // Writes the events that are still in the queue, and completes the file.
  ~TimelineWriter();

  const std::string& path() const { return file_->path(); }

 private:
  TimelineWriter(const Options& options, std::unique_ptr<TraceFile> file, EventQueue* queue);

  void Run();
  void WriteBatch();
  // Returns the current end of the file: the unfinished spans, and the number of missing events.
  std::string End() const;
  std::string Missing() const;
  void WriteWhatFits(absl::string_view elements);
  void Write(absl::string_view elements, absl::string_view end);

  const RankId rank_;
  const std::unique_ptr<TraceFile> file_;
  EventQueue* const queue_;
  std::atomic<bool> stopping_{false};
  // Only the writing thread uses these.
  TraceBuilder builder_;
  enum class State { kWriting, kFull, kBroken } state_ = State::kWriting;
  uint64_t missing_ = 0;   // events that arrived too fast, or did not fit into the file
  int64_t last_time_ = 0;  // of an event
  std::thread thread_;
};

// A rank's timeline. While it is on, a thread writes the recorded events to a file. Any thread may record events. This
// costs one load while the timeline is off, and one copy while it is on (event_queue.h).
//
//   if (timeline.on()) timeline.Record(event);
//
// Thread-safe. The destructor completes the file.
class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { Stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Starts writing to the file PathOfRank(path, rank). Errors: FAILED_PRECONDITION if the timeline is already on;
  // RESOURCE_EXHAUSTED if memory runs out; the operating system's error, with the path, if the file cannot be created.
  absl::Status Start(const TimelineWriter::Options& options);

  // Completes the file, which then contains all events recorded before this call. Does nothing if the timeline is off.
  void Stop();

  bool on() const { return queue_.load(std::memory_order_relaxed) != nullptr; }

  // Does nothing while the timeline is off.
  void Record(const TimelineEvent& event) {
    // The acquire load makes the queue from Start() visible.
    if (EventQueue* const queue = queue_.load(std::memory_order_acquire)) queue->Push(event);
  }

 private:
  enum class State { kOff, kChanging, kOn };

  // Only the thread that is changing the state may call this.
  absl::StatusOr<std::unique_ptr<TimelineWriter>> StartWriter(const TimelineWriter::Options& options);

  std::atomic<EventQueue*> queue_{nullptr};  // while it is on
  Mutex mu_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOff;
  std::unique_ptr<EventQueue> memory_;  // used by the thread that changes the state; kept, as others may still record
  std::unique_ptr<TimelineWriter> writer_;  // used by the thread that changes the state
  // Created in advance, because no memory is left when it is needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory for a timeline");
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_
