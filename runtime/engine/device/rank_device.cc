// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/rank_device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

std::string Place(int ordinal) {
  return ordinal < 0 ? std::string("in the host's memory") : absl::StrCat("on cuda:", ordinal);
}

// The maximum number of remembered buffers, in case a program submits new buffers again and again.
constexpr size_t kMostKnown = 1 << 14;

constexpr char kBesideCapture[] = "submit it before or after the capture";

absl::Status IsCaptured(absl::string_view otherwise) {
  return absl::InvalidArgumentError(absl::StrCat(
      "its stream is being captured into a CUDA graph, which cannot hold what the ranks still have to agree on: ",
      otherwise));
}

// Returns `status` as a FAILED_PRECONDITION error, because the call could not begin.
absl::Status NotNow(const absl::Status& status) { return absl::FailedPreconditionError(status.message()); }

}  // namespace

absl::StatusOr<std::shared_ptr<const ReadyPoint>> ReadyPoint::Record(const std::shared_ptr<Device>& device,
                                                                     StreamHandle stream,
                                                                     std::atomic<uint64_t>* recorded) {
  const Device::Current current(device.get());
  RONDA_ASSIGN_OR_RETURN(const uint64_t id, IdOfStream(*device, stream, kBesideCapture));
  return RecordOn(device, stream, id, recorded);
}

absl::StatusOr<std::shared_ptr<const ReadyPoint>> ReadyPoint::RecordOn(const std::shared_ptr<Device>& device,
                                                                       StreamHandle stream, uint64_t id,
                                                                       std::atomic<uint64_t>* recorded) {
  // With the acquire load, this thread sees the recordings of all points that are counted in this number.
  std::shared_ptr<ReadyPoint> point(new ReadyPoint(device, id, recorded->load(std::memory_order_acquire)));
  RONDA_ASSIGN_OR_RETURN(point->event_, device->NewEvent());
  RONDA_RETURN_IF_ERROR(point->event_->Record(stream));
  point->complete_ = recorded->fetch_add(1, std::memory_order_acq_rel) + 1;
  return point;
}

void LastPoints::Add(const ReadyPoint* point) {
  for (const ReadyPoint* other : points_) {
    if (other->Covers(*point)) return;
  }
  std::erase_if(points_, [point](const ReadyPoint* other) { return point->Covers(*other); });
  points_.push_back(point);
}

absl::StatusOr<std::optional<uint64_t>> FindIdOfStream(Device& device, StreamHandle stream) {
  int is_capturing = 0;
  uint64_t id = 0;
  RONDA_RETURN_IF_ERROR(device.Call("looking at the stream", [&](const ronda_cuda_plugin& cuda) {
    const int error = cuda.is_capturing(stream, &is_capturing);
    return error != 0 || is_capturing != 0 ? error : cuda.stream_id(stream, &id);
  }));
  if (is_capturing != 0) return std::nullopt;
  return id;
}

absl::StatusOr<uint64_t> IdOfStream(Device& device, StreamHandle stream, absl::string_view otherwise) {
  RONDA_ASSIGN_OR_RETURN(const std::optional<uint64_t> id, FindIdOfStream(device, stream));
  if (!id.has_value()) return IsCaptured(otherwise);
  return *id;
}

absl::StatusOr<uint64_t> WaitingStream::IdOn(Device& device) {
  if (!id_.has_value()) id_ = IdOfStream(device, handle_, "wait for the operation before or after the capture");
  return *id_;
}

absl::StatusOr<std::vector<RankDevice::Ready>> RankDevice::Admit(absl::Span<const Submission> submissions) {
  std::vector<Ready> points;
  const Ready* last = nullptr;
  void* last_stream = nullptr;
  for (size_t i = 0; i < submissions.size(); ++i) {
    const Submission& submission = submissions[i];
    if (submission.request.memory == Memory::kHost) continue;
    if (points.empty()) points.resize(submissions.size());
    const auto device = CheckBuffers(submission);
    if (!device.ok()) return AboutTensor(submission.request.name, device.status());
    // If two submissions have the same stream, one point serves both, because no work was put on the stream between
    // them.
    absl::StatusOr<Ready> point = last != nullptr && last_stream == submission.stream
                                      ? *last
                                      : ReadyPoint::Record(*device, submission.stream, &points_recorded_);
    if (!point.ok()) return AboutTensor(submission.request.name, point.status());
    points[i] = *std::move(point);
    last = &points[i];
    last_stream = submission.stream;
  }
  return points;
}

