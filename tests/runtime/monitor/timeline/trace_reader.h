// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_TRACE_READER_H_
#define RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_TRACE_READER_H_

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ronda::testing {

// An event of a trace; times in microseconds.
struct TraceEvent {
  std::string ph;
  int pid = -1;
  int tid = -1;
  std::string name;
  double ts = 0;
  double dur = 0;
  std::map<std::string, std::string> args;  // numbers as in the text of the trace

  double end() const { return ts + dur; }
};

void PrintTo(const TraceEvent& event, std::ostream* out);

// Returns the events of a trace, or nullopt if `json` is not exactly one JSON array of objects.
std::optional<std::vector<TraceEvent>> ReadTrace(absl::string_view json);
std::optional<std::vector<TraceEvent>> ReadTraceFile(const std::string& path);

// Returns the events with this name, in the order of `events`.
std::vector<TraceEvent> Named(const std::vector<TraceEvent>& events, absl::string_view name);

// Returns the number of the row with this name; -1 if there is none.
int RowOf(const std::vector<TraceEvent>& events, absl::string_view name);

// Looks for two spans of a row that overlap without being nested. Returns a text about the first such pair, or "" if
// there is none.
std::string Overlap(const std::vector<TraceEvent>& events);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_TRACE_READER_H_
