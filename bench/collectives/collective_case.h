// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_COLLECTIVES_COLLECTIVE_CASE_H_
#define RONDA_BENCH_COLLECTIVES_COLLECTIVE_CASE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ronda::bench {

enum class Placement { kInPlace, kOutOfPlace };

constexpr const char* Name(Placement placement) { return placement == Placement::kInPlace ? "in" : "out"; }

// One case, which becomes one line of the table of collectives. Reductions are sums; the root is rank 0.
struct CollectiveCase {
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;  // of reductions
  Placement placement = Placement::kInPlace;
  size_t count = 0;  // elements: of an allreduce, reduce or broadcast; of one rank's share of any other operation
  int ranks = 1;

  // Return the number of elements of a rank's input and output.
  size_t input_count() const;
  size_t output_count() const;

  // Returns the message size as collective benchmarks define it: the bytes of the input or the output, whichever is
  // larger.
  size_t bytes() const;

  // Returns a name that no other case has, such as "allreduce.float32.none.in.1024".
  std::string label() const;
};

// Returns the bandwidth of the busiest link divided by the algorithm's bandwidth (algbw), as NCCL's performance tests
// define it.
double BusFactor(OpType op, int ranks);

// The cases that the user selects.
struct CaseRanges {
  std::vector<OpType> ops = {OpType::kAllreduce};
  size_t min_bytes = 8;
  size_t max_bytes = size_t{256} << 20;
  size_t factor = 4;
  std::vector<DType> dtypes = {DType::kFloat32};
  std::vector<WireFormat> wires = {WireFormat::kNone};
  std::vector<Placement> placements = {Placement::kInPlace};

  // Returns ranges that cover every operation, dtype, wire format and placement that can be measured, with the sizes of
  // `ranges`.
  static CaseRanges Everything(const CaseRanges& ranges);
};

// Returns all sensible combinations of `ranges`. Allreduce is measured in place and out of place, broadcast only in
// place, and every other operation only out of place. Only reductions have compressed wire formats: 16-bit and 8-bit
// formats for float32 and float64, and 8-bit formats for 16-bit types. The barrier has a single case. A size below one
// element per rank is raised to one element per rank.
std::vector<CollectiveCase> MakeCases(const CaseRanges& ranges, int ranks);

// Memory that is aligned to a cache line, like the tensors of frameworks. The constructor writes to all of it.
class AlignedBytes {
 public:
  // Throws std::runtime_error, with a text for the user, if there is no memory.
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

// Sets element `index` of the input of `rank` to (rank + 1) * (index % 17).
void FillInput(const CollectiveCase& shape, int rank, void* input);

// Fills the output with values that no operation produces, so that a missing result counts as wrong.
void FillOutput(const CollectiveCase& shape, void* output);

// Returns how many elements of `output` on `rank` differ from the operation's result. Returns 0 on a rank that receives
// nothing. Rounding errors do not count as differences.
int64_t CountWrong(const CollectiveCase& shape, int rank, const void* output);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_COLLECTIVE_CASE_H_
