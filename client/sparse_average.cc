#include "client/sparse_average.h"

#include "kernels/cpu/convert.h"

namespace ronda {

Output SparseAverage::output() const {
  Output output = Operation::output();
  const size_t count = static_cast<size_t>(output.rows * row_);
  MutexLock lock(&mu_);
  if (averages_.empty()) {
    averages_.resize(count * SizeOf(dtype_));
    kernels::Convert(output.data, dtype_, averages_.data(), dtype_, count, {.divisor = result().number});
  }
  output.data = averages_.data();
  return output;
}

}  // namespace ronda
