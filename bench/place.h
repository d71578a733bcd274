#ifndef RONDA_BENCH_PLACE_H_
#define RONDA_BENCH_PLACE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda::bench {

// Who started a rank.
enum class Launcher { kRondarun, kOpenMpi, kMpich };

constexpr const char* Name(Launcher launcher) {
  constexpr const char* kNames[] = {"rondarun", "Open MPI's mpirun", "MPICH's mpiexec"};
  return kNames[static_cast<int>(launcher)];
}

// A rank's place in the job that a launcher has started.
struct Place {
  int rank = 0;
  int size = 1;
  Launcher launcher = Launcher::kRondarun;
  std::string job_id;  // valid as Ronda's, the same on every rank, and on no other job's
  // Where the ranks meet: in the memory of their one host; or, on several hosts, and where RONDA_BACKEND wants more
  // than that, as ronda::init() brings them together.
  enum class Meeting { kInMemory, kAsInitDoes } meeting = Meeting::kInMemory;
};

// Reads an environment variable; nullopt if it is unset.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

// The environment of this process.
ReadVariable ProcessVariables();

// nullopt in a process that no launcher has started. `parent` is the parent process' id: MPI launchers are the parents
// of all ranks of a host, which makes up for their not naming the job.
// Errors: INVALID_ARGUMENT if the launcher's variables make no sense.
absl::StatusOr<std::optional<Place>> FindPlace(const ReadVariable& variable, int parent);

// Sets RONDA_RANK, RONDA_SIZE and RONDA_JOB_ID for ronda::init(), as rondarun would have, where ranks meet in memory;
// elsewhere the launcher's variables are all that it needs. `suffix` tells this job from others of the same ranks.
void DescribeJobToRonda(const Place& place, const std::string& suffix);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_PLACE_H_
