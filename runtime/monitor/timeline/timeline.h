#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/monitor/timeline/event_queue.h"
#include "runtime/monitor/timeline/timeline_event.h"
#include "runtime/monitor/timeline/timeline_writer.h"

namespace ronda {

// A rank's timeline: off, or being written to a file by a thread of its own. What happens is recorded from any thread;
// while the timeline is off that costs a load, and otherwise a copy (event_queue.h).
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
  // Errors: FAILED_PRECONDITION if there is a timeline already; RESOURCE_EXHAUSTED if memory runs out; that of the
  // operating system, with the path.
  absl::Status Start(const TimelineWriter::Options& options);

  // Ends the file, with all that was recorded before. Nothing happens if there is none.
  void Stop();

  bool on() const { return queue_.load(std::memory_order_relaxed) != nullptr; }

  // Does nothing while the timeline is off.
  void Record(const TimelineEvent& event) {
    // Acquire: of the queue that Start has made.
    if (EventQueue* const queue = queue_.load(std::memory_order_acquire)) queue->Push(event);
  }

 private:
  enum class State { kOff, kChanging, kOn };

  // Of who changes the state.
  absl::StatusOr<std::unique_ptr<TimelineWriter>> StartWriter(const TimelineWriter::Options& options);

  std::atomic<EventQueue*> queue_{nullptr};  // while it is on
  Mutex mu_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOff;
  std::unique_ptr<EventQueue> memory_;      // of who changes the state; kept, as somebody may still be recording
  std::unique_ptr<TimelineWriter> writer_;  // likewise
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory for a timeline");
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_H_
