// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_CONFIG_H_
#define RONDA_RUNTIME_BASE_CONFIG_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/logging.h"

namespace ronda {

inline constexpr size_t kMaxJobIdLength = 64;

// Returns whether `id` is a valid job id: 1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'. Job ids
// come from the environment or the network, and become part of file names under /dev/shm.
inline bool IsValidJobId(absl::string_view id) {
  if (id.empty() || id.size() > kMaxJobIdLength || id.front() == '.') return false;
  return std::all_of(id.begin(), id.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

// The largest epoch number. An elastic job starts a new epoch each time its ranks change.
inline constexpr int64_t kMaxEpoch = 999'999'999;

// Returns the name of a job in an epoch: "<job id>" in epoch 0, later "<job id>@<epoch>". A job id cannot contain '@'.
inline std::string NameInEpoch(absl::string_view job_id, int64_t epoch) {
  if (epoch == 0 || job_id.empty()) return std::string(job_id);
  return absl::StrCat(job_id, "@", epoch);
}

// The job id and the epoch in a name that NameInEpoch() returned. SplitName() treats any other name as a job id in
// epoch 0.
struct JobInEpoch {
  std::string job_id;
  int64_t epoch = 0;
};
inline JobInEpoch SplitName(absl::string_view name) {
  const absl::string_view job_id = name.substr(0, name.rfind('@'));
  int64_t epoch = 0;
  const bool has_epoch = job_id.size() < name.size() && absl::SimpleAtoi(name.substr(job_id.size() + 1), &epoch) &&
                         epoch > 0 && NameInEpoch(job_id, epoch) == name;
  return has_epoch ? JobInEpoch{.job_id = std::string(job_id), .epoch = epoch}
                   : JobInEpoch{.job_id = std::string(name)};
}

// Whether and how a job uses MPI.
struct MpiEnvironment {
  // The MPI implementation whose launcher started this process. Its MPI_Init finds the other ranks.
  enum class Launcher { kNone, kOpenMpi, kMpich } launcher = Launcher::kNone;
  // kAutomatic: the job uses MPI if its ranks are on several hosts, or cannot find each other in any other way.
  enum class Use { kAutomatic, kNever, kAlways } use = Use::kAutomatic;
  std::string plugin;  // the plugin's path; empty: Ronda searches for it

  bool IsUsable() const { return use != Use::kNever && (launcher != Launcher::kNone || !plugin.empty()); }
};

// What the environment says about the ranks of this job, and about how they find each other.
struct JobEnvironment {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;
  std::optional<int> local_size;
  std::optional<int> cross_rank;
  std::optional<int> cross_size;
  std::string job_id;          // equal on all ranks, unique to the job: names the shared memory
  int64_t epoch = 0;           // ranks of different epochs of a job never meet; up to kMaxEpoch
  std::string job_secret;      // from rondarun or the user; proves membership on control connections
  std::string master_address;  // where rank 0 listens; empty: the ranks find each other by job id or MPI
  int master_port = 0;
  bool is_pod = false;  // a pod of Kubernetes, which gets its name some time after its start
  MpiEnvironment mpi;
  std::string source;  // "rondarun", "torchrun-style variables", "single process", for messages

  // Returns whether the launcher has started all ranks on one host. Also returns true if the launcher gives no
  // information about hosts.
  bool IsOnOneHost() const { return local_size.value_or(size) == size && cross_size.value_or(1) == 1; }
};

// Settings of the runtime. Every rank uses rank 0's values, except for start_timeout.
struct Tunables {
  absl::Duration cycle_time = absl::ZeroDuration();  // longest time a tensor waits for others, to be fused with them
  size_t fusion_threshold = size_t{64} << 20;        // bytes of a bucket; 0: no fusion
  size_t min_bucket_bytes = size_t{1} << 20;  // a locked schedule's bucket of this size waits for no more tensors
  size_t chunk_bytes = 0;                     // size of collectives' chunks; 0: the backend chooses
  size_t cache_capacity = 1024;               // entries of the response cache; 0: no cache
  absl::Duration stall_warning = absl::Seconds(60);   // a wait for another rank is reported after this time
  absl::Duration stall_deadline = absl::Minutes(10);  // a wait for another rank fails after it; infinite: never
  absl::Duration start_timeout = absl::Seconds(30);   // longest wait for the other ranks at init
  // After this many consecutive steps with the same tensors, the ranks lock the schedule, and stop negotiating until
  // some rank deviates from it. 0: the ranks negotiate every step.
  int lock_after = 4;
  // Whether rank 0 searches for settings that make the job faster (docs/autotune.md). The search starts from the
  // settings above.
  enum class Autotune { kOff, kOn } autotune = Autotune::kOff;
  std::string autotune_log;            // the file for the measurements of rank 0; empty: none
  int autotune_steps_per_sample = 10;  // steps measured under the same settings
  std::string negotiation_log;         // the file in which rank 0 records the reports of ranks; empty: none
};

// Settings for the connections between ranks on different hosts.
struct NetworkSettings {
  std::string plugin;                                    // the path of libronda_hosts.so; empty: the folder of plugins
  std::vector<std::string> interfaces;                   // listens on the first that exists; empty: any usable
  absl::Duration heartbeat = absl::Seconds(1);           // the time between signs of life
  absl::Duration heartbeat_timeout = absl::Seconds(10);  // a rank silent for so long is lost; infinite: never
  // Whether control messages travel over TCP or over MPI. The value is the same on all ranks.
  enum class Control { kTcp, kMpi } control = Control::kTcp;
};

// Settings for tensors in the memory of GPUs.
struct DeviceSettings {
  std::string cuda_plugin;   // the path of libronda_cuda.so; empty: the folder of plugins
  std::string nccl_library;  // the path of NCCL; empty: where the loader finds it
  std::string cuda_home;     // the CUDA toolkit's folder, where NCCL may be too; empty: not known
  std::string python;        // the folder of the Python environment, where NCCL may be too; empty: none
  std::string nccl_host;     // the name that NCCL gives this host; empty: its own
  std::string
      backend;  // carries tensors between ranks, see AllDeviceBackends; empty: the best possible one. Rank 0's applies
  // If the job fails, streams that wait for its operations stay blocked, and the process exits after this time.
  // Infinite: the process does not exit. nullopt: the streams are not blocked, and continue.
  std::optional<absl::Duration> failure_grace = absl::Seconds(10);
  bool reproducible = false;       // floating-point numbers are added in the order of the ranks. Rank 0's applies
  bool nccl_windows = false;       // Ronda's buffers become symmetric windows of NCCL. Rank 0's applies
  int64_t lane_memory_mb = 0;      // MiB that each lane registers with NCCL, for its tensors. Rank 0's applies
  bool reduce_in_place = false;    // gradients that are adjacent on all ranks are not packed. Rank 0's applies
  int64_t gradient_memory_mb = 0;  // MiB that all ranks register with NCCL, for gradients. Rank 0's applies
};

// Settings for the timeline, which is a trace of the operations on tensors (docs/timeline.md).
struct TimelineSettings {
  std::string path;                       // each rank inserts its number; empty: no timeline at the start
  size_t most_bytes = size_t{256} << 20;  // maximum size of a file
};

struct Config {
  JobEnvironment job;
  Tunables tunables;
  NetworkSettings network;
  DeviceSettings devices;
  TimelineSettings timeline;
  std::string backend;  // carries the data between ranks, a value of HostBackendNames; empty: the best possible
  LogLevel log_level = LogLevel::kWarning;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_CONFIG_H_
