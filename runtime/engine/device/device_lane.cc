// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_lane.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/device/stream_timer.h"

namespace ronda {
namespace {

// A rank's answer and its facts. The size is fixed, because each rank must know how many bytes the others send.
struct Statement {
  char can = 0;
  char reason[511] = {};
  char facts[DeviceSupport::kLongestFacts + 1] = {};
};

template <size_t kSize>
void Fill(absl::string_view text, char (&field)[kSize]) {
  text.copy(field, kSize - 1);
}

template <size_t kSize>
std::string TextOf(const char (&field)[kSize]) {
  return std::string(field, strnlen(field, kSize));
}

// The answers of all ranks to one question.
struct Agreement {
  absl::Status refusal;            // OK if all ranks are OK; else FAILED_PRECONDITION that names the first that is not
  std::vector<std::string> facts;  // by rank
};

// A rank's answer: a status, and what a status that is not OK means.
struct OwnAnswer {
  absl::Status status;
  absl::string_view refusal = "cannot take part with tensors in the memory of GPUs";
};

// Tells all ranks of the job this rank's answer, and the `facts` of this rank. Texts that are too long are cut off. A
// collective operation over `host`, so all ranks must make this call.
// Errors: the communicator's errors.
absl::StatusOr<Agreement> AgreeWithAll(Communicator& host, const CallInfo& info, const OwnAnswer& own,
                                       const std::string& facts) {
  Statement statement;
  statement.can = own.status.ok() ? 1 : 0;
  Fill(own.status.message(), statement.reason);
  Fill(facts, statement.facts);
  std::vector<Statement> all(static_cast<size_t>(host.size()));
  const std::vector<size_t> bytes_per_rank(all.size(), sizeof(Statement));
  CallInfo whole = info;
  whole.group = nullptr;
  RONDA_RETURN_IF_ERROR(
      host.Allgather({.info = whole, .input = &statement, .output = all.data(), .bytes_per_rank = bytes_per_rank}));
  Agreement agreement;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    agreement.facts.push_back(TextOf(all[rank].facts));
    if (all[rank].can != 0 || !agreement.refusal.ok()) continue;
    agreement.refusal =
        absl::FailedPreconditionError(absl::StrCat("rank ", rank, " ", own.refusal, ": ", TextOf(all[rank].reason)));
  }
  return agreement;
}

constexpr absl::Duration kPollInterval = absl::Microseconds(100);

}  // namespace

DeviceLane::DeviceLane(Options options)
    : device_(std::move(options.device)),
      callbacks_(std::move(options.callbacks)),
      progress_(std::move(options.progress)),
      waiters_(options.watch.waiters),
      stream_(std::move(options.stream)),
      blocks_(DeviceBlocks::Create(device_, RONDA_CUDA_DEVICE_MEMORY)),
      pinned_(DeviceBlocks::Create(device_, RONDA_CUDA_PINNED_HOST_MEMORY)),
      timer_(std::move(options.timer)),
      adasum_ops_({.device = device_, .stream = stream_->handle(), .blocks = blocks_, .marks = timer_.get()}),
      transport_(std::move(options.transport)) {}

absl::StatusOr<std::unique_ptr<DeviceLane>> DeviceLane::Create(Options options) {
  DeviceWatch::Options watch = options.watch;
  watch.transport_failure = options.transport.failure;
  watch.abort = options.transport.abort;
  watch.setup_deadline = options.transport.setup_deadline;
  auto lane = std::unique_ptr<DeviceLane>(new DeviceLane(std::move(options)));
  lane->failure_ = std::make_shared<const std::function<absl::Status()>>(
      [job = watch.job_failure, transport = watch.transport_failure] {
        absl::Status failure = job();
        return failure.ok() && transport != nullptr ? transport() : failure;
      });
  watch.carried_out = [self = lane.get()](DeviceCompletion& completion) { self->Draw(completion); };
  RONDA_ASSIGN_OR_RETURN(lane->watch_, DeviceWatch::Start(std::move(watch)));
  return lane;
}

DeviceLane::~DeviceLane() { watch_.reset(); }

absl::Status DeviceLane::Begin(const Operation& operation, absl::Span<const ReadyPoint* const> points) {
  launching_ = std::make_shared<DeviceCompletion>(DeviceCompletion::Options{.label = std::string(operation.label),
                                                                            .op = operation.op,
                                                                            .bytes = operation.bytes,
                                                                            .limits = operation.limits,
                                                                            .device = device_,
                                                                            .callbacks = callbacks_,
                                                                            .progress = progress_,
                                                                            .failure = failure_,
                                                                            .waiters = waiters_});
  watch_->Watch(launching_);
  timer_->Begin();
  for (const ReadyPoint* point : points) RONDA_RETURN_IF_ERROR(point->OrderBefore(stream_->handle()));
  timer_->Mark(StreamPhase::kWaitForData);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> DeviceLane::RecordEnd() {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, device_->NewEvent());
  RONDA_RETURN_IF_ERROR(event->Record(stream_->handle()));
  return event;
}