absl::StatusOr<RankDevice::Ready> RankDevice::AdmitCall(absl::Span<const void* const> buffers, StreamHandle stream) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, CheckBuffers(buffers));
  const Device::Current current(device.get());
  RONDA_ASSIGN_OR_RETURN(const std::optional<uint64_t> id, FindIdOfStream(*device, stream));
  if (id.has_value()) return ReadyPoint::RecordOn(device, stream, *id, &points_recorded_);
  // The default stream itself cannot be captured.
  if (stream == nullptr) return IsCaptured(kBesideCapture);
  return nullptr;
}

absl::StatusOr<std::shared_ptr<Device>> RankDevice::CheckBuffers(const Submission& submission) {
  const void* buffers[2];
  size_t count = 0;
  for (const void* buffer : {submission.input, static_cast<const void*>(submission.output)}) {
    if (buffer != nullptr && (count == 0 || buffers[0] != buffer)) buffers[count++] = buffer;
  }
  return CheckBuffers({buffers, count});
}

absl::StatusOr<std::shared_ptr<Device>> RankDevice::CheckBuffers(absl::Span<const void* const> buffers) {
  std::shared_ptr<Device> device = FindKnown(buffers);
  if (device != nullptr) return device;
  for (const void* buffer : buffers) {
    RONDA_ASSIGN_OR_RETURN(device, CheckBuffer(buffer));
  }
  if (device != nullptr) return device;
  // A tensor without elements has no buffers.
  absl::StatusOr<std::shared_ptr<Device>> chosen = Get();
  if (!chosen.ok()) return NotNow(chosen.status());
  return chosen;
}

// The plugin is loaded without the lock held, because loading may search folders for a library.
absl::StatusOr<const ronda_cuda_plugin*> RankDevice::Plugin() {
  {
    const MutexLock lock(&mu_);
    if (device_ != nullptr) return &device_->plugin();
  }
  if (support_ != nullptr) return support_->Plugin();
  return absl::FailedPreconditionError("this job has no support for GPUs");
}

std::shared_ptr<Device> RankDevice::FindKnown(absl::Span<const void* const> buffers) {
  const MutexLock lock(&mu_);
  if (device_ == nullptr || buffers.empty()) return nullptr;
  for (const void* buffer : buffers) {
    if (!known_.contains(buffer)) return nullptr;
  }
  return device_;
}

absl::StatusOr<std::shared_ptr<Device>> RankDevice::CheckBuffer(const void* buffer) {
  const absl::StatusOr<const ronda_cuda_plugin*> plugin = Plugin();
  if (!plugin.ok()) return NotNow(plugin.status());
  int ordinal = -1;
  (*plugin)->device_of(buffer, &ordinal);
  if (ordinal < 0) {
    return absl::InvalidArgumentError(
        "it is said to be in the memory of a GPU, but a buffer of it is in the host's: say so, or pass the GPU's");
  }
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, Open(**plugin, ordinal));
  if (device->ordinal() == ordinal) {
    const MutexLock lock(&mu_);
    if (known_.size() == kMostKnown) known_.clear();
    known_.insert(buffer);
    return device;
  }
  return absl::InvalidArgumentError(absl::StrCat("it is ", Place(ordinal), ", but this rank's tensors are ",
                                                 Place(device->ordinal()),
                                                 ": a rank has one device, that of its first tensor"));
}

absl::Status RankDevice::FillZero(void* buffer, size_t bytes, StreamHandle stream) {
  if (bytes == 0) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, CheckBuffer(buffer));
  return device->Call("setting memory to zero",
                      [&](const ronda_cuda_plugin& cuda) { return cuda.fill_zero(buffer, bytes, stream); });
}

absl::StatusOr<std::shared_ptr<Device>> RankDevice::Get() {
  RONDA_ASSIGN_OR_RETURN(const ronda_cuda_plugin* const plugin, Plugin());
  {
    MutexLock lock(&mu_);
    if (device_ != nullptr) return device_;
  }
  int count = 0;
  plugin->device_count(&count);
  return Open(*plugin, count == 0 ? 0 : hint_ % count);
}

absl::StatusOr<std::shared_ptr<Device>> RankDevice::Open(const ronda_cuda_plugin& plugin, int ordinal) {
  MutexLock lock(&mu_);
  if (device_ == nullptr) {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, Device::Open(&plugin, ordinal));
    device->set_timeout(timeout_);
    device_ = std::move(device);
  }
  return device_;
}

}  // namespace ronda
