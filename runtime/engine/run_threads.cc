// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/run_threads.h"

#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"

namespace ronda {
namespace {

using Body = std::function<absl::Status(Runtime&)>;

// Keeps the first failure and the first exception of all ranks. Thread-safe.
class FirstFailure {
 public:
  void Add(const absl::Status& status, std::exception_ptr exception = nullptr) {
    MutexLock lock(&mu_);
    if (outcome_.status.ok()) outcome_.status = status;
    if (outcome_.exception == nullptr) outcome_.exception = std::move(exception);
  }

  RunThreadsOutcome Take() {
    MutexLock lock(&mu_);
    return std::move(outcome_);
  }

 private:
  Mutex mu_;
  RunThreadsOutcome outcome_ ABSL_GUARDED_BY(mu_);
};

// Calls `body`, and returns its status. If `body` throws, stores the exception in `exception` and returns it as an
// error.
absl::Status CallBody(const Body& body, Runtime& runtime, std::exception_ptr* exception) {
  try {
    return body(runtime);
  } catch (const std::exception& error) {
    *exception = std::current_exception();
    return absl::AbortedError(absl::StrCat("its body threw: ", error.what()));
  } catch (...) {
    *exception = std::current_exception();
    return absl::AbortedError("its body threw something that is no std::exception");
  }
}

void RunRank(const Body& body, Runtime& runtime, FirstFailure* failure) {
  std::exception_ptr exception;
  const absl::Status status = CallBody(body, runtime, &exception);
  if (!status.ok()) {
    const absl::Status named(status.code(), absl::StrCat("rank ", runtime.topology().rank, ": ", status.message()));
    failure->Add(named, std::move(exception));
    runtime.Abandon(status);
  }
  failure->Add(runtime.Shutdown());
}

std::vector<std::unique_ptr<Runtime>> CreateRuntimes(const RunThreadsOptions& options) {
  const auto world = InProcessWorld::Create({.size = options.size, .hostname = options.hostname});
  std::vector<std::unique_ptr<Runtime>> runtimes;
  for (RankId rank = 0; rank < options.size; ++rank) {
    Transport transport = world->Connect(rank);
    transport.devices = options.devices;
    runtimes.push_back(Runtime::Create({.tunables = options.tunables, .timeline_bytes = options.timeline_bytes},
                                       {.rank = rank,
                                        .size = options.size,
                                        .local_rank = rank,
                                        .local_size = options.size,
                                        .hostname = options.hostname},
                                       std::move(transport)));
  }
  return runtimes;
}

// Creates the runtimes and starts one thread per rank.
std::vector<std::thread> StartRanks(const RunThreadsOptions& options, const Body& body, FirstFailure* failure,
                                    std::vector<std::unique_ptr<Runtime>>* runtimes) {
  std::vector<std::thread> threads;
  try {
    threads.reserve(static_cast<size_t>(options.size));
    *runtimes = CreateRuntimes(options);
    for (std::unique_ptr<Runtime>& runtime : *runtimes) {
      threads.emplace_back([&body, failure, &runtime] {
        RunRank(body, *runtime, failure);
        runtime.reset();  // here, at the same time on all ranks: their NCCL communicators end together
      });
    }
  } catch (const std::exception& error) {  // std::system_error, std::bad_alloc
    failure->Add(absl::ResourceExhaustedError(
        absl::StrCat("no thread for each of ", options.size, " ranks: ", error.what(), ": run fewer ranks")));
    // Destroys the runtimes that have no thread. To the other ranks, this looks like a failure, so they end, too.
    runtimes->erase(runtimes->begin() + static_cast<std::ptrdiff_t>(threads.size()), runtimes->end());
  }
  return threads;
}

}  // namespace

RunThreadsOutcome RunThreads(const RunThreadsOptions& options, const Body& body) {
  if (options.size < 1) {
    return {.status = absl::InvalidArgumentError(absl::StrCat("a job of ", options.size, " ranks: ask for 1 or more"))};
  }
  FirstFailure failure;
  std::vector<std::unique_ptr<Runtime>> runtimes;
  std::vector<std::thread> threads = StartRanks(options, body, &failure, &runtimes);
  for (std::thread& thread : threads) thread.join();
  return failure.Take();
}

}  // namespace ronda
