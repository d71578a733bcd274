#ifndef RONDA_RUNTIME_ENGINE_ERROR_FEEDBACK_H_
#define RONDA_RUNTIME_ENGINE_ERROR_FEEDBACK_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/engine/result_data.h"
#include "runtime/negotiation/tensor_key.h"

namespace ronda {

// Keeps, for each tensor that asks for it, what rounding this rank's contributions to the wire's format has lost so
// far: the next contribution makes up for it. (What is lost when the reduced value is rounded is not made up for: it is
// the same on all ranks, and none of them owns it.)
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h).
class ErrorFeedback {
 public:
  // Makes memory full of zeros for what is kept of a tensor, where the tensor is.
  using Allocate = std::function<absl::StatusOr<ResultData>(absl::string_view tensor, size_t bytes)>;

  explicit ErrorFeedback(Allocate allocate) : allocate_(std::move(allocate)) {}

  // The residual of a tensor of `count` elements, zeros at first, and again whenever the count has changed. Valid until
  // the next call for this tensor, or Drop.
  // Errors: those of Allocate.
  absl::StatusOr<float*> Residual(TensorKeyView key, size_t count);

  // Forgets all tensors of a process set.
  void Drop(ProcessSetId process_set);

 private:
  struct Entry {
    ResultData values;
    size_t count = 0;
  };

  const Allocate allocate_;
  TensorKeyMap<Entry> entries_;
};

// Whether rounding to `wire` changes values of `dtype`.
bool IsLossy(WireFormat wire, DType dtype);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_ERROR_FEEDBACK_H_
