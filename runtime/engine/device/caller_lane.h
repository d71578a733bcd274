// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_CALLER_LANE_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_CALLER_LANE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/captured_calls.h"
#include "runtime/engine/device/device_watch.h"
#include "runtime/engine/device/lane_exchange.h"
#include "runtime/engine/device/lane_memory.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Carries out the collectives of one process set on tensors in device memory, in the order of the calls. The calling
// thread itself enqueues each call on the device. The ranks do not negotiate, so no call waits for the background
// thread or for a message. In return, all ranks of the set must make the same calls in the same order.
//
// Each lane has its own stream and transport. A call runs on the lane's stream, after all earlier calls and after the
// work that was on the submission's stream. The handle of a call is complete at once, even if the device is still
// working. A stream that needs the result waits for the handle's DeviceCompletion.
//
// Each call has a number, and a label that contains everything on which the ranks must agree, for example "call 17 of
// lane 1: 4096 x float32, sum". The rank records the call in its flight recorder, which the other ranks can read. As
// long as a call has not ended, the watch compares the ranks' events. If another rank has made a different call with
// the same number, or has refused the call, the job fails with an error that contains the events of both ranks. Events
// of ranks on other hosts may be missing. In that case the call fails at its deadline, and the error contains the last
// event of each rank.
//
// In an exchange each rank has its own element counts, which a label that is the same on all ranks cannot contain. So
// each rank also records these counts. What rank a sends to rank b must equal what b receives from a. The watch
// compares the counts until the call has ended, and then once more, because NCCL may end a call whose counts differ.
//
// A lane may have memory that all ranks have registered together (LaneMemory). NCCL needs each buffer of a call to be
// in this memory on all ranks or on none, and to have the same offset on all ranks. So the label has the offsets, and
// the watch compares the labels once more when the device has carried out the call: NCCL may end a call whose offsets
// differ, with wrong numbers.
//
// The engine carries out the operations that the transport lacks (Carries()). The device carries out these operations
// and the lane's calls in the caller's order: OrderBefore() makes an operation wait for the earlier calls, and Follow()
// makes the later calls wait for the operation.
//
// Thread-safe. All ranks must make the calls in the same order. So the calls must come from one thread, or from several
// threads that agree on an order.
class CallerLane {
 public:
  struct Options {
    ProcessSetId process_set = kGlobalProcessSet;
    uint64_t earlier_calls = 0;  // of the set's closed lanes, on all ranks; the flight recorders may still have them
    std::shared_ptr<const Group> members;
    RankDevice* rank_device = nullptr;  // not owned
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    absl::StatusOr<std::shared_ptr<LaneMemory>> memory;  // or the reason why the lane has none, the same on all ranks
    std::unique_ptr<DirectTransport> transport;          // on `stream`
    WaitLimits limits;                                   // of calls that have no limits themselves
    Submitter submitter;                                 // for CheckSubmission
    std::shared_ptr<CallbackThread> callbacks;
    DeviceWatch::Options watch;  // without the fields of the transport, and without the objection
  };

  // Errors: RESOURCE_EXHAUSTED if the system cannot create a thread.
  static absl::StatusOr<std::unique_ptr<CallerLane>> Create(Options options);

  // Ends the transport. Unless the job has failed, does so together with the other members, for which it waits a few
  // seconds.
  ~CallerLane();

  // Whether the lane carries out `submission`, whose name is ignored and overwritten. All members get the same answer
  // if their submissions match. An operation by rows may be in place: its smaller buffer is the rank's part of the
  // larger one. Errors: INVALID_ARGUMENT if CheckSubmission refuses `submission` for another reason.
  absl::StatusOr<bool> Carries(Submission& submission) const;

  // Whether the lane carries out reductions of the kind of `request`, whatever their shape.
  bool Reduces(const TensorRequest& request) const;

