// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_
#define RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/host_map.h"
#include "runtime/control/control_plane.h"
#include "runtime/cuda/device.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The phases of a bucket on a device that a timeline shows.
enum class StreamPhase : uint8_t {
  kWaitForData,  // for the trainer's streams
  kPack,         // tensors to the wire's format: copied, scaled, converted
  kTransfer,     // between ranks, with the reductions that NCCL does on the way
  kReduce,       // reductions by Ronda
  kUnpack,       // from the wire's format to tensors
};

// Records the times at which a device reaches points of its stream, on the clock of the device.
//
// Thread-compatible: only the thread that puts work on the stream uses it.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;

  // Labels all work that was put on the stream since the previous mark with `phase`. If no timeline is written, this
  // call does nothing. If the device cannot make a mark, the mark is left out without an error.
  virtual void Mark(StreamPhase phase) = 0;
};

// If `status` is OK, labels the work that was just put on the stream with `phase`. Returns `status`. `marks` may be
// nullptr.
inline absl::Status Marked(StreamMarks* marks, StreamPhase phase, absl::Status status) {
  if (marks != nullptr && status.ok()) marks->Mark(phase);
  return status;
}

// A communicator for tensors in the memory of devices, with further functions for its owner.
struct DeviceTransport {
  std::unique_ptr<Communicator> communicator;  // for buffers in Memory::kCuda
  // Returns the first error that the backend's library has reported. nullptr: the backend has no such errors. Any
  // thread may call `failure`.
  std::function<absl::Status()> failure;
  // Ends the work that the device is doing, which might never end by itself. Does nothing if the device is held
  // (Device::Hold). All later calls fail. nullptr: the backend does not need this function. Any thread may call
  // `abort`.
  std::function<void()> abort;
  // The first call of a group may take this time to connect the group's ranks, even if the call's own deadline is
  // shorter. The backend ends the first call of a group when this time is over.
  absl::Duration setup_deadline = absl::ZeroDuration();
  // Whether allreduces of adjacent tensors (ReduceCall::layout) work on the tensors in their own memory.
  bool reduces_in_place = false;
};

// Elements that a rank sends to another rank, or receives from it.
struct DirectPart {
  void* data = nullptr;  // a part that is sent is only read
  size_t count = 0;      // elements
};

// A collective that a transport carries out in the order of the calls, without a negotiation between the ranks.
struct DirectCall {
  // All ranks of the transport take part. The operation is an allreduce, a reduce, a broadcast, an allgather of equal
  // parts, a reducescatter into equal parts, or an exchange (see `sends`).
  CallInfo info;
  const void* input = nullptr;
  void* output = nullptr;  // may equal the input of an allreduce, a reduce or a broadcast; a reduce: only on the root
  size_t count = 0;        // elements of this rank's `input`; for a reducescatter, of its `output`
  DType dtype = DType::kFloat32;
  ReduceOp reduction = ReduceOp::kSum;
  kernels::Scale scale;           // applied to each rank's elements, before a sum
  int root = 0;                   // the root's position; only for a reduce or a broadcast
  StreamHandle stream = nullptr;  // for the call's work; nullptr: the transport's stream

  // An exchange is a gather, a scatter or an alltoall. These two fields then have a part for each rank, in the order of
  // the positions, and `input`, `output` and `count` are not used. What a rank sends to a second rank must have as many
  // elements as the second rank receives from it. The part of a rank for itself may be the same memory in both fields.
  // Otherwise the received parts overlap no other part. Other operations have no parts.
  absl::Span<const DirectPart> sends = {};
  absl::Span<const DirectPart> receives = {};

  bool is_exchange() const { return !sends.empty(); }
};

// Device memory that all ranks of a transport have registered together, so that the ranks' devices can use it directly.
// It has the same size on all ranks. Each buffer of a call must be in this memory on all ranks or on none, and must
// begin at the same distance from `data` on all ranks. Exceptions are the input of an allgather and the output of a
// reducescatter, whose places may differ, and the parts of an exchange. What one rank sends from this memory, the other
// rank must receive in this memory. This is not checked.
struct DirectMemory {
  std::shared_ptr<std::byte> data;  // remains valid after the end of the transport; the last owner frees it
  size_t bytes = 0;
};

