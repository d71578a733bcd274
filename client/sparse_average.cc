#include "client/sparse_average.h"

#include "kernels/cpu/convert.h"

namespace ronda {

Output SparseAverage::Read(const OperationResult& result, Output plain) const {
  const size_t count = static_cast<size_t>(plain.rows * row_);
  MutexLock lock(&mu_);
  if (averages_.empty()) {
    averages_.resize(count * SizeOf(dtype_));
    kernels::Convert(plain.data, dtype_, averages_.data(), dtype_, count, {.divisor = result.number});
  }
  plain.data = averages_.data();
  return plain;
}

}  // namespace ronda