  // Enqueues the operation on the device. Overwrites the name in `*submission`.
  // REQUIRES: Carries().
  // Errors: as RankDevice::Admit. After an error no call has been made, and the next call gets this call's number. If
  // the call cannot be enqueued on the device, the job fails. If the job has failed, the returned handle contains the
  // failure.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // Like Submit, for an exchange. Errors: as Submit; INVALID_ARGUMENT if CheckExchange refuses `exchange`.
  absl::StatusOr<std::shared_ptr<Handle>> Exchange(const LaneExchange& exchange);

  // Records that this rank does not make its next call, and why. If another rank makes the call, the job fails.
  void Refuse(absl::string_view why);

  // Returns the lane's memory. Errors: the reason why the lane has no memory, the same on all ranks.
  const absl::StatusOr<std::shared_ptr<LaneMemory>>& memory() const { return options_.memory; }

  // Makes all later work on `stream` (a cudaStream_t) wait for all calls so far.
  // Errors: as DeviceCompletion::OrderBefore.
  absl::Status OrderBefore(void* stream);

  // Makes the next call wait for `operation`, which the engine carries out. In the next call, the calling thread waits
  // until all ranks have submitted the operation; after that, only the lane's stream waits for it. The lane keeps the
  // operation until the next call, or until a later Follow() finds it done.
  void Follow(std::shared_ptr<Handle> operation);

  // Waits until the device has carried out all calls so far, or the job has failed.
  void Drain();

  // The number of the last call.
  uint64_t calls() const { return calls_.load(); }

  // Whether the device has carried out all calls.
  bool idle() const { return watch_->idle(); }

  // No call may be made after Close. Close aborts the work of calls in flight. They fail with `status`, or with
  // CANCELLED if `status` is OK.
  void Close(const absl::Status& status);

 private:
  explicit CallerLane(Options options);

  bool CarriesKind(const Submission& submission) const;
  // REQUIRES: MayBeInPlace() is true for the operation, whose shape is valid.
  bool IsInPlace(const Submission& submission) const;
  kernels::Scale ScaleOf(const TensorRequest& request) const;
  std::string LabelOf(uint64_t number, const Submission& submission) const;
  std::string LabelOf(uint64_t number, const LaneExchange& exchange) const;
  // Describes where the buffers are in the lane's memory, as far as the ranks must agree on it; empty if they are not
  // in it.
  std::string PlacesOf(const Submission& submission) const;
  bool IsInMemory(const void* data) const;
  // Describes `submission` as a call to the transport. The call's label is the request's name.
  DirectCall CallOf(const Submission& submission) const;

