#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_TEXT_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

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

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TRACE_TEXT_H_
