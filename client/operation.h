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

// An operation as C callers see it: a submission of the runtime's, whose result is what the caller asked for.
//
// Thread-safe.
class Operation {
 public:
  Operation(std::shared_ptr<Handle> handle, OpType op) : handle_(std::move(handle)), op_(op) {}
  virtual ~Operation() = default;

  OpType op() const { return op_; }
  Handle& handle() const { return *handle_; }
  bool done() const { return handle_->done(); }

  // Blocks until the operation has completed; its status.
  absl::Status Wait() const;

  // Whether its result belongs to the handle.
  bool HasOutput() const;

  // Whether it is a reduction.
  bool Reduces() const;

  // REQUIRES: HasOutput(), and Wait() has returned OK.
  virtual Output output() const;

 protected:
  // What the caller learns of an operation of the runtime's that went well.
  virtual absl::Status Check() const { return absl::OkStatus(); }

  const OperationResult& result() const { return handle_->result(); }

 private:
  const std::shared_ptr<Handle> handle_;
  const OpType op_;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_OPERATION_H_
