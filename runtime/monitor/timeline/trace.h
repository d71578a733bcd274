// SPDX-License-Identifier: Apache-2.0

// Converts events to the Trace Event Format, and writes them to a file.
#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/monitor/timeline/event_queue.h"

namespace ronda {

// The arguments of one event in a trace, as members of a JSON object.
class TraceArgs {
 public:
  TraceArgs& Add(absl::string_view name, uint64_t value);
  TraceArgs& Add(absl::string_view name, absl::string_view value);

  const std::string& json() const { return json_; }

 private:
  std::string json_;
};

// Writes events in the Trace Event Format, which Perfetto and chrome://tracing read. Each event is a JSON object, with
// a comma before every event but the first. A rank is a "process" in this format, and each of its rows a "thread".
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// Times are nanoseconds. Names are UTF-8.
//
// Thread-compatible.
class TraceText {
 public:
  enum class Start { kBegins, kContinues };
  TraceText(int process, Start start) : process_(process), is_first_(start == Start::kBegins) {}

  void NameProcess(absl::string_view name);
  // Viewers show rows in the order of their numbers.
  void NameRow(int row, absl::string_view name);

  // Adds a span to a row. Spans in a row must be nested or disjoint. Of spans that begin at the same time, the outer
  // one must be added first.
  void Span(int row, absl::string_view name, int64_t begin, int64_t end, const TraceArgs& args = {});
  // Adds a span that has not ended.
  void OpenSpan(int row, absl::string_view name, int64_t begin, const TraceArgs& args = {});
  // Adds an event without a duration.
  void Mark(int row, absl::string_view name, int64_t time, const TraceArgs& args = {});

  const std::string& text() const { return text_; }
  std::string Take() { return std::exchange(text_, {}); }

 private:
  struct Head {
    absl::string_view phase;
    int row;
    absl::string_view name;
  };
  void Begin(const Head& head);
  void End(const TraceArgs& args);
  void AppendMicroseconds(absl::string_view field, int64_t nanoseconds);

  const int process_;
  bool is_first_;
  std::string text_;
};

// Converts the events of a rank to the text of a trace.
//
// Each tensor has a row, with a span from each submission of the tensor to its completion. This span contains three
// others: NEGOTIATE_ALLREDUCE (or another operation's name) lasts until all ranks are known to have the tensor, QUEUE
// until its bucket starts, and ALLREDUCE until the end. In the locked schedule, the span LOCKED, which lasts until all
// tensors of the bucket are ready, replaces NEGOTIATE_ALLREDUCE and QUEUE. Collectives have a row of their own, and so
// does the device's work for them.
//
// A span is written once, after it has ended. Unfinished() returns the spans that have not ended, which are rewritten
// with each batch.
//
// Uses no I/O, clock or thread. If the timeline starts in the middle of a span, the trace shows only the known part of
// the span. Thread-compatible.
class TraceBuilder {
 public:
  // The maximum number of tensors with a row. Events of other tensors are counted, but not drawn.
  static constexpr size_t kMostTensors = 4096;

  struct Options {
    RankId rank = 0;
    std::string host;
  };
  explicit TraceBuilder(const Options& options);

  void Add(const TimelineEvent& event);

  // Returns the spans that have ended since the last call. The first result includes the beginning of the trace. The
  // caller must append each result to the previous ones.
  std::string TakeFinished() { return finished_.Take(); }

  // Returns the spans that have not ended. The caller must write them after the finished spans.
  std::string Unfinished() const;

  // Returns the number of added events that are not drawn.
  uint64_t left_out() const { return left_out_; }

 private:
  enum class Phase : uint8_t { kIdle, kSubmitted, kNegotiating, kQueued, kRunning };
  struct Tensor {
    int row = 0;
    std::string name;
    OpType op = OpType::kAllreduce;
    DType dtype = DType::kFloat32;
    uint64_t bytes = 0;
    Phase phase = Phase::kIdle;
    bool was_negotiated = false;
    int64_t submitted = 0;
    int64_t agreed = 0;
    int64_t started = 0;
  };
  struct Bucket {
    std::string label;
    OpType op = OpType::kAllreduce;
    DType dtype = DType::kFloat32;
    uint64_t bytes = 0;
    int tensors = 0;
    int64_t started = 0;
    std::vector<Tensor*> members;  // those with rows
  };

  void AddOfTensor(const TimelineEvent& event);
  void AddOfBucket(const TimelineEvent& event);
  void AddOfDevice(const TimelineEvent& event);

  // Returns the event's tensor, after giving it a row if it has none. Returns nullptr if there are too many tensors.
  Tensor* Find(const TimelineEvent& event);
  static void Submit(const TimelineEvent& event, Tensor* tensor);
  void StartBucket(const TimelineEvent& event);
  void EndBucket(const TimelineEvent& event);

  // Draws a tensor's span and all spans inside it. If `end` is nullopt, draws them as unfinished.
  static void Draw(const Tensor& tensor, std::optional<int64_t> end, const TraceArgs& args, TraceText* text);
  static void DrawBucket(const Bucket& bucket, std::optional<int64_t> end, absl::string_view outcome, TraceText* text);

  const int process_;
  TraceText finished_;
  std::unordered_map<uint64_t, Tensor> tensors_;  // by TimelineEvent::tensor
  std::optional<Bucket> bucket_;                  // under way
  bool has_device_row_ = false;
  uint64_t left_out_ = 0;
};

// A file that contains a complete JSON array at any time, to which elements are appended. Each call makes a single
// write with the new elements, the new temporary elements and the closing bracket. This overwrites the temporary
// elements and the bracket of the last call, padded with spaces if they were longer. If the process is killed, the
// array is complete, unless the kernel was copying the write at that moment. The closing bracket may then be missing,
// which viewers accept.
//
// Thread-compatible. TraceFile owns the open file.
class TraceFile {
 public:
  // Creates a file at `path`, replacing any existing file. The file never grows beyond `most_bytes`.
  // Errors: the operating system's error, with the path.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(const std::string& path, size_t most_bytes);
  ~TraceFile();

  const std::string& path() const { return path_; }

  // Returns how many bytes can still be written while keeping kReserve bytes of the limit free.
  static constexpr size_t kReserve = 1024;
  size_t room() const { return most_bytes_ > size_ + kReserve ? most_bytes_ - size_ - kReserve : 0; }

  // Appends `elements` permanently, and `end` until the next call replaces it. Both are comma-separated JSON values.
  // `end` must begin with a comma, which separates it from `elements`.
  // Errors: the operating system's error, with the path.
  absl::Status Write(absl::string_view elements, absl::string_view end);

 private:
  TraceFile(std::string path, int fd, size_t most_bytes) : path_(std::move(path)), fd_(fd), most_bytes_(most_bytes) {}

  const std::string path_;
  const int fd_;
  const size_t most_bytes_;
  size_t size_ = 0;   // without the end
  size_t reach_ = 0;  // with it
  std::string text_;  // kept to reuse its memory
};

// Returns `path` with the rank inserted before the file's extension. For example, "trace.json" becomes
// "trace.rank3.json".
std::string PathOfRank(absl::string_view path, RankId rank);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_H_