  // A call that is ready to be enqueued on the device.
  struct Prepared {
    DirectCall call;
    uint64_t bytes = 0;             // of this rank's tensors
    StreamHandle stream = nullptr;  // the caller's
    OperationResult result = {};
  };
  // Enqueues the call on the device, behind the work of the caller's stream. If this stream is being captured, adds the
  // call to the graph instead. `buffers` are the call's buffers. Errors: as Submit.
  absl::StatusOr<std::shared_ptr<Handle>> Start(Prepared prepared, absl::Span<const void* const> buffers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mu_);
  absl::StatusOr<std::shared_ptr<Handle>> Capture(Prepared prepared) ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mu_);
  // Records the beginning of a call, and its parts.
  void Record(FlightKind kind, const DirectCall& call, uint64_t bytes) const;
  // Must be called before the transport is aborted because the job has failed.
  void HoldCaptured();
  // Returns nullptr if no call has been captured.
  std::shared_ptr<CapturedCalls> captured_calls() const;
  // Returns the completion of the next call, and starts to watch it.
  std::shared_ptr<DeviceCompletion> Watch(const DirectCall& call, uint64_t bytes);
  // Enqueues the call on the lane's stream, behind the point `ready`.
  absl::Status Launch(const DirectCall& call, const ReadyPoint& ready, DeviceCompletion& completion);
  OperationResult ResultOf(const Submission& submission) const;
  std::shared_ptr<Handle> MakeHandle(std::string label) const;
  void AwaitFollowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mu_);
  absl::Status failure() const;
  // Returns the completion of the last call; nullptr if there was no call.
  std::shared_ptr<DeviceCompletion> last() const;
  // See DeviceWatch::Options. Compares the call with the events of the other ranks.
  absl::Status Objection(const DeviceCompletion& completion) const {
    return Compare(completion.options().op, completion.options().label);
  }
  absl::Status Compare(OpType op, absl::string_view label) const;
  // Fails the job if the device has carried out a call that differs between the ranks, and that NCCL does not
  // necessarily block: an exchange, or a call of a lane with memory.
  void CheckEnded(const DeviceCompletion& completion) const;
  absl::Status CompareLabels(OpType op, absl::string_view label, RankId peer,
                             absl::Span<const FlightEvent> events) const;
  absl::Status CompareParts(OpType op, absl::string_view label, RankId peer, absl::Span<const FlightEvent> own,
                            absl::Span<const FlightEvent> events) const;
  FlightRecorder& own_flights() const { return options_.watch.flights->Of(options_.watch.rank); }

  mutable Mutex mu_;
  // nullptr: no call has been captured.
  std::shared_ptr<CapturedCalls> captured_ ABSL_GUARDED_BY(mu_);
  const Options options_;
  std::shared_ptr<const std::function<absl::Status()>> known_failure_;  // for completions
  // Orders the calls: a thread holds this lock during a whole call, even while the transport waits for other ranks. The
  // watch and Close() do not need it.
  Mutex calls_mu_;
  std::atomic<uint64_t> calls_;  // changes with calls_mu_ held
  std::vector<std::shared_ptr<Handle>> followed_ ABSL_GUARDED_BY(calls_mu_);
  std::shared_ptr<DeviceCompletion> last_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<DeviceWatch> watch_;  // the last member, because it uses the others
};

// The lanes of a rank, by process set.
//
// Thread-safe.
class CallerLanes {
 public:
  CallerLanes() = default;
  // Waits until the retired lanes have ended.
  ~CallerLanes();

  // Returns the set's lane; nullptr if the set has no lane.
  std::shared_ptr<CallerLane> Find(ProcessSetId process_set) const;
  // Returns how many calls this rank has made on the earlier lanes of the set.
  uint64_t EarlierCalls(ProcessSetId process_set) const;
  // Adds a lane for the set. REQUIRES: the set has no lane.
  // Errors: the status that was given to Close().
  absl::Status Add(ProcessSetId process_set, std::shared_ptr<CallerLane> lane);
  // Removes and returns the set's lane. Returns nullptr if the set had no lane.
  std::shared_ptr<CallerLane> Remove(ProcessSetId process_set);
  // Removes the lane like Remove(), for a caller that must not wait. A separate thread ends the lane when the device
  // has carried out the lane's calls.
  void Retire(ProcessSetId process_set);

  bool idle() const;
  // Calls CallerLane::Close() on all lanes. No lane can be added afterwards.
  void Close(const absl::Status& status);

 private:
  // Removes and returns the set's lane; nullptr if the set has no lane.
  std::shared_ptr<CallerLane> ExtractLocked(ProcessSetId process_set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns all lanes, including the retired ones.
  std::vector<std::shared_ptr<CallerLane>> All() const;
  void EndRetired();

  mutable Mutex mu_;
  std::map<ProcessSetId, std::shared_ptr<CallerLane>> lanes_ ABSL_GUARDED_BY(mu_);
  std::map<ProcessSetId, uint64_t> earlier_calls_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<CallerLane>> retired_ ABSL_GUARDED_BY(mu_);
  bool ends_retired_ ABSL_GUARDED_BY(mu_) = false;  // ender_ has not found retired_ empty
  std::thread ender_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);  // OK: they have not been closed
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_CALLER_LANE_H_
