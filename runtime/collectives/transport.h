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

// The phases of a bucket on a device, as shown in timelines.
enum class StreamPhase : uint8_t {
  kWaitForData,  // for the trainer's streams
  kPack,         // tensors to the wire format: copied, scaled, converted
  kTransfer,     // between ranks, including reductions by NCCL
  kReduce,       // reductions by Ronda
  kUnpack,       // from the wire format to tensors
};

// Records when a device reaches points in its stream, on the device's clock.
//
// Thread-compatible: only the thread that enqueues work on the stream uses it.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;

  // Labels all work enqueued on the stream since the previous mark with `phase`. Does nothing if no timeline is being
  // written. Omits the mark without an error if the device cannot record it.
  virtual void Mark(StreamPhase phase) = 0;
};

// If `status` is OK, labels the work that was just enqueued on the stream with `phase`. Returns `status`. `marks` may
// be nullptr.
inline absl::Status Marked(StreamMarks* marks, StreamPhase phase, absl::Status status) {
  if (marks != nullptr && status.ok()) marks->Mark(phase);
  return status;
}

// Device memory that all ranks of a transport have registered together, so that the ranks' devices can use it directly.
// It has the same size on all ranks. Each buffer of a direct call must be in this memory on all ranks or on none, and
// must begin at the same distance from `data` on all ranks. Exceptions are the input of an allgather and the output of
// a reducescatter, whose places may differ, and the parts of an exchange. What one rank sends from this memory, the
// other rank must receive in this memory. This is not checked.
struct DirectMemory {
  std::shared_ptr<std::byte> data;  // remains valid after the end of the transport; the last owner frees it
  size_t bytes = 0;
};

// A communicator for tensors in device memory, with additional functions for its owner.
struct DeviceTransport {
  std::unique_ptr<Communicator> communicator;  // for buffers in Memory::kCuda
  // Returns the first error that the backend's library has reported. nullptr: the backend has no such errors. Any
  // thread may call it.
  std::function<absl::Status()> failure;
  // Aborts the device's work in progress, which might never finish by itself. Does not abort it if the device is held
  // (Device::Hold). All later calls fail. nullptr: the backend does not need this function. Any thread may call it.
  std::function<void()> abort;
  // How long a group's first call may take to connect the group's ranks, even if the call's own deadline is shorter.
  // After this time, the backend fails the call.
  absl::Duration setup_deadline = absl::ZeroDuration();
  // Whether allreduces of adjacent tensors (ReduceCall::layout) work in the tensors' own memory.
  bool reduces_in_place = false;
  // Allocates memory for tensors that are reduced in place. Other ranks need not call it. After an error the job goes
  // on. nullptr: there is no such memory, on all ranks.
  std::function<absl::StatusOr<DirectMemory>()> allocate_memory;
  // Registers memory of allocate_memory() together with all ranks. From then on, adjacent tensors of all ranks must be
  // in this memory, at the same distance from its beginning on all ranks. All other calls may have buffers in this
  // memory, too, and treat them as other memory. All ranks must call it, before any call to the communicator. After an
  // error the job fails.
  std::function<absl::Status(const CallInfo& info, const DirectMemory& memory)> register_memory;
};

// Elements that a rank sends to or receives from another rank.
struct DirectPart {
  void* data = nullptr;  // read-only if it is sent
  size_t count = 0;      // elements
};

// A collective that a transport executes in call order, without negotiation between the ranks.
struct DirectCall {
  // All ranks of the transport take part. The operation is an allreduce, reduce, broadcast, allgather of equal parts,
  // reducescatter into equal parts, or an exchange (see `sends`).
  CallInfo info;
  const void* input = nullptr;
  void* output = nullptr;  // may equal the input of an allreduce, reduce or broadcast; a reduce uses only the root's
  size_t count = 0;        // elements of this rank's `input` or, for a reducescatter, of its `output`
  DType dtype = DType::kFloat32;
  ReduceOp reduction = ReduceOp::kSum;
  kernels::Scale scale;           // applied to each rank's elements before a sum
  int root = 0;                   // the root's position; only for reduce and broadcast
  StreamHandle stream = nullptr;  // for the call's work; nullptr: the transport's stream

  // For an exchange (a gather, scatter or alltoall): a part for each rank, by position. `input`, `output` and `count`
  // are then not used. The part that rank a sends to rank b must have as many elements as the part that b receives from
  // a. A rank's part for itself may be the same memory in both fields; otherwise received parts must not overlap any
  // other part. Empty for other operations.
  absl::Span<const DirectPart> sends = {};
  absl::Span<const DirectPart> receives = {};

  bool is_exchange() const { return !sends.empty(); }
};

