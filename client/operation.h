#ifndef RONDA_CLIENT_OPERATION_H_
#define RONDA_CLIENT_OPERATION_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/engine/handle.h"

namespace ronda {

// What ronda_output() hands out. Valid as long as the operation.
struct Output {
  const void* data = nullptr;
  int64_t rows = 0;
  absl::Span<const int64_t> rows_per_member;  // empty where rows do not come from members
};

// What a C caller gets of a submission whose result is not what the caller asked for.
//
// Thread-safe.
class Interpretation {
 public:
  virtual ~Interpretation() = default;

  // What the caller learns of an operation of the runtime's that went well.
  virtual absl::Status Check(const OperationResult&) const { return absl::OkStatus(); }

  // The output, where `plain` is what the runtime has left. Valid as long as this.
  virtual Output Read(const OperationResult& result, Output plain) const = 0;
};

// An operation as C callers see it: a submission of the runtime's, and what is made of its result. A value: copies are
// of the same operation, and submitting one takes no memory beyond the runtime's.
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

  // Has `stream` (a cudaStream_t) wait for an operation on GPU memory, as Handle::OrderBefore.
  absl::Status OrderBefore(void* stream) const;

  // Notes in this copy that a stream waits for the operation, so that nobody else has to.
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
  std::shared_ptr<const Interpretation> interpretation_;  // null: the result is what the caller asked for
  OpType op_ = OpType::kAllreduce;
  bool is_ordered_ = false;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_OPERATION_H_
