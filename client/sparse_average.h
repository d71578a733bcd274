#ifndef RONDA_CLIENT_SPARSE_AVERAGE_H_
#define RONDA_CLIENT_SPARSE_AVERAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/operation.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"

namespace ronda {

// The values of a sparse average: an allgather whose result is divided by the number of ranks that took part, which
// another one, of one byte a rank, counts.
//
// Thread-safe.
class SparseAverage : public Operation {
 public:
  // `values` and `present` are of one group. `row` is the number of elements of a row of `values`.
  SparseAverage(std::shared_ptr<Handle> values, std::shared_ptr<Handle> present, DType dtype, int64_t row)
      : Operation(std::move(values), OpType::kAllgather), present_(std::move(present)), dtype_(dtype), row_(row) {}

  Output output() const override;

 protected:
  absl::Status Check() const override { return present_->Wait(); }

 private:
  const std::shared_ptr<Handle> present_;
  const DType dtype_;
  const int64_t row_;
  mutable Mutex mu_;
  mutable std::vector<std::byte> averages_ ABSL_GUARDED_BY(mu_);  // empty until they are asked for
};

}  // namespace ronda

#endif  // RONDA_CLIENT_SPARSE_AVERAGE_H_