// Does collectives between the devices of some ranks. All ranks whose devices take part must make the same calls in the
// same order. This is not checked.
//
// Thread-compatible, except failure() and Abort(), which any thread may call.
class DirectTransport {
 public:
  virtual ~DirectTransport() = default;

  // Returns whether the transport supports this reduction. The result is the same on all ranks of the transport.
  virtual bool Reduces(DType dtype, ReduceOp reduction, const kernels::Scale& scale) const = 0;

  // Enqueues a call on the stream. The first call of a kind may wait for the other ranks; Abort() ends this wait.
  // REQUIRES: if the call is a reduction, Reduces() returns true for it.
  // Errors: the library's errors. After an error, all later calls fail.
  virtual absl::Status Run(const DirectCall& call) = 0;

  // Returns the memory that the ranks have registered together. Errors: the reason why there is none, the same on all
  // ranks.
  virtual absl::StatusOr<DirectMemory> memory() const = 0;

  // Returns the first error that has been found, or OK.
  virtual absl::Status failure() const = 0;

  // Aborts the device's work in progress, which might never finish by itself. Does not abort it if the device is held
  // (Device::Hold). All later calls fail.
  virtual void Abort() = 0;
};

// Provides this machine's devices, and the backends that connect the devices of all ranks. Loads no library before the
// first tensor in device memory.
class DeviceSupport {
 public:
  virtual ~DeviceSupport() = default;

  // Returns the plugin for the devices, which the first call loads. Thread-safe. Errors: the reason why there is no
  // plugin.
  virtual absl::StatusOr<const ronda_cuda_plugin*> Plugin() = 0;

  // Returns the facts about this rank's device, from which all ranks choose a backend. The text has at most
  // kLongestFacts characters.
  static constexpr size_t kLongestFacts = 448;
  virtual std::string Facts(Device& device) = 0;

  // Connects the devices of all ranks. Every rank must make this call at the same point in the sequence of calls.
  // `facts` contains the facts of all ranks. Errors: the reason why this rank cannot be connected.
  struct Request {
    RankId rank = 0;
    std::vector<std::string> facts;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;       // for all work of the communicator; must outlive it
    Communicator* host = nullptr;        // of the same job; not owned, and only used during calls
    const HostLevels* levels = nullptr;  // the levels of `host`; nullptr: it has none
    StreamMarks* marks = nullptr;        // of `stream`; must outlive the communicator; may be nullptr
    std::function<absl::Status()> job_failure;
    std::function<void(const absl::Status&)> fail_job = nullptr;  // as in DirectRequest
  };
  virtual absl::StatusOr<DeviceTransport> Connect(const Request& request) = 0;

  // Connects the devices of some ranks for direct calls. All of these ranks must make this call, with the same `facts`.
  // If the backend for these ranks does not support direct calls, all of them get nullptr.
  // Errors: the reason why this rank cannot be connected.
  struct DirectRequest {
    CallInfo info;                // for messages, and for the limits of waits for the other ranks
    std::vector<RankId> members;  // ascending
    int self = 0;                 // this rank's position
    std::vector<std::string> facts;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;  // must outlive the transport
    // Broadcasts bytes from the first member. All members must call it.
    std::function<absl::Status(const CallInfo& info, void* data, size_t bytes)> share;
    std::function<absl::Status()> job_failure;
    // Records a failure of the job, unless it has one. Called before this rank ends its connections because of an
    // error: the other ranks then notice the end, and must not report it as the cause.
    std::function<void(const absl::Status&)> fail_job;
    // What the process does after a failure of the job during which a stream waits for a call, or the device has graphs
    // with calls. If it goes on, Abort must be able to end the device's work.
    enum class AfterFailure : uint8_t { kGoesOn, kEnds } process = AfterFailure::kGoesOn;
  };
  virtual absl::StatusOr<std::unique_ptr<DirectTransport>> ConnectDirectly(const DirectRequest& request) = 0;
};

// A rank's connection to the rest of the job. After ControlPlane::Fail(), or the death of a peer, the communicator's
// calls also return the job's failure.
struct Transport {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<FlightBoard> flights;             // the events of all ranks; never nullptr
  std::string job_id = {};                          // identifies the job for monitoring; may be empty
  std::optional<HostLevels> levels = std::nullopt;  // owned by the communicator; nullopt: the communicator has none
  // Support for tensors in device memory. nullptr: such tensors are rejected.
  std::shared_ptr<DeviceSupport> devices = nullptr;
  // Destroyed before the other members, so that its destructor can prepare the rank's departure while they still exist.
  // May be nullptr.
  std::shared_ptr<const void> departure = nullptr;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_
