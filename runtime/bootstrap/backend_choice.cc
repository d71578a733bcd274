#include "runtime/bootstrap/backend_choice.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr int kShmScore = 300;
constexpr int kHierarchicalScore = 200;
constexpr int kMpiScore = 100;

BackendRating RateShm(const BackendSituation& situation) {
  if (situation.hosts == 1) {
    return {.backend = Backend::kShm, .score = kShmScore, .reason = "all ranks share a host's memory"};
  }
  return {.backend = Backend::kShm, .score = 0, .reason = absl::StrCat("the ranks are on ", situation.hosts, " hosts")};
}

BackendRating RateHierarchical(const BackendSituation& situation) {
  BackendRating rating{.backend = Backend::kHierarchical};
  if (situation.hosts == 1) {
    rating.reason = "all ranks are on one host";
  } else if (situation.most_ranks_on_a_host == 1) {
    rating.reason = "no two ranks share a host";
  } else if (!situation.mpi.ok()) {
    rating.reason = std::string(situation.mpi.message());
  } else {
    rating.score = kHierarchicalScore;
    rating.reason = absl::StrCat("shared memory on each of ", situation.hosts, " hosts, MPI across");
  }
  return rating;
}

BackendRating RateMpi(const BackendSituation& situation) {
  BackendRating rating{.backend = Backend::kMpi};
  if (!situation.mpi.ok()) {
    rating.reason = std::string(situation.mpi.message());
  } else {
    rating.score = kMpiScore;
    rating.reason = "MPI between all ranks";
  }
  return rating;
}

// Every backend is in this list.
constexpr BackendRating (*kBackends[])(const BackendSituation&) = {RateShm, RateHierarchical, RateMpi};

}  // namespace

absl::string_view Name(Backend backend) {
  constexpr absl::string_view kNames[] = {"shm", "mpi", "hierarchical"};
  return kNames[static_cast<int>(backend)];
}

std::vector<BackendRating> RateBackends(const BackendSituation& situation) {
  std::vector<BackendRating> ratings;
  for (const auto& rate : kBackends) ratings.push_back(rate(situation));
  absl::c_stable_sort(ratings, [](const BackendRating& a, const BackendRating& b) { return a.score > b.score; });
  return ratings;
}

absl::StatusOr<Backend> ChooseBackend(const std::vector<BackendRating>& ratings, absl::string_view wanted) {
  for (const BackendRating& rating : ratings) {
    if (!wanted.empty() && Name(rating.backend) != wanted) continue;
    if (rating.score > 0) return rating.backend;
    if (wanted.empty()) break;
    return absl::FailedPreconditionError(
        absl::StrCat("RONDA_BACKEND=\"", wanted, "\" cannot carry this job's data: ", rating.reason));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no backend can carry this job's data: ", ToString(ratings),
                   "; across hosts start the job with rondarun -H host1:4,host2:4, or with mpirun"));
}

std::string ToString(const std::vector<BackendRating>& ratings) {
  return absl::StrJoin(ratings, ", ", [](std::string* text, const BackendRating& rating) {
    absl::StrAppend(text, Name(rating.backend), " (",
                    rating.score > 0 ? absl::StrCat("score ", rating.score) : std::string("no"), ": ", rating.reason,
                    ")");
  });
}

}  // namespace ronda
