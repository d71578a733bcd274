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

// What belongs to an event of a trace besides its name and time, as members of a JSON object.
class TraceArgs {
 public:
  TraceArgs& Add(absl::string_view name, uint64_t value);
  TraceArgs& Add(absl::string_view name, absl::string_view value);

  const std::string& json() const { return json_; }

 private:
  std::string json_;
};

// Writes events in the Trace Event Format, which Perfetto and chrome://tracing read: a JSON object each, with a comma
// in front unless it is the first. A rank is a process there, and has rows, which are threads there.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// Times are nanoseconds. Names are UTF-8.
//
// Thread-compatible.
class TraceText {
 public:
  enum class Place { kBegins, kContinues };
  TraceText(int process, Place place) : process_(process), is_first_(place == Place::kBegins) {}

  void NameProcess(absl::string_view name);
  // Rows are shown in the order of their numbers.
  void NameRow(int row, absl::string_view name);

  // Spans of a row lie in each other or apart; of those that begin at the same time the outer one is written first.
  void Span(int row, absl::string_view name, int64_t begin, int64_t end, const TraceArgs& args = {});
  // The same of one whose end is not known.
  void OpenSpan(int row, absl::string_view name, int64_t begin, const TraceArgs& args = {});
  // Something without an extent.
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

// Draws what happens on a rank: turns events into the text of a trace.
//
// Each tensor has a row with a span for each time that it is submitted, from there to its completion. In that are
// NEGOTIATE_ALLREDUCE (or another operation's name; until all ranks are known to have it), QUEUE (until it is its
// bucket's turn), and ALLREDUCE. In the locked schedule LOCKED, until its bucket has all of its tensors, takes the
// place of the first two. Collectives have a row of their own, and so has what a device does for them.
//
// A span is written as a whole once it has ended. Those that have not are part of Unfinished, which is written anew
// every time.
//
// No I/O, no clock, no thread. What comes without its beginning, as when the timeline is started in the middle, is
// drawn as far as it is known. Thread-compatible.
class TraceBuilder {
 public:
  // Names of which rows are made; what happens to others is left out, and counted.
  static constexpr size_t kMostTensors = 4096;

  struct Options {
    RankId rank = 0;
    std::string host;
  };
  explicit TraceBuilder(const Options& options);

  void Add(const TimelineEvent& event);

  // What has been completed since the last call, the first time with the beginning of the trace. To be written one
  // behind the other.
  std::string TakeFinished() { return finished_.Take(); }

  // What is under way, to be written behind that.
  std::string Unfinished() const;

  // Of the events added, those that are not drawn.
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
    std::vector<Tensor*> members;  // that have rows
  };

  void AddOfTensor(const TimelineEvent& event);
  void AddOfBucket(const TimelineEvent& event);
  void AddOfDevice(const TimelineEvent& event);

  // The tensor's, with a row; nullptr if there are too many.
  Tensor* Find(const TimelineEvent& event);
  static void Submit(const TimelineEvent& event, Tensor* tensor);
  void StartBucket(const TimelineEvent& event);
  void EndBucket(const TimelineEvent& event);

  // The span of a tensor with all that is in it; without an end it is under way.
  static void Draw(const Tensor& tensor, std::optional<int64_t> end, const TraceArgs& args, TraceText* text);
  static void DrawBucket(const Bucket& bucket, std::optional<int64_t> end, absl::string_view outcome, TraceText* text);

  const int process_;
  TraceText finished_;
  std::unordered_map<uint64_t, Tensor> tensors_;  // by TimelineEvent::tensor
  std::optional<Bucket> bucket_;                  // under way
  bool has_device_row_ = false;
  uint64_t left_out_ = 0;
};

// A file that holds a JSON array whenever somebody looks, and to which elements are added: each call writes, at once,
// the new elements, an end that the next call replaces, and the closing bracket, over the end and the bracket before.
// Spaces cover what is left of a longer end. A process that is killed leaves it so, unless the kernel is in the middle
// of copying that very write; then the closing bracket is missing, without which viewers do.
//
// Thread-compatible. Owns the open file.
class TraceFile {
 public:
  // Replaces what is at `path`. `most_bytes`: what the file does not grow beyond.
  // Errors: that of the operating system, with the path.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(const std::string& path, size_t most_bytes);
  ~TraceFile();

  const std::string& path() const { return path_; }

  // How many bytes of elements and end may still be added, if something of kReserve bytes is to fit besides.
  static constexpr size_t kReserve = 1024;
  size_t room() const { return most_bytes_ > size_ + kReserve ? most_bytes_ - size_ - kReserve : 0; }

  // Adds `elements`, and `end` for the time being. Both are texts of JSON values with a comma between, also between the
  // two; so `end` begins with one.
  // Errors: that of the operating system, with the path.
  absl::Status Write(absl::string_view elements, absl::string_view end);

 private:
  TraceFile(std::string path, int fd, size_t most_bytes) : path_(std::move(path)), fd_(fd), most_bytes_(most_bytes) {}

  const std::string path_;
  const int fd_;
  const size_t most_bytes_;
  size_t size_ = 0;   // without the end
  size_t reach_ = 0;  // with it
  std::string text_;  // kept for its memory
};

// `path` with the rank before its extension: "trace.json" becomes "trace.rank3.json".
std::string PathOfRank(absl::string_view path, RankId rank);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_H_
