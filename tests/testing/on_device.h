// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_ON_DEVICE_H_
#define RONDA_TESTS_TESTING_ON_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"

namespace ronda::testing {

// Reads and writes device memory on a stream, after the stream's earlier work. An error fails the test.
//
// Thread-compatible. The stream must outlive the DeviceAccess.
class DeviceAccess {
 public:
  DeviceAccess(std::shared_ptr<Device> device, StreamHandle stream) : device_(std::move(device)), stream_(stream) {}

  // Allocates device memory, which must not outlive the device.
  DeviceMemory Allocate(size_t bytes);

  void Write(void* memory, absl::string_view content);
  std::string Read(const void* memory, size_t bytes);

  // Waits until the stream has completed its work.
  void Finish();

 private:
  void Copy(void* dst, const void* src, size_t bytes);
  void MakeRoom(size_t bytes);

  const std::shared_ptr<Device> device_;
  const StreamHandle stream_;
  DeviceMemory pinned_;  // buffer for the copies
};

// Runs a communicator for device memory in tests for host memory. OnDevice copies the buffers of each call to the
// device, waits for the stream, and copies changed buffers back. The device buffers have the alignment of the host
// buffers, and guard bytes around them. If a call has a vote, the ranks first vote through the host communicator, as in
// the engine.
//
// Thread-compatible, like every communicator.
class OnDevice : public Communicator {
 public:
  // The objects that OnDevice uses, in the order of their construction.
  struct Parts {
    std::shared_ptr<const void> cuda;  // the object that the device needs: a FakeCuda, or nothing
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<Communicator> host;          // for votes; the device communicator may use it, too
    std::unique_ptr<Communicator> communicator;  // works on the device, on the stream
  };

  explicit OnDevice(Parts parts) : parts_(std::move(parts)), access_(parts_.device, parts_.stream->handle()) {}

  const Parts& parts() const { return parts_; }

  // Like Reduce, but calls `reduce`, with the tensors on the device, in place of the communicator.
  absl::Status ReduceBy(const ReduceCall& call, absl::FunctionRef<absl::Status(const ReduceCall& on_device)> reduce);

  RankId rank() const override { return parts_.communicator->rank(); }
  int size() const override { return parts_.communicator->size(); }

  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning& tuning) override { parts_.communicator->Tune(tuning); }

 private:
  Parts parts_;
  DeviceAccess access_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_ON_DEVICE_H_
