// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
#define RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/tensor_request.h"
#include "runtime/step/step.h"

namespace ronda {

class ReadyPoint;

// A submission in flight.
struct TensorEntry {
  Submission submission;
  uint64_t version = 0;  // a new number whenever submission.request differs from the last one of this name
  std::shared_ptr<Handle> handle;
  std::shared_ptr<const ReadyPoint> ready;     // on a device: where on its stream its buffers are ready; else nullptr
  absl::Time since;                            // when it was added
  absl::Time popped = absl::InfiniteFuture();  // when the engine took it
  FlightTime reported;                         // when the engine last reported it to the coordinator
  uint64_t learned_of = 0;                     // how many completions the program knew of when it was added
  StepPlace step_place;                        // in the last schedule that it was submitted to
};

// The tensors in flight on this rank, by process set and name. Trainer threads add tensors, and the engine removes
// them.
//
// When a tensor is complete, the queue keeps its name and its memory for the next submission of this name. So a
// training step like earlier steps allocates nothing. A name is idle if it is not in flight. The queue keeps at most
// kMaxIdle idle names, or as many as were ever in flight at the same time, if that is more. At this limit, it forgets
// the names that have been idle for the longest time. It keeps no names of joins and of changes of process sets,
// because these names may never be used again. When a process set is removed, the queue also forgets the names in this
// set.
//
// Thread-safe. Only the engine completes entries, so its pointers to entries stay valid until it completes the entries
// or closes the queue.
class TensorQueue {
 public:
  static constexpr size_t kMaxIdle = 4096;

  // `callbacks` and `progress` are passed to the handles, and may be nullptr. `log` records submissions, and is not
  // owned.
  TensorQueue(std::shared_ptr<CallbackThread> callbacks, std::shared_ptr<ProgressEngine> progress, TensorLog* log)
      : callbacks_(std::move(callbacks)),
        progress_(std::move(progress)),
        log_(log),
        handle_memory_(BlockPool::Create()) {}

  using Ready = std::shared_ptr<const ReadyPoint>;

  // Adds a copy of `submission`. After an error or an exception (std::bad_alloc), nothing has been added. `ready` is
  // set only for a tensor in device memory. If the caller gave no name, and the generated name is already in flight,
  // the new tensor becomes a follower of the tensor in flight. The engine gets the follower when that tensor is
  // complete. Errors: ALREADY_EXISTS if a name that the caller gave is in flight in its process set; the status with
  // which the queue was closed.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now,
                                              const Ready& ready = nullptr);

  // Adds copies of all `submissions` to the queue. After an error or an exception, no submission has been added. Stores
  // the handles of the submissions in `*handles`, in the same order. `ready` has one element per submission, or is
  // empty.
  // Errors: those of Add; ALREADY_EXISTS also if a name occurs twice, or if tensors of the same group are in flight.
  absl::Status AddAll(absl::Span<const Submission> submissions, absl::Time now,
                      std::vector<std::shared_ptr<Handle>>* handles, absl::Span<const Ready> ready = {});

  // Returns the entries that were added since the last call, in the order in which they were added. The result is valid
  // until the next call. Only one thread at a time may call HandOverFresh.
  const std::vector<TensorEntry*>& HandOverFresh(absl::Time now);

  // Returns the entries in flight that HandOverFresh has already returned, in the order in which they were added.
  std::vector<TensorEntry*> HandedOver();

  // Returns when the oldest entry that HandOverFresh would return was added, or the infinite future if it would return
  // none.
  absl::Time OldestFresh() const;

  // Returns the entry for which `time` returns the earliest time; nullptr if the queue is empty. `time` must not call
  // the queue.
  const TensorEntry* Earliest(absl::FunctionRef<absl::Time(const TensorEntry&)> time) const;

  // Returns the entry of a tensor, or nullptr if no tensor with this name is in flight in this process set.
  const TensorEntry* Find(TensorKeyView key) const;

  // Gives a message to the receive `match.receive`. The receive takes the name of the message, and its handle records
  // the sender.
  // Errors: INTERNAL if the receive is not in flight, or if a tensor with the new name is in flight.
  absl::Status Match(const ReceiveMatch& match);

  // Frees the entry's name, and then completes the handle. If the status says that a rank was late, the followers of
  // this entry also fail. Otherwise the late rank could still submit its tensor, and the ranks would match it with one
  // of the followers. REQUIRES: `entry` is in the queue.
  void Complete(const TensorEntry* entry, absl::Status status);

  // Completes many entries. `results` has one element per entry; all of them are empty afterwards. After an exception
  // no entry is complete.
  void CompleteAll(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results);

  // Makes Add return the error `status` from now on. Later calls of Refuse have no effect.
  void Refuse(absl::Status status);

  // Must be called when `process_set` was removed. Forgets the names of the set, except the names in flight.
  void Forget(ProcessSetId process_set);

  // Refuses new submissions. Completes every entry with `status`, with the name of the entry added.
  void Close(const absl::Status& status);

  // Returns whether a submission waits until an earlier submission with the same name is complete.
  bool has_followers() const { return follower_count_.load(std::memory_order_relaxed) > 0; }

  // Returns how many tensors are in flight. The result includes every submission that the calling thread knows to be
  // accepted.
  size_t size() const { return in_flight_count_.load(std::memory_order_relaxed); }
  bool empty() const { return size() == 0; }

