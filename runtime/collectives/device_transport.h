#ifndef RONDA_RUNTIME_COLLECTIVES_DEVICE_TRANSPORT_H_
#define RONDA_RUNTIME_COLLECTIVES_DEVICE_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"
#include "runtime/cuda/device.h"

namespace ronda {

// What a device does for a bucket, in parts that a timeline tells apart.
enum class StreamPhase : uint8_t {
  kWaitForData,  // for streams of the trainer's
  kPack,         // tensors to the wire: copied, scaled, converted
  kTransfer,     // between ranks, what NCCL reduces on the way included
  kReduce,       // what Ronda reduces itself
  kUnpack,       // the wire to tensors
};

// Notes on a device's own clock when it has come to a point of its stream.
//
// Thread-compatible: used by who puts work on the stream.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;

  // What the stream has been given since the mark before was `phase`. Costs nothing unless a timeline is written. A
  // mark that cannot be made is left out: it is not worth a failure.
  virtual void Mark(StreamPhase phase) = 0;
};

// `status`, of what has put `phase` on the stream, with a mark behind it; `marks` may be nullptr.
inline absl::Status Marked(StreamMarks* marks, StreamPhase phase, absl::Status status) {
  if (marks != nullptr && status.ok()) marks->Mark(phase);
  return status;
}

// How tensors in the memory of devices travel.
struct DeviceTransport {
  std::unique_ptr<Communicator> communicator;  // Memory::kCuda
  // What has gone wrong since with what moves the data, if it knows; nullptr: it does not. Any thread may call it.
  std::function<absl::Status()> failure;
  // Ends what is under way on the device, and may never end by itself; no call succeeds afterwards. nullptr: nothing
  // needs that. Any thread may call it.
  std::function<void()> abort;
  // How long a call may take to connect ranks that it is the first of, whatever its own deadline; it ends by itself.
  absl::Duration setup_deadline = absl::ZeroDuration();
};

// What a rank can do with devices: where they are found, and what connects those of the ranks. None of it is tried
// before the first tensor in the memory of a device.
class DeviceSupport {
 public:
  virtual ~DeviceSupport() = default;

  // The library that has the devices; loaded by the first call. Thread-safe.
  // Errors: why there is none.
  virtual absl::StatusOr<const ronda_cuda_plugin*> Plugin() = 0;

  // What the others have to know of this rank's device to choose what connects all: at most kLongestFacts characters.
  static constexpr size_t kLongestFacts = 320;
  virtual std::string Facts(const Device& device) = 0;

  // Every rank makes the call at the same place, having the same `facts`: those of all ranks.
  // Errors: why this rank cannot be connected.
  struct Request {
    RankId rank = 0;
    std::vector<std::string> facts;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;       // what calls are put on; outlives the communicator
    Communicator* host = nullptr;        // of the same job; not owned, and only used in calls
    const HostLevels* levels = nullptr;  // of `host`; nullptr: it has none
    StreamMarks* marks = nullptr;        // of `stream`; outlives the communicator; nullptr: nobody wants to know
    std::function<absl::Status()> job_failure;
  };
  virtual absl::StatusOr<DeviceTransport> Connect(const Request& request) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_DEVICE_TRANSPORT_H_
