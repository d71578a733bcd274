#include "runtime/engine/device/ready_point.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<std::shared_ptr<const ReadyPoint>> ReadyPoint::Note(const std::shared_ptr<Device>& device,
                                                                   StreamHandle stream, std::atomic<uint64_t>* noted) {
  RONDA_ASSIGN_OR_RETURN(const uint64_t id, IdOfStream(*device, stream, "submit it before or after the capture"));
  // Whoever reads a number here sees the recordings of all points that have been counted.
  std::shared_ptr<ReadyPoint> point(new ReadyPoint(device, id, noted->load(std::memory_order_acquire)));
  RONDA_ASSIGN_OR_RETURN(point->event_, device->NewEvent());
  RONDA_RETURN_IF_ERROR(point->event_->Record(stream));
  point->complete_ = noted->fetch_add(1, std::memory_order_acq_rel) + 1;
  return point;
}

void LastPoints::Add(const ReadyPoint* point) {
  for (const ReadyPoint* other : points_) {
    if (other->Covers(*point)) return;
  }
  std::erase_if(points_, [point](const ReadyPoint* other) { return point->Covers(*other); });
  points_.push_back(point);
}

absl::StatusOr<uint64_t> IdOfStream(Device& device, StreamHandle stream, absl::string_view otherwise) {
  int is_capturing = 0;
  uint64_t id = 0;
  RONDA_RETURN_IF_ERROR(device.Call("looking at the stream", [&](const ronda_cuda_plugin& cuda) {
    const int error = cuda.is_capturing(stream, &is_capturing);
    return error != 0 || is_capturing != 0 ? error : cuda.stream_id(stream, &id);
  }));
  if (is_capturing == 0) return id;
  return absl::InvalidArgumentError(absl::StrCat(
      "its stream is being captured into a CUDA graph, which cannot hold what the ranks still have to agree on: ",
      otherwise));
}

}  // namespace ronda
