#include "runtime/bootstrap/backend_choice.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr absl::string_view kHierarchical = "hierarchical";

// Two levels come before one, and MPI, which knows more networks, before TCP.
constexpr int kShmScore = 300;
constexpr int kHierarchicalMpiScore = 200;
constexpr int kHierarchicalTcpScore = 150;
constexpr int kMpiScore = 100;
constexpr int kTcpScore = 50;

BackendRating RateShm(const BackendSituation& situation) {
  if (situation.hosts == 1) {
    return {.backend = Backend::kShm, .score = kShmScore, .reason = "all ranks share a host's memory"};
  }
  return {.backend = Backend::kShm, .score = 0, .reason = absl::StrCat("the ranks are on ", situation.hosts, " hosts")};
}

// With `carrier` between hosts, whose usability is `usable`.
BackendRating RateHierarchical(const BackendSituation& situation, const BackendRating& if_usable,
                               absl::string_view carrier, const absl::Status& usable) {
  BackendRating rating{.backend = if_usable.backend};
  if (situation.hosts == 1) {
    rating.reason = "all ranks are on one host";
  } else if (situation.most_ranks_on_a_host == 1) {
    rating.reason = "no two ranks share a host";
  } else if (!usable.ok()) {
    rating.reason = std::string(usable.message());
  } else {
    rating.score = if_usable.score;
    rating.reason = absl::StrCat("shared memory on each of ", situation.hosts, " hosts, ", carrier, " across");
  }
  return rating;
}

BackendRating RateHierarchicalMpi(const BackendSituation& situation) {
  return RateHierarchical(situation, {.backend = Backend::kHierarchicalMpi, .score = kHierarchicalMpiScore}, "MPI",
                          situation.mpi);
}

BackendRating RateHierarchicalTcp(const BackendSituation& situation) {
  return RateHierarchical(situation, {.backend = Backend::kHierarchicalTcp, .score = kHierarchicalTcpScore}, "TCP",
                          situation.tcp);
}

BackendRating RateMpi(const BackendSituation& situation) {
  if (!situation.mpi.ok()) return {.backend = Backend::kMpi, .reason = std::string(situation.mpi.message())};
  return {.backend = Backend::kMpi, .score = kMpiScore, .reason = "MPI between all ranks"};
}

BackendRating RateTcp(const BackendSituation& situation) {
  if (!situation.tcp.ok()) return {.backend = Backend::kTcp, .reason = std::string(situation.tcp.message())};
  return {.backend = Backend::kTcp, .score = kTcpScore, .reason = "TCP between all ranks"};
}

// Every backend is in this list.
constexpr BackendRating (*kBackends[])(const BackendSituation&) = {RateShm, RateHierarchicalMpi, RateHierarchicalTcp,
                                                                   RateMpi, RateTcp};

bool IsMeant(Backend backend, absl::string_view wanted) {
  return wanted.empty() || Name(backend) == wanted || (wanted == kHierarchical && IsHierarchical(backend));
}

}  // namespace

bool IsHierarchical(Backend backend) {
  return backend == Backend::kHierarchicalMpi || backend == Backend::kHierarchicalTcp;
}

bool UsesMpi(Backend backend) { return backend == Backend::kHierarchicalMpi || backend == Backend::kMpi; }

bool UsesTcp(Backend backend) { return backend == Backend::kHierarchicalTcp || backend == Backend::kTcp; }

absl::string_view Name(Backend backend) {
  constexpr absl::string_view kNames[] = {"shm", "hierarchical-mpi", "hierarchical-tcp", "mpi", "tcp"};
  return kNames[static_cast<int>(backend)];
}

std::vector<BackendRating> RateBackends(const BackendSituation& situation) {
  std::vector<BackendRating> ratings;
  for (const auto& rate : kBackends) ratings.push_back(rate(situation));
  absl::c_stable_sort(ratings, [](const BackendRating& a, const BackendRating& b) { return a.score > b.score; });
  return ratings;
}

absl::StatusOr<Backend> ChooseBackend(const std::vector<BackendRating>& ratings, absl::string_view wanted) {
  std::vector<absl::string_view> reasons;
  for (const BackendRating& rating : ratings) {
    if (!IsMeant(rating.backend, wanted)) continue;
    if (rating.score > 0) return rating.backend;
    if (!absl::c_linear_search(reasons, rating.reason)) reasons.push_back(rating.reason);
  }
  if (!wanted.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("RONDA_BACKEND=\"", wanted, "\" cannot carry this job's data: ", absl::StrJoin(reasons, "; ")));
  }
  return absl::FailedPreconditionError(absl::StrCat("no backend can carry this job's data: ", ToString(ratings)));
}

std::string ToString(const std::vector<BackendRating>& ratings) {
  return absl::StrJoin(ratings, ", ", [](std::string* text, const BackendRating& rating) {
    absl::StrAppend(text, Name(rating.backend), " (",
                    rating.score > 0 ? absl::StrCat("score ", rating.score) : std::string("no"), ": ", rating.reason,
                    ")");
  });
}

}  // namespace ronda
