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
  std::map<std::string, std::string> args;  // numbers as they are written

  double end() const { return ts + dur; }
};

void PrintTo(const TraceEvent& event, std::ostream* out);

// The events of a trace; nullopt unless it is one JSON array of objects and nothing else, to the letter.
std::optional<std::vector<TraceEvent>> ReadTrace(absl::string_view json);
std::optional<std::vector<TraceEvent>> ReadTraceFile(const std::string& path);

// Those of this name, in their order.
std::vector<TraceEvent> Named(const std::vector<TraceEvent>& events, absl::string_view name);

// The number of the row with this name; -1 if there is none.
int RowOf(const std::vector<TraceEvent>& events, absl::string_view name);

// The first error among the spans of a row: two of them overlap and neither lies in the other; "" if there is none.
std::string Overlap(const std::vector<TraceEvent>& events);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_TRACE_READER_H_
