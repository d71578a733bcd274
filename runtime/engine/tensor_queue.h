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
#include "runtime/schedule/locked_schedule.h"

namespace ronda {

class DeviceCompletion;
class ReadyPoint;

// A submission in flight.
struct TensorEntry {
  Submission submission;
  uint64_t version = 0;  // of submission.request: another one whenever it differs from the last one of this name
  std::shared_ptr<Handle> handle;
  std::shared_ptr<const ReadyPoint> ready;    // on a device: from where on its stream its buffers are; else nullptr
  absl::Time since;                           // when it was added
  absl::Time taken = absl::InfiniteFuture();  // when the engine took it
  FlightTime reported;                        // when the engine reported it to the coordinator last
  uint64_t learned_of = 0;                    // of how many completions the program had learned when it was added

  // Where a version of the request is in a locked schedule: the progress thread's own note, kept for the next
  // submission.
  struct Scheduled {
    uint64_t schedule = 0;  // its number; 0: in none
    uint64_t version = 0;
    LockedSchedule::Position position;
  };
  Scheduled scheduled;

  // Not nullptr: the handle is complete, as far as the host is concerned, but the ranks have still to decide whether
  // the bucket of this completion is carried out. If it is not, this is carried out later.
  std::shared_ptr<DeviceCompletion> undecided;
};

// The tensors in flight on this rank, by process set and name: trainer threads add them, the engine takes them out.
//
// The memory of a tensor is kept, idle, for the next submission of the same name: a training step that is like those
// before allocates nothing. Names that have not been in flight for the longest time are forgotten when there are too
// many (kMaxIdle, or as many as have been in flight at once). Those of joins and of changes of process sets, which may
// never come again, are forgotten at once, and so are those of a process set that is removed.
//
// Thread-safe. Entries are completed by the engine only, so the pointers that it gets stay valid until it completes or
// closes.
class TensorQueue {
 public:
  static constexpr size_t kMaxIdle = 4096;

  // `callbacks` and `progress`, which may be null, are for the handles. `log`, which is not owned, takes note of
  // submissions.
  TensorQueue(std::shared_ptr<CallbackThread> callbacks, std::shared_ptr<ProgressEngine> progress, TensorLog* log)
      : callbacks_(std::move(callbacks)),
        progress_(std::move(progress)),
        log_(log),
        handle_memory_(BlockPool::Create()) {}

  using Ready = std::shared_ptr<const ReadyPoint>;

  // Adds a copy of `submission` or, after an error or an exception (std::bad_alloc), nothing. `ready` is of those in
  // the memory of a device. A tensor whose name is in flight follows behind if it is unnamed, or if the one before is
  // launched and nothing follows it yet: the engine gets it when the one before is complete.
  // Errors: ALREADY_EXISTS if a name that the caller gave is in flight in its process set; the status the queue was
  // closed with.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now,
                                              const Ready& ready = nullptr);

  // Adds all of `submissions` or, after an error or an exception, none; `*handles` becomes theirs, in their order.
  // `ready`: one for each, or none.
  // Errors: as Add; ALREADY_EXISTS also if a name is there twice, or if tensors of the same group are in flight.
  absl::Status AddAll(absl::Span<const Submission> submissions, absl::Time now,
                      std::vector<std::shared_ptr<Handle>>* handles, absl::Span<const Ready> ready = {});

  // The entries added since the last call, in the order in which they were added. Valid until the next call: for one
  // thread at a time.
  const std::vector<TensorEntry*>& TakeFresh(absl::Time now);

  // The entries that TakeFresh has returned and that are still in flight, in the order in which they were added.
  std::vector<TensorEntry*> Taken();

  // When the oldest entry that TakeFresh would return was added; infinite future if there is none.
  absl::Time OldestFresh() const;

  // The entry whose `time` is the earliest; nullptr if the queue is empty. `time` must not call the queue.
  const TensorEntry* Earliest(absl::FunctionRef<absl::Time(const TensorEntry&)> time) const;

  // nullptr if no tensor of this name is in flight in this process set.
  const TensorEntry* Find(TensorKeyView key) const;

  // The receive `match.receive` gets a message, whose name it has from now on. Its handle learns of the sender.
  // Errors: INTERNAL if it is not in flight, or if a tensor of that name is.
  absl::Status Match(const ReceiveMatch& match);

  // Frees the name, then completes the handle. If a rank was late, so that it may still come to this one, the unnamed
  // tensors behind are given up too: it must not meet them instead.
  // REQUIRES: `entry` is in the queue.
  void Complete(const TensorEntry* entry, absl::Status status);

  // Completes the handles, whose operations have been launched. The ranks have still to decide on them: the entries
  // stay in flight, until they are completed in earnest; the names are free for one more submission each. Afterwards
  // `results` hold nothing.
  void Launch(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results,
              const std::shared_ptr<DeviceCompletion>& undecided);

  // Complete for many; afterwards `results`, one an entry, hold nothing. After an exception none is complete. Handles
  // that were completed by Launch stay as they are.
  void CompleteAll(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results);

  // From now on Add returns `status`. The first call wins.
  void Refuse(absl::Status status);

  // The process set is no more: its names are forgotten, but for those in flight.
  void Forget(ProcessSetId process_set);

  // Refuse, and complete every entry with `status`, prefixed by its name.
  void Close(const absl::Status& status);

