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
// them. The calling thread gives a call to the device. The ranks agree on nothing, so no call waits for the background
// thread or for a message. In return all ranks of the set must make the same calls in the same order.
//
// A lane has a stream and a transport of its own. On the stream a call comes after the caller's work (the submission's
// stream), and after all earlier calls. Handles are complete at once, as those of launched buckets: streams wait for
// their DeviceCompletion.
//
// Each call has a number, and a label of what the ranks must agree on: "call 17 of lane 1: 4096 x float32, sum". It is
// an event of the rank's flight recorder, which its peers can read. While a call does not end, the watch compares the
// ranks' events. If a rank has made another call with that number, or has refused it, the job fails, and the error has
// both. Events of ranks on other hosts may be missing. Then the call fails at its deadline, with the last event of each
// rank.
//
// What the transport lacks (Carries()), the engine carries out. Such operations and the lane's calls keep the caller's
// order on the device: OrderBefore() makes an operation come after the earlier calls, and Follow() makes the later
// calls come after the operation.
//
// Thread-safe. The ranks' order is that of the calls of one thread, or of threads that order their calls.
class CallerLane {
 public:
  struct Options {
    ProcessSetId process_set = kGlobalProcessSet;
    uint64_t earlier_calls = 0;  // of the set's closed lanes, on all ranks; the flight recorders may still have them
    std::shared_ptr<const Group> members;
    RankDevice* rank_device = nullptr;  // not owned
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<DirectTransport> transport;  // on it
    WaitLimits limits;                           // of calls that have none
    Submitter submitter;                         // for CheckSubmission
    std::shared_ptr<CallbackThread> callbacks;
    DeviceWatch::Options watch;  // without the fields of the transport, and without the objection
  };

  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give.
  static absl::StatusOr<std::unique_ptr<CallerLane>> Create(Options options);

  // Ends the transport, together with the other members if the job has not failed; waits a few seconds for them.
  ~CallerLane();

  // Whether the lane carries out such a submission. The answer is the same on all members if their submissions fit
  // together.
  // Errors: INVALID_ARGUMENT as CheckSubmission, for any submission without a name.
  absl::StatusOr<bool> Carries(Submission& submission) const;

  // Whether it carries out reductions like this one, whatever their shape.
  bool Reduces(const TensorRequest& request) const;

  // Gives the operation to the device. The content of `*submission` is lost.
  // REQUIRES: Carries().
  // Errors: as RankDevice::Admit, after which nothing has happened, and the next call has this call's number. If the
  // job has failed, or if it fails because the call cannot be given to the device, that is the error of the handle.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // This rank does not make its next call, and says why. If another rank makes the call, the job fails.
  void Refuse(absl::string_view why);

  // What `stream` (a cudaStream_t) gets from now on comes after all calls so far.
  // Errors: as DeviceCompletion::OrderBefore.
  absl::Status OrderBefore(void* stream);

  // The next call comes after the engine's operation. It waits until all ranks have submitted the operation. The lane
  // keeps the operation until then, or until a later Follow() finds that it is done.
  void Follow(std::shared_ptr<Handle> operation);

  // Waits until the device has carried out all calls so far, or the job has failed.
  void Drain();

  // The number of the last call.
  uint64_t calls() const { return calls_.load(); }

  // Whether the device has carried out everything.
  bool idle() const { return watch_->idle(); }

  // No call comes any more. Calls under way fail with `status`, and if that is not OK, their work is ended.
  void Close(const absl::Status& status);

 private:
  explicit CallerLane(Options options);

  bool CarriesKind(const Submission& submission) const;
  kernels::Scale ScaleOf(const TensorRequest& request) const;
  WaitLimits LimitsOf(const TensorRequest& request) const { return request.limits.value_or(options_.limits); }
  std::string LabelOf(uint64_t number, const TensorRequest& request) const;
  // The label is the request's name.
  DirectCall CallOf(const Submission& submission) const;
  // The next call, which the watch observes from now on.
  std::shared_ptr<DeviceCompletion> Watch(const Submission& submission);
  // Puts the call on the stream, behind `ready`.
  absl::Status Launch(const DirectCall& call, const ReadyPoint& ready, DeviceCompletion& completion);
  OperationResult ResultOf(const Submission& submission) const;
  std::shared_ptr<Handle> MakeHandle(std::string label) const;
  void AwaitFollowed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mu_);
  absl::Status failure() const;
  // The last call; nullptr: there was none.
  std::shared_ptr<DeviceCompletion> last() const;
  // See DeviceWatch::Options.
  absl::Status Objection(const DeviceCompletion& completion) const;
  absl::Status Objection(const DeviceCompletion& completion, RankId peer) const;
  FlightRecorder& own_flights() const { return options_.watch.flights->Of(options_.watch.rank); }

  const Options options_;
  std::shared_ptr<const std::function<absl::Status()>> known_failure_;  // for completions
  // Held during a whole call, also while the transport waits for other ranks: it makes the order of the calls. Neither
  // the watch nor Close() needs it.
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

  // nullptr if the set has none.
  std::shared_ptr<CallerLane> Find(ProcessSetId process_set) const;
  // The calls of the lanes that the set has had on this rank.
  uint64_t EarlierCalls(ProcessSetId process_set) const;
  // REQUIRES: the set has none.
  // Errors: as given to Close().
  absl::Status Add(ProcessSetId process_set, std::shared_ptr<CallerLane> lane);
  // Returns the set's lane, which is no longer there; nullptr if it had none.
  std::shared_ptr<CallerLane> Remove(ProcessSetId process_set);
  // As Remove(), for a caller that must not wait: a thread ends the lane, once the device has carried out its calls.
  void Retire(ProcessSetId process_set);

  bool idle() const;
  // CallerLane::Close() for all lanes; no lane can be added any more.
  void Close(const absl::Status& status);

 private:
  // Takes the lane out; nullptr: there is none.
  std::shared_ptr<CallerLane> ExtractLocked(ProcessSetId process_set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // With the retired ones.
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
