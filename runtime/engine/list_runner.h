// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_LIST_RUNNER_H_
#define RONDA_RUNTIME_ENGINE_LIST_RUNNER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/types.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/statistics.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// Carries out the coordinator's response lists in the order in which they arrive, one bucket at a time. StepRunner
// (step_runner.h) carries out locked schedules.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class ListRunner {
 public:
  // ListRunner owns none of these objects.
  struct Parts {
    RankId rank = 0;
    Reporter* reporter = nullptr;
    Executor* executor = nullptr;
    TensorQueue* queue = nullptr;
    TensorLog* log = nullptr;
    Counters* counters = nullptr;
    std::function<void(const JobSettings&)> apply_settings;  // called for a list that brings settings
  };

  explicit ListRunner(Parts parts) : parts_(std::move(parts)) {}

  // Must be called with each encoded list that arrives.
  void Add(std::string list) { lists_.push_back(std::move(list)); }

  // Returns whether a list has arrived but not begun.
  bool has_waiting() const { return !lists_.empty(); }
  // Returns whether a list has begun but not ended.
  bool has_begun() const { return begun_.has_value(); }

  // What the rank must do after the end of a list.
  struct End {
    ResponseList::Job job = ResponseList::Job::kGoesOn;
    std::optional<ResolvedSchedule> schedule;  // begins now
  };

  // Begins the next list, or carries out the next bucket of the current list. After the last bucket, returns the list's
  // End. REQUIRES: has_waiting() or has_begun(). Errors: INVALID_ARGUMENT if the list is damaged; INTERNAL if the list
  // answers a tensor that this rank has not submitted; the executor's errors.
  absl::StatusOr<std::optional<End>> RunNext();

 private:
  struct Begun {
    Reporter::Work work;
    size_t next_bucket = 0;

    bool has_buckets() const { return next_bucket < work.buckets.size(); }
  };

  absl::Status Begin(const std::string& list);
  absl::Status Answer(const TensorError& error);
  void Log(const std::vector<AgreedBucket>& buckets);

  const Parts parts_;
  std::deque<std::string> lists_;  // have not begun
  std::optional<Begun> begun_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_LIST_RUNNER_H_
