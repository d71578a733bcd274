#ifndef RONDA_RUNTIME_ENGINE_RESULT_DATA_H_
#define RONDA_RUNTIME_ENGINE_RESULT_DATA_H_

#include <cstddef>
#include <memory>

namespace ronda {

// Takes memory of results back. Thread-safe.
class ResultPool {
 public:
  virtual ~ResultPool() = default;
  virtual void Release(std::byte* data, size_t bytes) = 0;
};

// Frees a result's memory: gives it back to the pool it is from, or to the heap if that is nullptr.
struct ResultDeleter {
  std::shared_ptr<ResultPool> pool;
  size_t bytes = 0;

  void operator()(std::byte* data) const {
    if (pool == nullptr) {
      delete[] data;
    } else {
      pool->Release(data, bytes);
    }
  }
};

// The memory of a result that belongs to Ronda: where its tensor is, on the host or a device.
using ResultData = std::unique_ptr<std::byte[], ResultDeleter>;

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RESULT_DATA_H_
