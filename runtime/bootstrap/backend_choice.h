// Which backend carries the data of a job.
#ifndef RONDA_RUNTIME_BOOTSTRAP_BACKEND_CHOICE_H_
#define RONDA_RUNTIME_BOOTSTRAP_BACKEND_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// The hierarchical ones have shared memory on each host and messages across; the last two, messages between all ranks.
enum class Backend { kShm, kHierarchicalMpi, kHierarchicalTcp, kMpi, kTcp };

// Whether tensors go over shared memory on each host and over messages across.
bool IsHierarchical(Backend backend);
bool UsesMpi(Backend backend);
bool UsesTcp(Backend backend);

// "shm": its value in RONDA_BACKEND.
absl::string_view Name(Backend backend);

// What the choice depends on.
struct BackendSituation {
  int hosts = 1;
  int most_ranks_on_a_host = 1;
  absl::Status mpi;  // OK if the ranks can use it, else why not
  absl::Status tcp;  // the same for messages over TCP
};

// What a backend would be worth to a job.
struct BackendRating {
  Backend backend = Backend::kShm;
  int score = 0;  // the highest wins; 0: it cannot carry the job's data
  std::string reason;
};

// Of all backends, best first.
std::vector<BackendRating> RateBackends(const BackendSituation& situation);

// The best one, or the one that is `wanted` by name, if that is not empty; "hierarchical" is the better of the two.
// Errors: FAILED_PRECONDITION that says why the backend that is wanted, or each one, cannot.
absl::StatusOr<Backend> ChooseBackend(const std::vector<BackendRating>& ratings, absl::string_view wanted);

// "hierarchical-mpi (score 200: ...), mpi (score 100: ...), shm (no: the ranks are on 2 hosts)"
std::string ToString(const std::vector<BackendRating>& ratings);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_BACKEND_CHOICE_H_
