// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_RUN_THREADS_H_
#define RONDA_RUNTIME_ENGINE_RUN_THREADS_H_

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/config.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/runtime.h"

namespace ronda {

struct RunThreadsOptions {
  int size = 1;  // ranks
  Tunables tunables;
  size_t timeline_bytes = size_t{256} << 20;  // maximum size of the file of a rank's timeline
  std::string hostname = "localhost";         // the name of this machine in messages
  std::shared_ptr<DeviceSupport> devices;     // of all ranks; nullptr: none
};

// How a job of threads ended.
struct RunThreadsOutcome {
  absl::Status status;           // of the first rank to fail, and names it; OK if none failed
  std::exception_ptr exception;  // the first that a body threw; null if none did
};

// Runs a job whose ranks are threads of this process. Starts one thread per rank, each with its own Runtime. Runs
// `body` on each thread, and returns when all ranks have shut down. If a body returns an error or throws, the job
// fails. The operations of the other ranks then return this error instead of waiting.
//
//   RunThreadsOutcome outcome = RunThreads({.size = 4}, [](Runtime& runtime) { return Train(runtime); });
//
// Errors: INVALID_ARGUMENT if the job has no ranks; RESOURCE_EXHAUSTED if the system cannot create a thread; the error
// of a body; the job's failure.
RunThreadsOutcome RunThreads(const RunThreadsOptions& options, const std::function<absl::Status(Runtime&)>& body);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RUN_THREADS_H_
