#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_WRITER_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_WRITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/monitor/timeline/event_queue.h"
#include "runtime/monitor/timeline/trace_builder.h"
#include "runtime/monitor/timeline/trace_file.h"

namespace ronda {

// The thread that writes a timeline: takes events from a queue, and adds a batch of them to the file 20 times a second
// at most; it sleeps while nothing happens. Once the file is as large as it may be, or cannot be written, events are
// only counted; how many are missing is the file's last event.
//
// The constructor and the destructor may be called from any thread. Does not own the queue, and is its only reader.
class TimelineWriter {
 public:
  struct Options {
    std::string path;  // the rank is inserted
    RankId rank = 0;
    std::string host;
    size_t most_bytes = size_t{256} << 20;  // of the file; some KiB at least
  };

  // What is in the queue by now is not part of this timeline.
  // Errors: that of the operating system, with the path; RESOURCE_EXHAUSTED if there is no thread.
  static absl::StatusOr<std::unique_ptr<TimelineWriter>> Start(const Options& options, EventQueue* queue);

  // Writes what is in the queue, and ends the file.
  ~TimelineWriter();

  const std::string& path() const { return file_->path(); }

 private:
  TimelineWriter(const Options& options, std::unique_ptr<TraceFile> file, EventQueue* queue);

  void Run();
  void WriteBatch();
  // What the file ends with at the moment.
  std::string End() const;
  std::string Missing() const;
  void WriteWhatFits(absl::string_view elements);
  void Write(absl::string_view elements, absl::string_view end);

  const RankId rank_;
  const std::unique_ptr<TraceFile> file_;
  EventQueue* const queue_;
  std::atomic<bool> stopping_{false};
  // The rest is the thread's own.
  TraceBuilder builder_;
  enum class State { kWriting, kFull, kBroken } state_ = State::kWriting;
  uint64_t missing_ = 0;   // events that came too fast, or too late for the file's size
  int64_t last_time_ = 0;  // of an event
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_WRITER_H_