absl::StatusOr<std::shared_ptr<DeviceCompletion>> DeviceLane::Finish() {
  launching_->set_timing(timer_->Take());
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, RecordEnd());
  launching_->Launch(std::move(event));
  watch_->RecordLaunch();
  return std::move(launching_);
}

void DeviceLane::Drop() {
  launching_->Withdraw();
  launching_.reset();
  watch_->RecordLaunch();
}

void DeviceLane::Draw(DeviceCompletion& completion) {
  const std::shared_ptr<BucketTiming> timing = completion.TakeTiming();
  if (timing == nullptr) return;
  const DeviceCompletion::Options& bucket = completion.options();
  timer_->Draw({.op = bucket.op, .label = bucket.label, .bytes = bucket.bytes}, *timing);
}

void DeviceLane::Close(const absl::Status& status) {
  watch_->Stop(status.ok() ? absl::CancelledError("the job has been shut down") : status);
  if (status.ok()) return;
  if (transport_.abort != nullptr) transport_.abort();
  if (device_->is_abandoned()) return;
  const absl::Status end = AwaitEnd();
  // After a CUDA error, the device does nothing more for this process, so it is abandoned.
  if (!end.ok()) device_->Abandon(end.message());
}

// Waits until the stream has done all its work. NCCL's work on the stream has been aborted by now, but the trainer's
// own kernels may still have to end.
absl::Status DeviceLane::AwaitEnd() {
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> end, RecordEnd());
  const absl::Duration begin = MonotonicTime();
  while (true) {
    RONDA_ASSIGN_OR_RETURN(const bool is_done, end->done());
    if (is_done) return absl::OkStatus();
    if (MonotonicTime() - begin > device_->timeout()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the job has failed, and what the device was given does not end within ",
                       absl::FormatDuration(device_->timeout())));
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::StatusOr<ResultData> DeviceLane::Allocate(const TensorRequest& request, size_t bytes) {
  return blocks_->Acquire(bytes, absl::StrCat("what ", Name(request.op), " '", request.name, "' returns"));
}

absl::StatusOr<ResultData> DeviceLane::AllocateZeros(absl::string_view tensor, size_t bytes) {
  RONDA_ASSIGN_OR_RETURN(ResultData data,
                         blocks_->Acquire(bytes, absl::StrCat("error feedback of tensor '", tensor, "'")));
  RONDA_RETURN_IF_ERROR(Zero(data.get(), bytes));
  return data;
}

absl::Status DeviceLane::Zero(void* memory, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return device_->Call("filling with zeros",
                       [&](const ronda_cuda_plugin& cuda) { return cuda.fill_zero(memory, bytes, stream_->handle()); });
}

absl::Status DeviceLane::Copy(void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return device_->Call("copying",
                       [&](const ronda_cuda_plugin& cuda) { return cuda.copy(dst, src, bytes, stream_->handle()); });
}

// The work of this bucket comes after all earlier work on the stream, so it may reuse the blocks of the previous
// bucket.
absl::Status DeviceLane::PrepareOverflow(size_t tensors) {
  constexpr absl::string_view kPurpose = "overflow detection";
  flags_.reset();
  delivered_.reset();
  RONDA_ASSIGN_OR_RETURN(flags_, blocks_->Acquire(tensors, kPurpose));
  RONDA_ASSIGN_OR_RETURN(delivered_, pinned_->Acquire(tensors, kPurpose));
  return absl::OkStatus();
}

absl::StatusOr<uint8_t*> DeviceLane::FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) {
  auto* const flags = reinterpret_cast<uint8_t*>(flags_.get());
  extents_.clear();
  size_t elements = 0;
  for (const TensorView& tensor : tensors) {
    extents_.push_back({.data = tensor.data, .count = tensor.count});
    elements += tensor.count;
  }
  if (elements == 0) {
    RONDA_RETURN_IF_ERROR(Zero(flags, tensors.size()));
    return flags;
  }
  const kernels::cuda::NonFiniteCall call = {
      .tensors = extents_.data(), .tensor_count = static_cast<int>(extents_.size()), .dtype = dtype, .found = flags};
  RONDA_RETURN_IF_ERROR(device_->Call("looking for overflow", [&](const ronda_cuda_plugin& cuda) {
    return cuda.find_non_finite(&call, stream_->handle());
  }));
  return flags;
}

