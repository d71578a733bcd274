#include "runtime/engine/bucket_run.h"

#include <algorithm>

namespace ronda {

size_t RowElements(const TensorRequest& request) {
  size_t elements = 1;
  for (size_t i = 1; i < request.shape.size(); ++i) elements *= static_cast<size_t>(request.shape[i]);
  return elements;
}

size_t RowBytes(const TensorRequest& request) { return RowElements(request) * SizeOf(request.dtype); }

RowRange EvenSplit(int64_t rows, int members, int position) {
  const int64_t share = rows / members;
  const int64_t longer = rows % members;
  return {.begin = position * share + std::min<int64_t>(position, longer),
          .count = share + (position < longer ? 1 : 0)};
}

}  // namespace ronda
