// Operations as C callers hold them: by number, and with the results that they asked for.
#ifndef RONDA_CLIENT_OPERATION_H_
#define RONDA_CLIENT_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/ronda.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// The result of ronda_output(). Valid as long as the operation.
struct Output {
  const void* data = nullptr;
  int64_t rows = 0;
  absl::Span<const int64_t> rows_per_member;  // empty where rows do not come from members
};

// Converts the runtime's result of a submission into the result that the C caller asked for.
//
// Thread-safe.
class Interpretation {
 public:
  virtual ~Interpretation() = default;

  // The status that the caller gets of an operation that succeeded in the runtime.
  virtual absl::Status Check(const OperationResult&) const { return absl::OkStatus(); }

  // The output; `plain` is the runtime's. Valid as long as this object.
  virtual Output Read(const OperationResult& result, Output plain) const = 0;
};

// An operation as C callers see it: the handle of a submission, and the conversion of its result. A value: copies are
// of the same operation, and creating one allocates nothing.
//
// Thread-safe, as far as it is not assigned to.
class Operation {
 public:
  Operation() = default;  // none
  explicit Operation(std::shared_ptr<Handle> handle, OpType op,
                     std::shared_ptr<const Interpretation> interpretation = nullptr)
      : handle_(std::move(handle)), interpretation_(std::move(interpretation)), op_(op) {}

  // False: there is none, and nothing else may be asked of it.
  bool exists() const { return handle_ != nullptr; }

  OpType op() const { return op_; }
  Handle& handle() const { return *handle_; }
  bool done() const { return handle_->done(); }

  // Blocks until the operation has completed; its status.
  absl::Status Wait() const;

  // The same, until MonotonicTime() has come to `deadline` at the latest. Whether the operation has completed.
  bool WaitUntil(absl::Duration deadline) const { return handle_->WaitUntil(deadline); }

  // Has `stream` (a cudaStream_t) wait for an operation on GPU memory, as Handle::OrderBefore.
  absl::Status OrderBefore(void* stream) const;

  // Blocks until that needs no wait, or until MonotonicTime() has come to `deadline`. Whether it needs none.
  bool LaunchesBy(absl::Duration deadline) const { return handle_->LaunchesBy(deadline); }

  // Notes in this copy that a stream waits for the operation, so that no thread has to.
  void NoteOrdered() { is_ordered_ = true; }
  bool is_ordered() const { return is_ordered_; }

  // Whether its result belongs to the handle.
  bool HasOutput() const;

  // Whether it is a reduction.
  bool Reduces() const;

  // REQUIRES: HasOutput(), and Wait() or OrderBefore() has returned OK.
  Output output() const;

 private:
  absl::Status Checked() const;

  std::shared_ptr<Handle> handle_;
  std::shared_ptr<const Interpretation> interpretation_;  // null: the caller gets the runtime's result
  OpType op_ = OpType::kAllreduce;
  bool is_ordered_ = false;
};

// The operations that C callers hold, by number. Numbers are never used twice, so one that was released, or that an
// earlier job gave out, cannot reach another operation's handle.
//
// A number consists of the operation's slot and of the count of the slot's uses. Finding an operation is an array
// access, and slots are reused. A slot whose uses are exhausted stays empty.
//
// Thread-safe.
class HandleTable {
 public:
  // Finds room for `count` operations, before they are submitted: to keep them then cannot fail. Throws std::bad_alloc,
  // also if there is room for 2^24 operations already. Each is for one call of Add, or of the count of Unreserve.
  void Reserve(size_t count);
  void Unreserve(size_t count);

  // Keeps `operation` until Remove. Throws as Reserve, unless there is reserved room.
  ronda_handle Add(Operation operation);

  // None if `id` was never given out or has been removed.
  Operation Find(ronda_handle id) const;

  // Marks the operation, if it is there, with Operation::NoteOrdered.
  void NoteOrdered(ronda_handle id);

  // Removes the operation, and returns it; none as in Find.
  Operation Remove(ronda_handle id);

 private:
  static constexpr int kIndexBits = 24;
  static constexpr int64_t kMaxUses = INT64_MAX >> kIndexBits;

  struct Slot {
    int64_t uses = 0;     // this one included
    Operation operation;  // none: free
  };

  static size_t IndexOf(ronda_handle id) { return static_cast<size_t>(id) & ((size_t{1} << kIndexBits) - 1); }

  // nullptr if `id` was never given out or has been removed.
  const Slot* SlotLocked(ronda_handle id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Slot* SlotLocked(ronda_handle id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void AddSlotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> free_ ABSL_GUARDED_BY(mu_);  // indices of slots; has room for all of them
  size_t reserved_ ABSL_GUARDED_BY(mu_) = 0;       // of the free ones
};

// A broadcast of bytes whose number only the root knows: an allgather to which only the root contributes. The root adds
// one byte, so that all ranks see which ranks act as root even if the object is empty.
//
// Thread-safe.
class ObjectBroadcast : public Interpretation {
 public:
  // One rank's arguments. It owns the bytes that travel, and so has to outlive the operation.
  struct Plan {
    std::string name;
    RankId root = 0;
    std::shared_ptr<const Group> members;
    std::string contribution;
  };

  // Turns `object`, the caller's bytes and root, into the submission of `rank`.
  // Errors: INVALID_ARGUMENT if the root is not one of `members`, or the bytes of the root are null.
  static absl::StatusOr<std::unique_ptr<Plan>> Prepare(std::shared_ptr<const Group> members, RankId rank,
                                                       Submission* object);

  // `handle` is that of the submission that `plan` was made with.
  ObjectBroadcast(std::shared_ptr<Handle> handle, std::shared_ptr<const Plan> plan)
      : handle_(std::move(handle)), plan_(std::move(plan)) {}

  // Waits for the operation, which reads the contribution.
  ~ObjectBroadcast() override { handle_->Wait().IgnoreError(); }

  // The operation of a submission that `plan` was made with.
  static Operation Of(const std::shared_ptr<Handle>& handle, std::shared_ptr<const Plan> plan) {
    return Operation(handle, OpType::kAllgather, std::make_shared<ObjectBroadcast>(handle, std::move(plan)));
  }

  // Errors: FAILED_PRECONDITION if another rank takes itself for the root, or the root does not.
  absl::Status Check(const OperationResult& result) const override;

  Output Read(const OperationResult& result, Output plain) const override;

 private:
  const std::shared_ptr<Handle> handle_;
  const std::shared_ptr<const Plan> plan_;
};

// The values of a sparse average: an allgather whose result is divided by the number of ranks that averages count.
//
// Thread-safe.
class SparseAverage : public Interpretation {
 public:
  // `row` is the number of elements of a row of values.
  SparseAverage(DType dtype, int64_t row) : dtype_(dtype), row_(row) {}

  // The operation that results in the averaged values.
  static Operation Of(std::shared_ptr<Handle> values, DType dtype, int64_t row) {
    return Operation(std::move(values), OpType::kAllgather, std::make_shared<SparseAverage>(dtype, row));
  }

  Output Read(const OperationResult& result, Output plain) const override;

 private:
  const DType dtype_;
  const int64_t row_;
  mutable Mutex mu_;
  mutable std::vector<std::byte> averages_ ABSL_GUARDED_BY(mu_);  // empty until they are asked for
};

}  // namespace ronda

#endif  // RONDA_CLIENT_OPERATION_H_
