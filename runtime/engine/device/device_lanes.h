#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_LANES_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_LANES_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/device_transport.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/monitor/timeline/timeline.h"

namespace ronda {

// The way of tensors in the memory of devices, which is made when the job has the first of them: by all ranks together,
// or by none.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h).
class DeviceLanes {
 public:
  // None of the pointers is owned.
  struct Options {
    RankId rank = 0;
    std::shared_ptr<DeviceSupport> support;  // may be nullptr
    RankDevice* device = nullptr;
    Communicator* host = nullptr;
    const HostLevels* levels = nullptr;  // of `host`; nullptr: it has none
    std::shared_ptr<CallbackThread> callbacks;
    std::shared_ptr<EngineDriver> driver;
    Timeline* timeline = nullptr;  // nullptr: there is none
    DeviceWatch::Options watch;
  };

  explicit DeviceLanes(Options options) : options_(std::move(options)) {}

  // nullptr while there is none.
  DeviceLane* lane() const { return lane_.get(); }

  // Makes the lane. Every rank of the job calls it at the same place in its sequence of calls to the communicators;
  // `info` says what for.
  // Errors: the host communicator's: the job's failure. The status returned, the same on all ranks: OK, or
  // FAILED_PRECONDITION that names a rank which cannot, and why; then there is no lane, and the job goes on.
  absl::StatusOr<absl::Status> Open(const CallInfo& info);

  bool idle() const { return lane_ == nullptr || lane_->idle(); }

  // The job has ended, or failed with `status`.
  void Close(const absl::Status& status) {
    if (lane_ != nullptr) lane_->Close(status);
  }

 private:
  // What a rank has of its own before it knows of the others.
  struct Place {
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    std::string facts;
  };
  absl::StatusOr<Place> Prepare();
  absl::StatusOr<std::unique_ptr<DeviceLane>> Connect(Place place, std::vector<std::string> facts);

  const Options options_;
  std::unique_ptr<DeviceLane> lane_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_LANES_H_
