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
  size_t timeline_bytes = size_t{256} << 20;  // how large the file of a rank's timeline may become
  std::string hostname = "localhost";         // how messages call this machine
  std::shared_ptr<DeviceSupport> devices;     // of all ranks; nullptr: none
};

// How a job of threads ended.
struct RunThreadsOutcome {
  absl::Status status;           // of the first rank to fail, which names it; OK if none has
  std::exception_ptr exception;  // the first that a body threw; null if none has
};

// A job whose ranks are threads of this process: runs `body` on one new thread a rank, each with a Runtime of its own,
// and returns when all have ended and shut down. A body that returns an error, or throws, fails the job, so that the
// others do not wait for its rank: their operations return that error.
//
//   RunThreadsOutcome outcome = RunThreads({.size = 4}, [](Runtime& runtime) { return Train(runtime); });
//
// Errors: INVALID_ARGUMENT (no ranks), RESOURCE_EXHAUSTED (the system has no more threads to give), the bodies', the
// job's failure.
RunThreadsOutcome RunThreads(const RunThreadsOptions& options, const std::function<absl::Status(Runtime&)>& body);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RUN_THREADS_H_
