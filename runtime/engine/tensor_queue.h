#ifndef RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
#define RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_

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
#include "runtime/engine/submission.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/negotiation/tensor_key.h"

namespace ronda {

// A submission in flight.
struct TensorEntry {
  Submission submission;
  std::shared_ptr<Handle> handle;
  absl::Time since;                           // when it was added
  absl::Time taken = absl::InfiniteFuture();  // when the coordinator thread took it
};

// The tensors in flight on this rank, by process set and name: trainer threads add them, the coordinator thread takes
// them out.
//
// Thread-safe. Entries are removed by the coordinator thread only, so the pointers that it gets stay valid until it
// completes or closes.
class TensorQueue {
 public:
  // `callbacks` runs what the handles' OnCompletion gets. `flight`, which is not owned, takes note of submissions.
  TensorQueue(std::shared_ptr<CallbackThread> callbacks, FlightRecorder* flight)
      : callbacks_(std::move(callbacks)), flight_(flight) {}

  // Adds all of `submissions` or, after an error or an exception (std::bad_alloc), none; the handles are in their
  // order. Errors: ALREADY_EXISTS if a name is in flight in its process set, or there twice, or if tensors of the same
  // group are in flight; the status the queue was closed with.
  absl::StatusOr<std::vector<std::shared_ptr<Handle>>> AddAll(std::vector<Submission> submissions, absl::Time now);

  // AddAll of one.
  absl::StatusOr<std::shared_ptr<Handle>> Add(Submission submission, absl::Time now);

  // The entries added since the last call, in the order in which they were added.
  std::vector<const TensorEntry*> TakeFresh(absl::Time now);

  // When the oldest entry that TakeFresh would return was added; infinite future if there is none.
  absl::Time OldestFresh() const;

  // The entry whose `time` is the earliest; nullptr if the queue is empty. `time` must not call the queue.
  const TensorEntry* Earliest(absl::FunctionRef<absl::Time(const TensorEntry&)> time) const;

  // nullptr if no tensor of this name is in flight in this process set.
  const TensorEntry* Find(TensorKeyView key) const;

  // Frees the name, then completes the handle.
  // REQUIRES: `entry` is in the queue.
  void Complete(const TensorEntry* entry, absl::Status status);
  void Complete(const TensorEntry* entry, OperationResult result);

  // From now on Add returns `status`. The first call wins.
  void Refuse(absl::Status status);

  // Refuse, and complete every entry with `status`, prefixed by its name.
  void Close(const absl::Status& status);

  bool empty() const;

 private:
  // The names are the entries' own. Not Abseil's table: one that finds no memory to grow is corrupt, and this one must
  // outlive that.
  using Table = std::unordered_map<TensorKeyView, std::unique_ptr<TensorEntry>, absl::Hash<TensorKeyView>>;

  std::unique_ptr<TensorEntry> NewEntry(Submission submission, absl::Time now) const;
  // The first of `entries` whose group has tensors in flight, or nullptr.
  const TensorEntry* GroupInFlightLocked(absl::Span<const std::unique_ptr<TensorEntry>> entries) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes room among the fresh entries, so that nothing but the table allocates when entries are inserted.
  void ReserveLocked(size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // nullptr, or, if the name is in flight, `entry` itself. An exception leaves nothing of it behind.
  // REQUIRES: ReserveLocked.
  std::unique_ptr<TensorEntry> InsertLocked(std::unique_ptr<TensorEntry> entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first of `entries` whose name is in flight, or nullptr.
  std::unique_ptr<TensorEntry> InsertAllLocked(std::vector<std::unique_ptr<TensorEntry>> entries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those among the fresh entries from place `first` on.
  void RecordLocked(size_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLocked(size_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<TensorEntry> Extract(const TensorEntry* entry);

  const std::shared_ptr<CallbackThread> callbacks_;
  FlightRecorder* const flight_;
  mutable Mutex mu_;
  Table in_flight_ ABSL_GUARDED_BY(mu_);
  std::vector<TensorEntry*> fresh_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