// Does collectives between the devices of some ranks. All ranks whose devices take part must make the same calls in the
// same order. This is not checked.
//
// Thread-compatible, except failure() and Abort(), which any thread may call.
class DirectTransport {
 public:
  virtual ~DirectTransport() = default;

  // Returns whether the transport can do this reduction. The answer is the same on all ranks of the transport.
  virtual bool Reduces(DType dtype, ReduceOp reduction, const kernels::Scale& scale) const = 0;

  // Puts a call on the stream. The first call of a kind may wait for the other ranks; Abort ends that wait.
  // REQUIRES: if the call is a reduction, Reduces() returns true for it.
  // Errors: the library's errors. After an error all later calls fail.
  virtual absl::Status Run(const DirectCall& call) = 0;

  // Returns the memory that the ranks have registered together. Errors: the reason why there is none, the same on all
  // ranks.
  virtual absl::StatusOr<DirectMemory> memory() const = 0;

  // Returns the first error that has been found, or OK.
  virtual absl::Status failure() const = 0;

  // Ends the work that the device is doing, which might never end by itself. Does nothing if the device is held
  // (Device::Hold). All later calls fail.
  virtual void Abort() = 0;
};

// The devices of this machine, and the backends that connect the devices of the ranks. DeviceSupport loads no library
// before it gets the first tensor in the memory of a device.
class DeviceSupport {
 public:
  virtual ~DeviceSupport() = default;

  // Returns the plugin for the devices. The first call of Plugin loads the plugin. Thread-safe. Errors: the reason why
  // there is no plugin.
  virtual absl::StatusOr<const ronda_cuda_plugin*> Plugin() = 0;

  // Returns the facts about this rank's device, from which all ranks choose a backend. The text has at most
  // kLongestFacts characters.
  static constexpr size_t kLongestFacts = 384;
  virtual std::string Facts(Device& device) = 0;

  // Connects the devices of all ranks. Every rank must make this call at the same point in the sequence of calls.
  // `facts` contains the facts of all ranks. Errors: the reason why this rank cannot be connected.
  struct Request {
    RankId rank = 0;
    std::vector<std::string> facts;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;       // carries all work of the communicator; outlives the communicator
    Communicator* host = nullptr;        // of the same job; not owned, and used only in calls
    const HostLevels* levels = nullptr;  // the levels of `host`; nullptr: `host` has no levels
    StreamMarks* marks = nullptr;        // of `stream`; outlives the communicator; may be nullptr
    std::function<absl::Status()> job_failure;
  };
  virtual absl::StatusOr<DeviceTransport> Connect(const Request& request) = 0;

  // Connects the devices of some ranks for direct calls. All of these ranks must make this call, with the same `facts`.
  // If the backend that fits these ranks has no direct calls, every rank gets nullptr.
  // Errors: the reason why this rank cannot be connected.
  struct DirectRequest {
    CallInfo info;                // for messages, and with the limits of waits for the other ranks
    std::vector<RankId> members;  // ascending
    int self = 0;                 // this rank's position
    std::vector<std::string> facts;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;  // outlives the transport
    // Sends bytes from the first member to the other members. All members must call this function.
    std::function<absl::Status(const CallInfo& info, void* data, size_t bytes)> share;
    std::function<absl::Status()> job_failure;
    // What the process does after a failure of the job. If it goes on, Abort must be able to end the device's work.
    enum class AfterFailure : uint8_t { kGoesOn, kEnds } process = AfterFailure::kGoesOn;
  };
  virtual absl::StatusOr<std::unique_ptr<DirectTransport>> ConnectDirectly(const DirectRequest& request) = 0;
};

// One rank's connection to the rest of the job. After ControlPlane::Fail, or after the death of a peer, calls of the
// communicator also return the job's failure.
struct Transport {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<FlightBoard> flights;             // the events of all ranks; never nullptr
  std::string job_id = {};                          // identifies the job for monitoring; may be empty
  std::optional<HostLevels> levels = std::nullopt;  // owned by the communicator; nullopt: the communicator has none
  // Supports tensors in the memory of devices. nullptr: such tensors are refused.
  std::shared_ptr<DeviceSupport> devices = nullptr;
  // `departure` is destroyed before the other members. The destructor of `departure` prepares the departure of the rank
  // while the data members above still exist. `departure` may be nullptr.
  std::shared_ptr<const void> departure = nullptr;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_
