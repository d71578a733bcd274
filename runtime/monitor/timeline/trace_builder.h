#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_BUILDER_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/monitor/timeline/timeline_event.h"
#include "runtime/monitor/timeline/trace_text.h"

namespace ronda {

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

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_BUILDER_H_
