#include "client/sparse_average.h"

#include <numeric>

#include "kernels/cpu/convert.h"

namespace ronda {

Output SparseAverage::output() const {
  Output output = Operation::output();
  const size_t count = static_cast<size_t>(output.rows * row_);
  const std::vector<int64_t>& present = present_->result().first_dims;
  const int64_t ranks = std::accumulate(present.begin(), present.end(), int64_t{0});
  MutexLock lock(&mu_);
  if (averages_.empty()) {
    averages_.resize(count * SizeOf(dtype_));
    kernels::Convert(output.data, dtype_, averages_.data(), dtype_, count, {.divisor = ranks});
  }
  output.data = averages_.data();
  return output;
}

}  // namespace ronda
