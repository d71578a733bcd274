// SPDX-License-Identifier: Apache-2.0

// Runs jobs whose ranks are threads of one test, and makes submissions for these jobs.
#ifndef RONDA_TESTS_RUNTIME_ENGINE_JOB_H_
#define RONDA_TESTS_RUNTIME_ENGINE_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/runtime.h"
#include "runtime/engine/submission.h"
#include "tests/testing/backends.h"
#include "tests/testing/fakes.h"

namespace ronda::testing {

// Runs a job of `size` ranks. Each rank runs `body` and shuts down, and the shutdown must succeed.
void RunRuntimes(int size, const Runtime::Options& options, const std::function<void(Runtime& runtime)>& body);
void RunRuntimes(int size, const std::function<void(Runtime& runtime)>& body);

// Like RunRuntimes, over any backend whose ranks can be threads.
void RunRuntimesOn(Backend backend, int size, const Runtime::Options& options,
                   const std::function<void(Runtime& runtime)>& body);

// Returns the submission of an allreduce in place.
Submission Sum(const std::string& name, std::vector<float>* data);

// Submits all. Returns the handles in the order of the submissions.
absl::StatusOr<std::vector<std::shared_ptr<Handle>>> SubmitAll(Runtime& runtime,
                                                               absl::Span<const Submission> submissions);

// Submits and waits.
absl::Status CarryOut(Runtime& runtime, Submission submission);

// Waits for the operation, while quickly advancing the clock, which otherwise stands still. Meanwhile, only rank 0
// should have other operations with a deadline in flight, because the other ranks check whether rank 0 answers in time.
absl::Status WaitAndAdvance(const Handle& handle, FakeClock* clock);

// Submits and waits. Returns the handle if the operation succeeds. After an error, fails the test and returns nullptr.
std::shared_ptr<Handle> Succeed(Runtime& runtime, Submission submission);

// Returns the submission of a barrier of all ranks or of a process set.
Submission Barrier(const std::string& name, ProcessSetId process_set = kGlobalProcessSet);

Submission Join(ProcessSetId process_set = kGlobalProcessSet,
                TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted);

// Adds a process set, on all ranks.
ProcessSetId AddSet(Runtime& runtime, std::vector<RankId> members);

// Returns the elements of the result in the operation's handle.
template <typename T>
std::vector<T> Received(const Handle& handle, size_t row_elements = 1) {
  const OperationResult& result = handle.result();
  size_t rows = 0;
  for (int64_t dim : result.first_dims) rows += static_cast<size_t>(dim);
  const auto* const first = static_cast<const T*>(result.rows());
  return std::vector<T>(first, first + rows * row_elements);
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_ENGINE_JOB_H_
