// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/device_hierarchy.h"

#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/side_by_side.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "runtime/collectives/hierarchical/level_ops.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "runtime/collectives/staged/staged_communicator.h"

namespace ronda {
namespace {

// A rank's NCCL communicators. If one fails, all must be aborted, because they wait for each other. Does not own them.
class NcclLevels {
 public:
  void Add(NcclCommunicator* communicator) { all_.push_back(communicator); }

  absl::Status failure() const {
    for (const NcclCommunicator* communicator : all_) RONDA_RETURN_IF_ERROR(communicator->failure());
    return absl::OkStatus();
  }

  // Aborts all communicators concurrently, because aborting one may wait for a kernel of another.
  void Abort() const {
    std::vector<std::function<void()>> aborts;
    for (NcclCommunicator* communicator : all_) aborts.emplace_back([communicator] { communicator->Abort(); });
    SideBySide(std::move(aborts)).Run();
  }

 private:
  std::vector<NcclCommunicator*> all_;
};

// A HierarchicalCommunicator whose destructor, after a failure, first aborts the device's work in progress, which may
// never finish by itself, and only then frees memory. NcclCommunicator does the same.
class DeviceHierarchy final : public HierarchicalCommunicator {
 public:
  DeviceHierarchy(Options options, NcclLevels nccl, std::function<absl::Status()> job_failure)
      : HierarchicalCommunicator(std::move(options)), nccl_(std::move(nccl)), job_failure_(std::move(job_failure)) {}

  ~DeviceHierarchy() override {
    if (!nccl_.failure().ok() || !job_failure_().ok()) nccl_.Abort();
  }

 private:
  const NcclLevels nccl_;
  const std::function<absl::Status()> job_failure_;
};

// Connects the two levels, and creates their communicators.
class Connecting {
 public:
  explicit Connecting(const DeviceHierarchyOptions& options) : options_(options), request_(options.request) {}

  absl::StatusOr<DeviceTransport> Run() {
    HierarchicalCommunicator::Options levels = {.rank = request_.rank,
                                                .hosts = request_.levels->hosts,
                                                .across_driver = AcrossDriver(),
                                                .meeting = request_.host,
                                                .chunk_bytes = options_.chunk_bytes};
    RONDA_ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceLevelOps> ops,
        DeviceLevelOps::Create({.device = request_.device,
                                .stream = request_.stream,
                                .marks = request_.marks,
                                .across = IsNcclAcross() ? DeviceLevelOps::Options::AcrossStream::kSame
                                                         : DeviceLevelOps::Options::AcrossStream::kOwn}));
    const HostMap& hosts = request_.levels->hosts;
    const HostPosition self = PositionOf(hosts, request_.rank);
    RONDA_ASSIGN_OR_RETURN(levels.local,
                           Nccl(request_.levels->local, hosts.hosts[static_cast<size_t>(self.host)], Lane()));
    if (request_.levels->across != nullptr) {
      RONDA_ASSIGN_OR_RETURN(levels.across, BetweenHosts(request_.levels->across, RanksAt(hosts, self.local_rank),
                                                         {ops->across_stream()}));
    }
    RONDA_ASSIGN_OR_RETURN(levels.flat, BetweenHosts(request_.host, {}, Lane()));
    levels.ops = std::move(ops);
    return DeviceTransport{
        .communicator = std::make_unique<DeviceHierarchy>(std::move(levels), nccl_, request_.job_failure),
        .failure = [nccl = nccl_] { return nccl.failure(); },
        .abort = [nccl = nccl_] { nccl.Abort(); },
        .setup_deadline = 2 * NcclCommunicator::Options().init_deadline};  // for both levels, one after the other
  }

 private:
  // A stream, and the marks of its work, which may be nullptr.
  struct Stream {
    StreamHandle handle = nullptr;
    StreamMarks* marks = nullptr;
  };
  Stream Lane() const { return {.handle = request_.stream, .marks = request_.marks}; }

  bool IsNcclAcross() const { return options_.across == DeviceHierarchyOptions::Across::kNccl; }
  TwoLevelReduce::Levels::Driver AcrossDriver() const {
    using Driver = TwoLevelReduce::Levels::Driver;
    return IsNcclAcross() ? Driver::kCaller : Driver::kOwnThread;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> BetweenHosts(Communicator* host, std::vector<RankId> ranks,
                                                             const Stream& stream) {
    return IsNcclAcross() ? Nccl(host, std::move(ranks), stream) : Staged(host, stream);
  }

  // Creates an NCCL communicator between the ranks of `host`. `ranks` are their ranks in the job; empty: `host` has all
  // ranks of the job.
  absl::StatusOr<std::unique_ptr<Communicator>> Nccl(Communicator* host, std::vector<RankId> ranks,
                                                     const Stream& stream) {
    RONDA_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                           NcclCommunicator::Create({.rank = host->rank(),
                                                     .size = host->size(),
                                                     .job_ranks = std::move(ranks),
                                                     .device = request_.device,
                                                     .stream = stream.handle,
                                                     .library = options_.library,
                                                     .host = host,
                                                     .marks = stream.marks,
                                                     .order = options_.order,
                                                     .windows = options_.windows,
                                                     .job_failure = request_.job_failure}));
    nccl_.Add(communicator.get());
    return communicator;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Staged(Communicator* host, const Stream& stream) {
    return StagedCommunicator::Create({.device = request_.device,
                                       .stream = stream.handle,
                                       .host = host,
                                       .marks = stream.marks,
                                       .job_failure = request_.job_failure});
  }

  const DeviceHierarchyOptions& options_;
  const DeviceSupport::Request& request_;
  NcclLevels nccl_;
};

}  // namespace

absl::StatusOr<DeviceTransport> ConnectDeviceHierarchy(const DeviceHierarchyOptions& options) {
  return Connecting(options).Run();
}

}  // namespace ronda
