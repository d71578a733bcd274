#ifndef RONDA_RUNTIME_LAUNCH_SHARED_MEMORY_LEFTOVERS_H_
#define RONDA_RUNTIME_LAUNCH_SHARED_MEMORY_LEFTOVERS_H_

#include <string>

namespace ronda {

// Removes what ranks of the job left in /dev/shm because they died before they could: every ronda-<job id>*. Of a job
// whose id is unknown (empty), nothing is.
// REQUIRES: `job_id` is as long as all others, so that it is no prefix of another job's.
void RemoveSharedMemoryLeftovers(const std::string& job_id);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SHARED_MEMORY_LEFTOVERS_H_
