#ifndef RONDA_BENCH_COLLECTIVES_COLLECTIVE_CASE_H_
#define RONDA_BENCH_COLLECTIVES_COLLECTIVE_CASE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ronda::bench {

enum class Placement { kInPlace, kOutOfPlace };

constexpr const char* Name(Placement placement) { return placement == Placement::kInPlace ? "in" : "out"; }

// One line of the table of collectives. Reductions are sums, the root is rank 0.
struct CollectiveCase {
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;  // of reductions
  Placement placement = Placement::kInPlace;
  size_t count = 0;  // elements: of an allreduce, reduce or broadcast; of one rank's share of anything else
  int ranks = 1;

  // Elements that a rank gives and receives.
  size_t input_count() const;
  size_t output_count() const;

  // The larger of both, in bytes: what collective benchmarks call a message's size.
  size_t bytes() const;

  // "allreduce.float32.none.in.1024": unique among cases.
  std::string label() const;
};

// The bandwidth that the busiest link sees, over the algorithm's (algbw), as NCCL's performance tests define it.
double BusFactor(OpType op, int ranks);

constexpr bool IsReduction(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kReduce || op == OpType::kReduceScatter;
}

// What the user asks for.
struct CaseRanges {
  std::vector<std::string> ops = {"allreduce"};
  size_t min_bytes = 8;
  size_t max_bytes = size_t{256} << 20;
  size_t factor = 4;
  std::vector<std::string> dtypes = {"float32"};
  std::vector<std::string> wires = {"none"};
  std::vector<std::string> placements = {"in"};
};

// The names of everything, for --help and for reading options.
const std::vector<std::string>& OpNames();
const std::vector<std::string>& DTypeNames();
const std::vector<std::string>& WireNames();
const std::vector<std::string>& PlacementNames();
std::string NameOf(DType dtype);

// All combinations that make sense: only allreduce knows both placements (a broadcast is in place, the others are not),
// only reductions of float32 and float64 know 16-bit wires (8-bit ones: also of 16-bit types), a barrier is one case.
// Sizes that are less than one element a rank become that.
std::vector<CollectiveCase> MakeCases(const CaseRanges& ranges, int ranks);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_COLLECTIVE_CASE_H_
