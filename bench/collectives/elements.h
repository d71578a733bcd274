// The contents of the benchmarked buffers: numbers whose sums are exact, so that every element of a result can be
// checked.
#ifndef RONDA_BENCH_COLLECTIVES_ELEMENTS_H_
#define RONDA_BENCH_COLLECTIVES_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bench/collectives/collective_case.h"

namespace ronda::bench {

// Memory that begins at a cache line, as frameworks allocate their tensors, and has been written to.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size);

  void* data() const { return memory_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  size_t size_ = 0;
  std::unique_ptr<void, Free> memory_;
};

// Element `index` of what `rank` gives: (rank + 1) * (index % 17).
void FillInput(const CollectiveCase& shape, int rank, void* input);

// What no operation gives, so that an output that was not written to is found to be wrong.
void FillOutput(const CollectiveCase& shape, void* output);

// How many elements of `output` on `rank` are not what the operation should have given; 0 where nothing is received.
// Compressed wires may round as much as they do.
int64_t CountWrong(const CollectiveCase& shape, int rank, const void* output);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_ELEMENTS_H_
