#ifndef RONDA_BENCH_STEP_GRADIENTS_H_
#define RONDA_BENCH_STEP_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/shapes/shapes.h"
#include "runtime/base/types.h"

namespace ronda::bench {

// One rank's gradients, fp32, each in memory of its own that begins at a cache line, as in the frameworks that allocate
// them. Thread-compatible.
class Gradients {
 public:
  explicit Gradients(const ModelShapes& model);

  size_t size() const { return counts_.size(); }
  float* data(size_t parameter) { return buffers_[parameter].get(); }
  int64_t count(size_t parameter) const { return counts_[parameter]; }

  // Values that no number of averages changes and that sums do not make infinite soon.
  void FillForTiming();

  // Values that depend on the rank and the place, small integers.
  void FillForCheck(int rank);

  enum class Expected { kSum, kAverage };
  // How many elements are not what `ranks` ranks with FillForCheck() must get, within the precision of `wire`.
  int64_t CountWrong(int ranks, Expected expected, WireFormat wire) const;

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };

  std::vector<int64_t> counts_;
  std::vector<std::unique_ptr<float[], Free>> buffers_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_GRADIENTS_H_