  // Whether a submission waits for one of the same name to be complete.
  bool has_followers() const { return follower_count_.load(std::memory_order_relaxed) > 0; }

  // Finds every submission that was accepted before something that this thread knows of.
  bool empty() const { return in_flight_count_.load(std::memory_order_relaxed) == 0; }

  // Whether nothing is in flight but removals of process sets, which a rank that shuts down need not wait for.
  bool has_only_removals() const;

 private:
  // A tensor that waits for the one of its name to be complete.
  struct Follower {
    Submission submission;
    Ready ready;
    absl::Time since;
    std::shared_ptr<Handle> handle;
  };

  // A name, and its entry: in flight if that has a handle, else idle.
  struct Slot : TensorEntry {
    explicit Slot(TensorKeyView k)
        : name(std::make_shared<const std::string>(k.name)), key({.process_set = k.process_set, .name = *name}) {}

    bool in_flight() const { return handle != nullptr; }

    const std::shared_ptr<const std::string> name;
    const TensorKeyView key;
    std::list<Slot>::iterator place;  // this slot's own, in either list
    std::list<Follower> followers;    // empty while idle
    uint64_t step = 0;                // the last one that it was submitted in
  };
  using SlotList = std::list<Slot>;

  // The names are the slots' own. Not Abseil's table: one that finds no memory to grow is corrupt, and this one must
  // outlive that.
  using Table = std::unordered_map<TensorKeyView, Slot*, absl::Hash<TensorKeyView>>;

  // The first of `submissions` whose group has tensors in flight, or nullptr.
  const Submission* GroupInFlightLocked(absl::Span<const Submission> submissions) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room among the fresh entries.
  void ReserveLocked(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those of `submissions` go in flight in their order, or follow, up to the first that may not: then an error.
  absl::Status InsertAllLocked(absl::Span<const Submission> submissions, absl::Span<const Ready> ready, absl::Time now,
                               std::vector<std::shared_ptr<Handle>>* handles) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Undoes it for those that have `handles`, and empties these.
  void RemoveAllLocked(absl::Span<const Submission> submissions, size_t fresh_before,
                       std::vector<std::shared_ptr<Handle>>* handles) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An error or an exception leaves at most an idle slot behind.
  // REQUIRES: ReserveLocked; `slot` is that of the submission's name.
  absl::Status InsertLocked(const Submission& submission, const Ready& ready, absl::Time now, Slot& slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // REQUIRES: ReserveLocked; `slot` is in flight.
  std::shared_ptr<Handle> FollowLocked(const Submission& submission, const Ready& ready, absl::Time now, Slot& slot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether another submission may follow those in flight, though it is named. A refusal has no handle that its caller
  // could wait for.
  static bool IsFree(const Slot& slot) {
    const Submission& last = slot.followers.empty() ? slot.submission : slot.followers.back().submission;
    if (!last.request.refusal.empty()) return true;
    return slot.undecided != nullptr && slot.followers.empty();
  }
  // The first follower of an idle slot goes in flight. Allocates nothing.
  void AdvanceLocked(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Handle> MakeHandle(const Slot& slot);
  // The slot of this name; a new one, idle, if there is none.
  Slot& SlotLocked(TensorKeyView key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `slot` is about to leave the idle ones. A program that repeats its steps submits next the tensor that was completed
  // next.
  void ExpectAfterLocked(const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked(SlotList::iterator idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Slot& SlotOf(const TensorEntry* entry) { return *static_cast<const Slot*>(entry)->place; }
  // Takes a copy of `submission` into the memory that the slot has.
  static void Assign(const Submission& submission, Slot& slot);
  static void Copy(const Submission& submission, Submission* kept);
  // The slot becomes idle, or its first follower goes in flight. Its handle; nullptr if that has been completed.
  std::shared_ptr<Handle> RetireLocked(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those among the fresh entries from place `first` on.
  void RecordLocked(size_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountStepLocked(Slot& slot, uint64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLocked(size_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<CallbackThread> callbacks_;
  const std::shared_ptr<ProgressEngine> progress_;
  TensorLog* const log_;
  const BlockPool::Owner handle_memory_;
  std::vector<TensorEntry*> taken_;               // by the last TakeFresh
  std::vector<std::shared_ptr<Handle>> retired_;  // empty but in CompleteAll

  mutable Mutex mu_;
  SlotList in_flight_ ABSL_GUARDED_BY(mu_);                       // in the order in which they were added
  SlotList idle_ ABSL_GUARDED_BY(mu_);                            // in the order in which they were completed
  SlotList::iterator likely_ ABSL_GUARDED_BY(mu_) = idle_.end();  // idle, and perhaps submitted next
  Table slots_ ABSL_GUARDED_BY(mu_);                              // of both lists
  size_t most_in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<Follower> spare_followers_ ABSL_GUARDED_BY(mu_);  // kept for their memory
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 1;                    // a step ends when a name that it has comes again
  std::vector<Slot*> fresh_ ABSL_GUARDED_BY(mu_);
  // How many there are, for readers that only need to know that there are none. Written under mu_: that orders them
  // with all that a reader can know of. A thread that adds an entry while no thread drives has one drive afterwards
  // (progress_engine.h).
  std::atomic<size_t> in_flight_count_{0};
  std::atomic<size_t> follower_count_{0};  // of all slots
  std::atomic<size_t> fresh_count_{0};
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
