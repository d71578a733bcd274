// SPDX-License-Identifier: Apache-2.0

// The backends that carry tensors between ranks. Each is an entry in a list in host_backends.cc or device_backends.cc.
// These lists determine the values of RONDA_BACKEND and RONDA_DEVICE_BACKEND, their error and help texts, and the
// choice by score.
#ifndef RONDA_RUNTIME_BACKENDS_REGISTRY_H_
#define RONDA_RUNTIME_BACKENDS_REGISTRY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/transport.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

struct DeviceSituation;  // device_backends.h
struct FoundJob;         // host_backends.h

// A group of ranks that send messages to each other, with a tag that is unique in the job.
struct MessageGroup {
  int tag = 0;
  std::vector<RankId> ranks;  // in the same order on all of them
};

// A way to exchange messages between ranks, such as MPI or TCP. Several backends can use the same carrier.
struct Carrier {
  absl::string_view name;   // also the name of the flat backend that uses it: "mpi"
  absl::string_view title;  // in sentences: "MPI"
  // What the carrier needs to connect. kMpi: that MPI's launcher started the ranks. kAddress: that the ranks know rank
  // 0's address.
  enum class Needs { kMpi, kAddress } needs = Needs::kAddress;

  // Returns OK if the ranks of `job` can use this carrier, otherwise an error with the reason.
  absl::Status (*check)(const FoundJob& job);

  // Connects this rank to the other ranks of each group. While TCP waits for them, it polls `job_failure`, and gives up
  // if the job has failed. MPI blocks until they connect.
  absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> (*connect)(
      const FoundJob& job, const std::vector<MessageGroup>& groups, const std::function<absl::Status()>& job_failure);
};

// The facts that decide between the backends for host memory.
struct HostSituation {
  int hosts = 1;
  int most_ranks_on_a_host = 1;
  std::map<absl::string_view, absl::Status> carriers;  // the result of Carrier::check for each name; absent: OK
};

// A backend for tensors in the memory of hosts.
struct HostBackend {
  absl::string_view name;            // its value in RONDA_BACKEND
  absl::string_view family;          // the value that means the best backend of the family; empty: none
  absl::string_view help;            // "ranks on one host, through shared memory"
  int score = 0;                     // above 0; the suitable backend with the highest score wins
  const Carrier* carrier = nullptr;  // nullptr: everything goes through shared memory

  // Returns why this backend is suitable, or an error that says why it is not.
  absl::StatusOr<std::string> (*rate)(const HostBackend& backend, const HostSituation& situation);
  absl::StatusOr<Transport> (*connect)(const HostBackend& backend, FoundJob& job);
};

using NcclLoader = std::function<absl::StatusOr<std::shared_ptr<const NcclLibrary>>()>;

// A backend for tensors in the memory of GPUs.
struct DeviceBackend {
  absl::string_view name;  // its value in RONDA_DEVICE_BACKEND
  absl::string_view help;
  int score = 0;

  // As in HostBackend.
  absl::StatusOr<std::string> (*rate)(const DeviceSituation& situation);
  absl::StatusOr<DeviceTransport> (*connect)(const DeviceSupport::Request& request, const NcclLoader& nccl);
  // nullptr: the backend does not support direct calls.
  absl::StatusOr<std::unique_ptr<DirectTransport>> (*connect_directly)(const DeviceSupport::DirectRequest& request,
                                                                       const NcclLoader& nccl) = nullptr;
};

absl::Span<const HostBackend> HostBackends();         // host_backends.cc
absl::Span<const DeviceBackend> AllDeviceBackends();  // device_backends.cc

// Return nullptr if no backend has this name.
const HostBackend* FindHostBackend(absl::string_view name);
const DeviceBackend* FindDeviceBackend(absl::string_view name);

// Return the valid values of RONDA_BACKEND and RONDA_DEVICE_BACKEND.
std::vector<absl::string_view> HostBackendNames();
std::vector<absl::string_view> DeviceBackendNames();

// Returns the backends that RONDA_BACKEND=`value` can mean: one backend, a family, or all backends if `value` is empty.
// Returns none if there is no such backend or family.
std::vector<const HostBackend*> HostBackendsMeantBy(absl::string_view value);

// Of the backends that RONDA_BACKEND=`value` can mean, MayNeed() returns whether any has a carrier with these needs,
// and AlwaysNeeds() whether all do.
bool MayNeed(absl::string_view value, Carrier::Needs needs);
bool AlwaysNeeds(absl::string_view value, Carrier::Needs needs);

// A backend's suitability for a job.
struct BackendRating {
  absl::string_view name;
  absl::string_view family;
  int score = 0;  // 0: it cannot carry the job's tensors
  std::string reason;
};

// Return the ratings of all backends, best first.
std::vector<BackendRating> RateHostBackends(const HostSituation& situation);
std::vector<BackendRating> RateDeviceBackends(const DeviceSituation& situation);

// Returns the name of the best backend. If `wanted` is not empty, considers only the backends with this name or family.
// Errors: FAILED_PRECONDITION that says why the wanted backend, or each backend, cannot carry the job's tensors.
absl::StatusOr<absl::string_view> ChooseHostBackend(absl::Span<const BackendRating> ratings, absl::string_view wanted);
absl::StatusOr<absl::string_view> ChooseDeviceBackend(absl::Span<const BackendRating> ratings,
                                                      absl::string_view wanted);

// Returns a text such as "hierarchical-mpi (score 200: ...), mpi (score 100: ...), shm (no: the ranks are on 2 hosts)".
std::string ToString(absl::Span<const BackendRating> ratings);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_REGISTRY_H_
