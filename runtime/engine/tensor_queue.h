#ifndef RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
#define RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// A submission in flight.
struct TensorEntry {
  Submission submission;
  std::shared_ptr<Handle> handle;
  absl::Time since;
};

// The tensors in flight on this rank, by name: trainer threads add them, the coordinator thread takes them out.
//
// Thread-safe. Entries are removed by the coordinator thread only, so the pointers that it gets stay valid until it
// completes or closes.
class TensorQueue {
 public:
  // Errors: ALREADY_EXISTS if the name is in flight; the status the queue was closed with.
  absl::StatusOr<std::shared_ptr<Handle>> Add(Submission submission, absl::Time now);

  // The entries added since the last call, in the order in which they were added.
  std::vector<const TensorEntry*> TakeFresh();

  // When the oldest entry that TakeFresh would return was added; infinite future if there is none.
  absl::Time OldestFresh() const;

  // The oldest entry; nullptr if the queue is empty.
  const TensorEntry* Oldest() const;

  // nullptr if no tensor of this name is in flight.
  const TensorEntry* Find(absl::string_view name) const;

  // Frees the name, then completes the handle.
  // REQUIRES: the name is in flight.
  void Complete(absl::string_view name, absl::Status status);
  void Complete(absl::string_view name, OperationResult result);

  // From now on Add returns `status`. The first call wins.
  void Refuse(absl::Status status);

  // Refuse, and complete every entry with `status`, prefixed by its name.
  void Close(const absl::Status& status);

  bool empty() const;

 private:
  using Table = absl::flat_hash_map<std::string, std::unique_ptr<TensorEntry>>;

  std::unique_ptr<TensorEntry> Extract(absl::string_view name);

  mutable Mutex mu_;
  Table in_flight_ ABSL_GUARDED_BY(mu_);
  std::vector<const TensorEntry*> fresh_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_TENSOR_QUEUE_H_
