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
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/device_watch.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// The collectives of one process set on tensors in the memory of devices, in the order in which the set's ranks call
// them. The calling thread itself gives each call to the device. The ranks do not negotiate, so no call waits for the
// background thread or for a message. In return, all ranks of the set must make the same calls in the same order.
//
// A lane has a stream and a transport of its own. On the lane's stream a call comes after the work on the submission's
// stream, and after all earlier calls. The handle of a call is complete at once, like the handle of a launched bucket.
// Streams wait for the DeviceCompletion of the handle.
//
// Each call has a number, and a label with everything that the ranks must agree on, for example "call 17 of lane 1:
// 4096 x float32, sum". The call is an event in the rank's flight recorder, which the rank's peers can read. While a
// call does not end, the watch compares the ranks' events. If a rank has made another call with that number, or has
// refused it, the job fails, and the error has both events. Events of ranks on other hosts may be missing. Then the
// call fails at its deadline, with the last event of each rank.
//
// The engine carries out the operations that the transport lacks (Carries()). These operations and the lane's calls
// keep the caller's order on the device: OrderBefore() makes an operation come after the earlier calls, and Follow()
// makes the later calls come after the operation.
//
// Thread-safe. The calls must have the same order on all ranks, so one thread makes them, or several threads that order
// their calls.
class CallerLane {
 public:
  struct Options {
    ProcessSetId process_set = kGlobalProcessSet;
    uint64_t earlier_calls = 0;  // of the set's closed lanes, on all ranks; the flight recorders may still have them
    std::shared_ptr<const Group> members;
    RankDevice* rank_device = nullptr;  // not owned
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<DirectTransport> transport;  // on `stream`
    WaitLimits limits;                           // of calls that have no limits themselves
    Submitter submitter;                         // for CheckSubmission
    std::shared_ptr<CallbackThread> callbacks;
    DeviceWatch::Options watch;  // without the fields of the transport, and without the objection
  };

  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give.
  static absl::StatusOr<std::unique_ptr<CallerLane>> Create(Options options);

  // Ends the transport, together with the other members if the job has not failed; waits a few seconds for them.
  ~CallerLane();

  // Whether the lane carries out `submission`. The answer is the same on all members if their submissions fit together.
  // Errors: INVALID_ARGUMENT as CheckSubmission, for any submission without a name.
  absl::StatusOr<bool> Carries(Submission& submission) const;

  // Whether the lane carries out reductions like `request`, whatever their shape.
  bool Reduces(const TensorRequest& request) const;

  // Gives the operation to the device. The content of `*submission` is lost.
  // REQUIRES: Carries().
  // Errors: as RankDevice::Admit. After an error nothing has happened, and the next call has the same number. If the
  // job has failed, or if it fails because the call cannot be given to the device, the handle has the job's failure.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // Records that this rank does not make its next call, and why. If another rank makes the call, the job fails.
  void Refuse(absl::string_view why);

  // Makes the work that is put on `stream` (a cudaStream_t) from now on come after all calls so far.
  // Errors: as DeviceCompletion::OrderBefore.
  absl::Status OrderBefore(void* stream);

  // Makes the next call come after an operation of the engine. The next call waits until all ranks have submitted the
  // operation. The lane keeps the operation until the next call, or until a later Follow() finds that the operation is
  // done.
  void Follow(std::shared_ptr<Handle> operation);

  // Waits until the device has carried out all calls so far, or the job has failed.
  void Drain();

  // The number of the last call.
  uint64_t calls() const { return calls_.load(); }

  // Whether the device has carried out everything.
  bool idle() const { return watch_->idle(); }

  // No call may come after this one. Calls under way fail with `status`. If `status` is not OK, their work on the
  // device is ended.
  void Close(const absl::Status& status);

 private:
  explicit CallerLane(Options options);

  bool CarriesKind(const Submission& submission) const;
  kernels::Scale ScaleOf(const TensorRequest& request) const;
  WaitLimits LimitsOf(const TensorRequest& request) const { return request.limits.value_or(options_.limits); }
  std::string LabelOf(uint64_t number, const TensorRequest& request) const;
  // The label is the request's name.
  DirectCall CallOf(const Submission& submission) const;
  // Returns the completion of the next call, which the watch observes from now on.
  std::shared_ptr<DeviceCompletion> Watch(const Submission& submission);
  // Puts the call on the stream, behind `ready`.
  absl::Status Launch(const DirectCall& call, const ReadyPoint& ready, DeviceCompletion& completion);
  OperationResult ResultOf(const Submission& submission) const;
  std::shared_ptr<Handle> MakeHandle(std::string label) const;
  void AwaitFollowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mu_);
  absl::Status failure() const;
  // Returns the completion of the last call; nullptr if there was no call.
  std::shared_ptr<DeviceCompletion> last() const;
  // See DeviceWatch::Options.
  absl::Status Objection(const DeviceCompletion& completion) const;
  absl::Status Objection(const DeviceCompletion& completion, RankId peer) const;
  FlightRecorder& own_flights() const { return options_.watch.flights->Of(options_.watch.rank); }

  const Options options_;
  std::shared_ptr<const std::function<absl::Status()>> known_failure_;  // for completions
  // Held during a whole call, also while the transport waits for other ranks, because it orders the calls. Neither the
  // watch nor Close() needs it.
  Mutex calls_mu_;
  std::atomic<uint64_t> calls_;  // changes with calls_mu_ held
  std::vector<std::shared_ptr<Handle>> followed_ ABSL_GUARDED_BY(calls_mu_);
  mutable Mutex mu_;
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

  // Returns nullptr if the set has no lane.
  std::shared_ptr<CallerLane> Find(ProcessSetId process_set) const;
  // Returns how many calls the earlier lanes of the set have made on this rank.
  uint64_t EarlierCalls(ProcessSetId process_set) const;
  // REQUIRES: the set has no lane.
  // Errors: the status that was given to Close().
  absl::Status Add(ProcessSetId process_set, std::shared_ptr<CallerLane> lane);
  // Removes and returns the set's lane. Returns nullptr if the set had no lane.
  std::shared_ptr<CallerLane> Remove(ProcessSetId process_set);
  // As Remove(), for a caller that must not wait. A separate thread ends the lane once the device has carried out its
  // calls.
  void Retire(ProcessSetId process_set);

  bool idle() const;
  // CallerLane::Close() for all lanes; no lane can be added any more.
  void Close(const absl::Status& status);

 private:
  // Takes the lane out; nullptr: there is none.
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
