// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_EVENT_FACTORY_H_
#define RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_EVENT_FACTORY_H_

#include <string>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "runtime/monitor/timeline/event_queue.h"

namespace ronda::testing {

// Returns an event of the tensor or bucket `name`, at the time `microseconds`.
inline TimelineEvent MakeEvent(TimelineKind kind, absl::string_view name, int64_t microseconds, int number = 0) {
  TimelineEvent event = {.kind = kind, .number = number, .time = microseconds * 1000, .bytes = 400};
  event.tensor = absl::Hash<absl::string_view>()(name);
  event.set_name(name);
  return event;
}

inline TimelineEvent EndEvent(BucketOutcome outcome, int64_t microseconds) {
  return MakeEvent(TimelineKind::kBucketEnded, "", microseconds, static_cast<int>(outcome));
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_MONITOR_TIMELINE_EVENT_FACTORY_H_