  // Returns whether only removals of process sets are in flight. A rank that shuts down need not wait for these.
  bool has_only_removals() const;

 private:
  // A tensor that waits until the tensor with the same name is complete.
  struct Follower {
    Submission submission;
    Ready ready;
    absl::Time since;
    std::shared_ptr<Handle> handle;
  };

  // A name and its entry. The entry is in flight if it has a handle, and idle otherwise.
  struct Slot : TensorEntry {
    explicit Slot(TensorKeyView k)
        : name(std::make_shared<const std::string>(k.name)), key({.process_set = k.process_set, .name = *name}) {}

    bool in_flight() const { return handle != nullptr; }

    const std::shared_ptr<const std::string> name;
    const TensorKeyView key;
    std::list<Slot>::iterator place;  // of this slot, in either list
    std::list<Follower> followers;    // empty while idle
    uint64_t step = 0;                // the last step in which it was submitted
  };
  using SlotList = std::list<Slot>;

  // The table finds a slot by its name, and the slot owns the name. It is not an Abseil table, which is corrupt after
  // an allocation in it has failed. This table must stay intact when memory runs out.
  using Table = std::unordered_map<TensorKeyView, Slot*, absl::Hash<TensorKeyView>>;

  // Returns the first of `submissions` whose group has tensors in flight, or nullptr.
  const Submission* GroupInFlightLocked(absl::Span<const Submission> submissions) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Allocates memory for `more` fresh entries.
  void ReserveLocked(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts `submissions` in flight, in their order. A submission whose name is in flight becomes a follower. Stops with
  // an error at the first submission that is not allowed.
  absl::Status InsertAllLocked(absl::Span<const Submission> submissions, absl::Span<const Ready> ready, absl::Time now,
                               std::vector<std::shared_ptr<Handle>>* handles) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Undoes InsertAllLocked for the submissions that have `handles`, and clears `handles`.
  void RemoveAllLocked(absl::Span<const Submission> submissions, size_t fresh_before,
                       std::vector<std::shared_ptr<Handle>>* handles) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts `submission` in flight in `slot`. After an error or an exception, at most an idle slot remains.
  // REQUIRES: ReserveLocked was called; `slot` has the submission's name.
  absl::Status InsertLocked(const Submission& submission, const Ready& ready, absl::Time now, Slot& slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds `submission` as a follower of `slot`. REQUIRES: ReserveLocked was called; `slot` is in flight.
  std::shared_ptr<Handle> FollowLocked(const Submission& submission, const Ready& ready, absl::Time now, Slot& slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether a named submission may follow the last tensor of `slot`. A named submission may follow a refusal:
  // the caller has no handle of the refusal, and so cannot wait for it to complete.
  static bool IsFree(const Slot& slot) {
    const Submission& last = slot.followers.empty() ? slot.submission : slot.followers.back().submission;
    return !last.request.refusal.empty();
  }
  // Puts the slot's first follower in flight. Allocates no memory. REQUIRES: the slot is idle, and has a follower.
  void AdvanceLocked(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Handle> MakeHandle(const Slot& slot);
  // Returns the slot with the name in `key`. If there is none, creates an idle slot.
  Slot& SlotLocked(TensorKeyView key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Must be called before `slot` leaves the idle list. If a program repeats its steps, it probably submits next the
  // tensor that was completed right after this one.
  void ExpectAfterLocked(const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked(SlotList::iterator idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Slot& SlotOf(const TensorEntry* entry) { return *static_cast<const Slot*>(entry)->place; }
  // Copies `submission` into the memory of the slot.
  static void Assign(const Submission& submission, Slot& slot);
  static void Copy(const Submission& submission, Submission* kept);
  // Makes the slot idle, or puts its first follower in flight. Returns the handle of the tensor that was in flight.
  std::shared_ptr<Handle> RetireLocked(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records in the log the fresh entries from index `first` onwards.
  void RecordLocked(size_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountStepLocked(Slot& slot, uint64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLocked(size_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<CallbackThread> callbacks_;
  const std::shared_ptr<ProgressEngine> progress_;
  TensorLog* const log_;
  const BlockPool::Owner handle_memory_;
  std::vector<TensorEntry*> handed_over_;         // returned by the last HandOverFresh
  std::vector<std::shared_ptr<Handle>> retired_;  // empty except in CompleteAll

  mutable Mutex mu_;
  SlotList in_flight_ ABSL_GUARDED_BY(mu_);                       // in the order in which they were added
  SlotList idle_ ABSL_GUARDED_BY(mu_);                            // in the order in which they were completed
  SlotList::iterator likely_ ABSL_GUARDED_BY(mu_) = idle_.end();  // an idle slot that may be submitted next
  Table slots_ ABSL_GUARDED_BY(mu_);                              // of both lists
  size_t most_in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<Follower> spare_followers_ ABSL_GUARDED_BY(mu_);  // kept for their memory
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 1;                    // a step ends when one of its names is submitted again
  std::vector<Slot*> fresh_ ABSL_GUARDED_BY(mu_);
  // The sizes of the queue, which threads may read without the lock. They are written under mu_, so a thread that knows
  // of a submission also sees sizes that include it. If no thread is making progress when an entry is added, the thread
  // that adds it ensures that some thread does so afterwards (progress_engine.h).
  std::atomic<size_t> in_flight_count_{0};
  std::atomic<size_t> follower_count_{0};  // of all slots
  std::atomic<size_t> fresh_count_{0};
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
