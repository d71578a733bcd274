#include "runtime/engine/device/device_lanes.h"

#include <string>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/engine/device/agreement.h"
#include "runtime/engine/device/stream_timer.h"

namespace ronda {

absl::StatusOr<absl::Status> DeviceLanes::Open(const CallInfo& info) {
  absl::StatusOr<Place> place = Prepare();
  const std::string own_facts = place.ok() ? place->facts : std::string();
  RONDA_ASSIGN_OR_RETURN(Agreement prepared, AgreeWithAll(*options_.host, info, place.status(), own_facts));
  if (!prepared.refusal.ok()) return prepared.refusal;
  absl::StatusOr<std::unique_ptr<DeviceLane>> lane = Connect(*std::move(place), std::move(prepared.facts));
  RONDA_ASSIGN_OR_RETURN(const Agreement connected, AgreeWithAll(*options_.host, info, lane.status(), ""));
  if (connected.refusal.ok()) lane_ = *std::move(lane);
  return connected.refusal;
}

absl::StatusOr<DeviceLanes::Place> DeviceLanes::Prepare() {
  Place place;
  RONDA_ASSIGN_OR_RETURN(place.device, options_.device->Get());
  // While nothing on the device waits for other ranks.
  RONDA_RETURN_IF_ERROR(
      place.device->Call("loading the kernels", [](const ronda_cuda_plugin& cuda) { return cuda.prepare_device(); }));
  RONDA_ASSIGN_OR_RETURN(place.stream, DeviceStream::Create(place.device.get()));
  place.facts = options_.support->Facts(*place.device);
  return place;
}

absl::StatusOr<std::unique_ptr<DeviceLane>> DeviceLanes::Connect(Place place, std::vector<std::string> facts) {
  auto timer = std::make_unique<StreamTimer>(place.device, place.stream->handle(), options_.timeline);
  RONDA_ASSIGN_OR_RETURN(DeviceTransport transport,
                         options_.support->Connect({.rank = options_.rank,
                                                    .facts = std::move(facts),
                                                    .device = place.device,
                                                    .stream = place.stream->handle(),
                                                    .host = options_.host,
                                                    .levels = options_.levels,
                                                    .marks = timer.get(),
                                                    .job_failure = options_.watch.job_failure}));
  return DeviceLane::Create({.device = std::move(place.device),
                             .stream = std::move(place.stream),
                             .timer = std::move(timer),
                             .transport = std::move(transport),
                             .callbacks = options_.callbacks,
                             .driver = options_.driver,
                             .watch = options_.watch});
}

}  // namespace ronda