absl::Status DeviceLane::DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) {
  if (results.empty()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(Copy(delivered_.get(), flags, results.size()));
  const auto shared = std::make_shared<const ResultData>(std::move(delivered_));
  const auto* const first = reinterpret_cast<const uint8_t*>(shared->get());
  for (size_t i = 0; i < results.size(); ++i) results[i].device_overflow = {shared, first + i};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<LaneMemory>> DeviceLane::RegisterMemory(const CallInfo& info, DirectMemory memory) {
  RONDA_RETURN_IF_ERROR(transport_.register_memory(info, memory));
  return std::make_shared<LaneMemory>(LaneMemory::Options{.owner = "the job",
                                                          .setting = "RONDA_GRADIENT_MEMORY_MB on rank 0",
                                                          .device = device_,
                                                          .memory = std::move(memory)});
}

absl::StatusOr<DeviceLanes::Opening> DeviceLanes::Open(const CallInfo& info) {
  absl::StatusOr<Resources> own = Prepare();
  const std::string own_facts = own.ok() ? own->facts : std::string();
  RONDA_ASSIGN_OR_RETURN(Agreement prepared, AgreeWithAll(*options_.host, info, {own.status()}, own_facts));
  if (!prepared.refusal.ok()) return Opening{.refusal = prepared.refusal};
  absl::StatusOr<std::unique_ptr<DeviceLane>> lane = Connect(*std::move(own), std::move(prepared.facts));
  RONDA_ASSIGN_OR_RETURN(const Agreement connected, AgreeWithAll(*options_.host, info, {lane.status()}, ""));
  if (connected.refusal.ok()) {
    lane_ = *std::move(lane);
    RONDA_RETURN_IF_ERROR(MakeMemory(info));
  }
  return Opening{.lane = lane_.get(), .refusal = connected.refusal};
}

absl::Status DeviceLanes::MakeMemory(const CallInfo& info) {
  if (!lane_->has_memory()) return absl::OkStatus();
  absl::StatusOr<DirectMemory> own = lane_->AllocateMemory();
  RONDA_ASSIGN_OR_RETURN(const Agreement allocated,
                         AgreeWithAll(*options_.host, info, {own.status(), "has no memory for gradients"}, ""));
  if (!allocated.refusal.ok()) {
    if (options_.rank == 0) {
      Log(LogLevel::kWarning, 0,
          absl::StrCat("gradients are packed on all ranks: ", allocated.refusal.message(),
                       ": lower the setting, or free memory of this GPU"));
    }
    return absl::OkStatus();
  }
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<LaneMemory> memory, lane_->RegisterMemory(info, *std::move(own)));
  const MutexLock lock(&mu_);
  memory_ = std::move(memory);
  return absl::OkStatus();
}

absl::StatusOr<DeviceLanes::Resources> DeviceLanes::Prepare() {
  Resources own;
  RONDA_ASSIGN_OR_RETURN(own.device, options_.device->Get());
  // The kernels are loaded now, while nothing on the device waits for other ranks.
  RONDA_RETURN_IF_ERROR(
      own.device->Call("loading the kernels", [](const ronda_cuda_plugin& cuda) { return cuda.prepare_device(); }));
  RONDA_ASSIGN_OR_RETURN(own.stream, DeviceStream::Create(own.device.get()));
  own.facts = options_.support->Facts(*own.device);
  return own;
}

absl::StatusOr<std::unique_ptr<DeviceLane>> DeviceLanes::Connect(Resources own, std::vector<std::string> facts) {
  auto timer = std::make_unique<StreamTimer>(own.device, own.stream->handle(), options_.timeline, options_.times);
  RONDA_ASSIGN_OR_RETURN(DeviceTransport transport,
                         options_.support->Connect({.rank = options_.rank,
                                                    .facts = std::move(facts),
                                                    .device = own.device,
                                                    .stream = own.stream->handle(),
                                                    .host = options_.host,
                                                    .levels = options_.levels,
                                                    .marks = timer.get(),
                                                    .job_failure = options_.watch.job_failure,
                                                    .fail_job = options_.watch.fail_job}));
  return DeviceLane::Create({.device = std::move(own.device),
                             .stream = std::move(own.stream),
                             .timer = std::move(timer),
                             .transport = std::move(transport),
                             .callbacks = options_.callbacks,
                             .progress = options_.progress,
                             .watch = options_.watch});
}

}  // namespace ronda
