#include "runtime/collectives/nccl/nccl_communicator.h"

#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/nccl/nccl_exchanges.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_reduce.h"

namespace ronda {
namespace {

constexpr absl::Duration kNap = absl::Microseconds(100);

class NcclCommunicatorImpl : public NcclCommunicator {
 public:
  explicit NcclCommunicatorImpl(const Options& options)
      : options_(options),
        groups_({.rank = options.rank,
                 .size = options.size,
                 .job_ranks = options.job_ranks,
                 .device = options.device,
                 .library = options.library,
                 .host = options.host,
                 .init_deadline = options.init_deadline,
                 .job_failure = options.job_failure}),
        exchanges_({.device = options.device.get(), .stream = options.stream, .groups = &groups_}) {}

  ~NcclCommunicatorImpl() override {
    // What is freed now must not be in use any more.
    if (AwaitStream().ok()) return;
    groups_.Abort();
  }

  absl::Status Begin() {
    RONDA_ASSIGN_OR_RETURN(reduce_, NcclReduce::Create({.device = options_.device,
                                                        .stream = options_.stream,
                                                        .nccl = &options_.library->functions,
                                                        .groups = &groups_,
                                                        .host = options_.host,
                                                        .marks = options_.marks}));
    return absl::OkStatus();
  }

  Capabilities capabilities() const override {
    return {.name = "nccl", .max_ranks_per_process = std::numeric_limits<int>::max(), .memory = Memory::kCuda};
  }
  RankId rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  absl::Status Reduce(const ReduceCall& call) override {
    if (!NcclReduce::IsNeeded(call)) return groups_.failure();
    RONDA_RETURN_IF_ERROR(groups_.failure());
    RONDA_RETURN_IF_ERROR(reduce_->Prepare(call, Members(call.info, options_.rank, options_.size)));
    return AsMember(call.info, [&](const Members& members, NcclGroups::Entry* entry) {
      return reduce_->Run(call, members, entry);
    });
  }
  absl::Status Broadcast(const BroadcastCall& call) override {
    if (!NcclExchanges::IsNeeded(call)) return groups_.failure();
    return AsMember(call.info, [&](const Members& members, NcclGroups::Entry* entry) {
      return exchanges_.Broadcast(call, members, entry);
    });
  }
  absl::Status Allgather(const AllgatherCall& call) override {
    if (!NcclExchanges::IsNeeded(call)) return groups_.failure();
    return AsMember(call.info, [&](const Members& members, NcclGroups::Entry* entry) {
      return exchanges_.Allgather(call, members, entry);
    });
  }
  absl::Status Alltoall(const AlltoallCall& call) override {
    if (!NcclExchanges::IsNeeded(call)) return groups_.failure();
    return AsMember(call.info, [&](const Members& members, NcclGroups::Entry* entry) {
      return exchanges_.Alltoall(call, members, entry);
    });
  }
  absl::Status Barrier(const CallInfo& info) override {
    return AsMember(
        info, [&](const Members& members, NcclGroups::Entry* entry) { return reduce_->Meet(info, members, entry); });
  }

  // NCCL cuts up what it carries by itself.
  void Tune(const Tuning&) override {}

  absl::Status failure() const override { return groups_.failure(); }
  void Abort() override { groups_.Abort(); }

 private:
  // Runs the collective if this rank is a member. All ranks of the job, and so the same for all of them, come here.
  template <typename Collective>
  absl::Status AsMember(const CallInfo& info, const Collective& collective) {
    RONDA_RETURN_IF_ERROR(groups_.failure());
    const Members members(info, options_.rank, options_.size);
    RONDA_ASSIGN_OR_RETURN(NcclGroups::Entry* const entry, groups_.For(info, members));
    return members.IncludeSelf() ? collective(members, entry) : absl::OkStatus();
  }

  // Waits until nothing is under way. Errors: why that may never be.
  absl::Status AwaitStream() {
    RONDA_RETURN_IF_ERROR(groups_.failure());  // the device may be stuck
    RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> end, options_.device->NewEvent());
    RONDA_RETURN_IF_ERROR(end->Record(options_.stream));
    const absl::Duration begin = MonotonicTime();
    while (true) {
      RONDA_RETURN_IF_ERROR(groups_.failure());
      RONDA_ASSIGN_OR_RETURN(const bool is_done, end->done());
      if (is_done) return absl::OkStatus();
      RONDA_RETURN_IF_ERROR(options_.job_failure());
      if (MonotonicTime() - begin > options_.init_deadline) {
        Log(LogLevel::kWarning, groups_.self(), "NCCL is ended while the device still works for it");
        return absl::DeadlineExceededError("the device has not come to an end");
      }
      absl::SleepFor(kNap);
    }
  }

  const Options options_;
  NcclGroups groups_;
  NcclExchanges exchanges_;
  std::unique_ptr<NcclReduce> reduce_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(Options options) {
  auto communicator = std::make_unique<NcclCommunicatorImpl>(options);
  RONDA_RETURN_IF_ERROR(communicator->Begin());
  return communicator;
}

}  // namespace ronda
