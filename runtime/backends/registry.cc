// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/registry.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/backends/device_backends.h"
#include "runtime/backends/host_backends.h"

namespace ronda {
namespace {

// Two levels come before one level. MPI, which supports more networks, comes before TCP.
constexpr HostBackend kHostBackends[] = {
    {.name = "shm",
     .help = "ranks on one host, through shared memory",
     .score = 300,
     .rate = RateShm,
     .connect = ConnectShm},
    {.name = "hierarchical-mpi",
     .family = "hierarchical",
     .help = "shared memory on each host, MPI between hosts",
     .score = 200,
     .carrier = &kMpiCarrier,
     .rate = RateTwoLevels,
     .connect = ConnectTwoLevels},
    {.name = "hierarchical-tcp",
     .family = "hierarchical",
     .help = "shared memory on each host, TCP between hosts",
     .score = 150,
     .carrier = &kTcpCarrier,
     .rate = RateTwoLevels,
     .connect = ConnectTwoLevels},
    {.name = "mpi",
     .help = "ranks on several hosts, under Open MPI's or MPICH's mpirun",
     .score = 100,
     .carrier = &kMpiCarrier,
     .rate = RateMessages,
     .connect = ConnectMessages},
    {.name = "tcp",
     .help = "ranks on several hosts, however they are started",
     .score = 50,
     .carrier = &kTcpCarrier,
     .rate = RateMessages,
     .connect = ConnectMessages},
};

constexpr DeviceBackend kDeviceBackends[] = {
    {.name = "nccl",
     .help = "tensors in the memory of GPUs, one a rank",
     .score = 200,
     .rate = RateNccl,
     .connect = ConnectNccl},
    {.name = "hierarchical-staged",
     .help = "NCCL on each host, the hosts' backend between hosts",
     .score = 150,
     .rate = RateHierarchicalStaged,
     .connect = ConnectHierarchicalStaged},
    {.name = "staged",
     .help = "tensors in the memory of GPUs, through the host and one of the others",
     .score = 100,
     .rate = RateStaged,
     .connect = ConnectStaged},
    // NCCL itself knows which ranks share a host: two levels over it are for users who have measured a gain.
    {.name = "hierarchical-nccl",
     .help = "NCCL on each host, and NCCL between hosts",
     .score = 50,
     .rate = RateHierarchicalNccl,
     .connect = ConnectHierarchicalNccl},
};

// The variable with which a user chooses, and what is carried, for messages.
struct Choice {
  absl::string_view variable;
  absl::string_view cargo;
};
constexpr Choice kHostChoice = {.variable = "RONDA_BACKEND", .cargo = "data"};
constexpr Choice kDeviceChoice = {.variable = "RONDA_DEVICE_BACKEND", .cargo = "tensors"};

BackendRating RatingOf(absl::string_view name, absl::string_view family, int score,
                       const absl::StatusOr<std::string>& reason) {
  if (reason.ok()) return {.name = name, .family = family, .score = score, .reason = *reason};
  return {.name = name, .family = family, .score = 0, .reason = std::string(reason.status().message())};
}

void SortBestFirst(std::vector<BackendRating>* ratings) {
  absl::c_stable_sort(*ratings, [](const BackendRating& a, const BackendRating& b) { return a.score > b.score; });
}

bool IsMeant(absl::string_view name, absl::string_view family, absl::string_view value) {
  return value.empty() || name == value || family == value;
}

absl::StatusOr<absl::string_view> Choose(absl::Span<const BackendRating> ratings, absl::string_view wanted,
                                         const Choice& choice) {
  std::vector<absl::string_view> reasons;
  for (const BackendRating& rating : ratings) {
    if (!IsMeant(rating.name, rating.family, wanted)) continue;
    if (rating.score > 0) return rating.name;
    if (!absl::c_linear_search(reasons, rating.reason)) reasons.push_back(rating.reason);
  }
  if (wanted.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no backend can carry this job's ", choice.cargo, ": ", ToString(ratings)));
  }
  const std::string wish = absl::StrCat(choice.variable, "=\"", wanted, "\"");
  if (reasons.empty()) return absl::FailedPreconditionError(absl::StrCat("there is no ", wish));
  return absl::FailedPreconditionError(
      absl::StrCat(wish, " cannot carry this job's ", choice.cargo, ": ", absl::StrJoin(reasons, "; ")));
}

}  // namespace

absl::Span<const HostBackend> HostBackends() { return kHostBackends; }
absl::Span<const DeviceBackend> AllDeviceBackends() { return kDeviceBackends; }

const HostBackend* FindHostBackend(absl::string_view name) {
  const auto* const found = absl::c_find_if(kHostBackends, [&](const HostBackend& one) { return one.name == name; });
  return found == std::end(kHostBackends) ? nullptr : found;
}

const DeviceBackend* FindDeviceBackend(absl::string_view name) {
  const auto* const found =
      absl::c_find_if(kDeviceBackends, [&](const DeviceBackend& one) { return one.name == name; });
  return found == std::end(kDeviceBackends) ? nullptr : found;
}

std::vector<absl::string_view> HostBackendNames() {
  std::vector<absl::string_view> names;
  for (const HostBackend& backend : kHostBackends) {
    if (!backend.family.empty() && !absl::c_linear_search(names, backend.family)) names.push_back(backend.family);
    names.push_back(backend.name);
  }
  return names;
}

std::vector<absl::string_view> DeviceBackendNames() {
  std::vector<absl::string_view> names;
  for (const DeviceBackend& backend : kDeviceBackends) names.push_back(backend.name);
  return names;
}

std::vector<const HostBackend*> HostBackendsMeantBy(absl::string_view value) {
  std::vector<const HostBackend*> meant;
  for (const HostBackend& backend : kHostBackends) {
    if (IsMeant(backend.name, backend.family, value)) meant.push_back(&backend);
  }
  return meant;
}

bool MayNeed(absl::string_view value, Carrier::Needs needs) {
  return absl::c_any_of(HostBackendsMeantBy(value), [&](const HostBackend* backend) {
    return backend->carrier != nullptr && backend->carrier->needs == needs;
  });
}

bool AlwaysNeeds(absl::string_view value, Carrier::Needs needs) {
  const std::vector<const HostBackend*> meant = HostBackendsMeantBy(value);
  return !meant.empty() && absl::c_all_of(meant, [&](const HostBackend* backend) {
    return backend->carrier != nullptr && backend->carrier->needs == needs;
  });
}

std::vector<BackendRating> RateHostBackends(const HostSituation& situation) {
  std::vector<BackendRating> ratings;
  for (const HostBackend& backend : kHostBackends) {
    ratings.push_back(RatingOf(backend.name, backend.family, backend.score, backend.rate(backend, situation)));
  }
  SortBestFirst(&ratings);
  return ratings;
}

std::vector<BackendRating> RateDeviceBackends(const DeviceSituation& situation) {
  std::vector<BackendRating> ratings;
  for (const DeviceBackend& backend : kDeviceBackends) {
    ratings.push_back(RatingOf(backend.name, "", backend.score, backend.rate(situation)));
  }
  SortBestFirst(&ratings);
  return ratings;
}

absl::StatusOr<absl::string_view> ChooseHostBackend(absl::Span<const BackendRating> ratings, absl::string_view wanted) {
  return Choose(ratings, wanted, kHostChoice);
}

absl::StatusOr<absl::string_view> ChooseDeviceBackend(absl::Span<const BackendRating> ratings,
                                                      absl::string_view wanted) {
  return Choose(ratings, wanted, kDeviceChoice);
}

std::string ToString(absl::Span<const BackendRating> ratings) {
  return absl::StrJoin(ratings, ", ", [](std::string* text, const BackendRating& rating) {
    const std::string worth = rating.score > 0 ? absl::StrCat("score ", rating.score) : "no";
    absl::StrAppend(text, rating.name, " (", worth, ": ", rating.reason, ")");
  });
}

}  // namespace ronda
