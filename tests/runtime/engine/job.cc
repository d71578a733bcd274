// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/engine/job.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {

void RunRuntimesOn(Backend backend, int size, const Runtime::Options& options,
                   const std::function<void(Runtime& runtime)>& body) {
  RunRanks(ConnectRanks(backend, {.size = size}), [&](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create(options, {.rank = rank, .size = size}, std::move(transport));
    body(*runtime);
    const absl::Status shutdown = runtime->Shutdown();
    EXPECT_TRUE(shutdown.ok()) << shutdown;
  });
}

void RunRuntimes(int size, const Runtime::Options& options, const std::function<void(Runtime& runtime)>& body) {
  RunRuntimesOn(Backend::kInProcess, size, options, body);
}

void RunRuntimes(int size, const std::function<void(Runtime& runtime)>& body) { RunRuntimes(size, {}, body); }

Submission Sum(const std::string& name, std::vector<float>* data) {
  return {.request = {.name = name, .shape = {static_cast<int64_t>(data->size())}},
          .input = data->data(),
          .output = data->data()};
}

absl::StatusOr<std::vector<std::shared_ptr<Handle>>> SubmitAll(Runtime& runtime,
                                                               absl::Span<const Submission> submissions) {
  std::vector<std::shared_ptr<Handle>> handles;
  RONDA_RETURN_IF_ERROR(runtime.SubmitAll(submissions, &handles));
  return handles;
}

absl::Status CarryOut(Runtime& runtime, Submission submission) {
  const auto handle = runtime.Submit(std::move(submission));
  return handle.ok() ? (*handle)->Wait() : handle.status();
}

absl::Status WaitAndAdvance(const Handle& handle, FakeClock* clock) {
  while (!handle.done()) {
    clock->Advance(absl::Milliseconds(20));
    std::this_thread::yield();
  }
  return handle.Wait();
}

std::shared_ptr<Handle> Succeed(Runtime& runtime, Submission submission) {
  const auto handle = runtime.Submit(std::move(submission));
  const absl::Status status = handle.ok() ? (*handle)->Wait() : handle.status();
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? *handle : nullptr;
}

Submission Barrier(const std::string& name, ProcessSetId process_set) {
  return {.request = {.name = name, .process_set = process_set, .op = OpType::kBarrier}};
}

Submission Join(ProcessSetId process_set, TensorRequest::Absent absent) {
  return {.request = {.name = "ronda/join", .process_set = process_set, .op = OpType::kJoin, .absent = absent}};
}

ProcessSetId AddSet(Runtime& runtime, std::vector<RankId> members) {
  const std::string name = absl::StrCat("add/", absl::StrJoin(members, ","));
  const auto handle =
      Succeed(runtime, {.request = {.name = name, .op = OpType::kAddProcessSet, .members = std::move(members)}});
  return handle == nullptr ? 0 : static_cast<ProcessSetId>(handle->result().number);
}

}  // namespace ronda::testing
