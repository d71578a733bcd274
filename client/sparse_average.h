#ifndef RONDA_CLIENT_SPARSE_AVERAGE_H_
#define RONDA_CLIENT_SPARSE_AVERAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/operation.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"

namespace ronda {

// The values of a sparse average: an allgather whose result is divided by the number of ranks that averages count.
//
// Thread-safe.
class SparseAverage : public Interpretation {
 public:
  // `row` is the number of elements of a row of values.
  SparseAverage(DType dtype, int64_t row) : dtype_(dtype), row_(row) {}

  // The operation whose result are the values.
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

#endif  // RONDA_CLIENT_SPARSE_AVERAGE_H_
