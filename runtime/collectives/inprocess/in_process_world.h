#ifndef RONDA_RUNTIME_COLLECTIVES_INPROCESS_IN_PROCESS_WORLD_H_
#define RONDA_RUNTIME_COLLECTIVES_INPROCESS_IN_PROCESS_WORLD_H_

#include <memory>

#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/inprocess/in_process_job.h"

namespace ronda {

// A job whose ranks are threads of this process.
//
//   auto world = InProcessWorld::Create({.size = 4});
//   std::thread rank2([transport = world->Connect(2)] { ... });
//
// Thread-safe. A transport may outlive the world it came from.
class InProcessWorld {
 public:
  using Options = InProcessJob::Options;

  // REQUIRES: options.size > 0.
  static std::unique_ptr<InProcessWorld> Create(Options options);

  int size() const { return job_->size(); }

  // The transport of `rank`; to be called once for each rank.
  // REQUIRES: 0 <= rank < size().
  Transport Connect(RankId rank);

 private:
  explicit InProcessWorld(Options options);

  const std::shared_ptr<InProcessJob> job_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_INPROCESS_IN_PROCESS_WORLD_H_
