#ifndef RONDA_TESTS_CONFORMANCE_ALLREDUCE_CASE_H_
#define RONDA_TESTS_CONFORMANCE_ALLREDUCE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/scale.h"
#include "runtime/base/types.h"

namespace ronda::testing {

// One allreduce over all ranks: the inputs, and what must come out.
struct AllreduceCase {
  size_t count = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  WireFormat wire = WireFormat::kNone;
  kernels::Scale prescale;
  kernels::Scale postscale;
  uint64_t seed = 0;
};

// "sum of 13 float32 over fp16"
std::string ToString(const AllreduceCase& c);

// The input of `rank`: pseudo-random from the seed.
std::string MakeInput(const AllreduceCase& c, RankId rank);

// The bits that every backend must deliver: the kernels applied to the whole inputs at once.
std::string ExpectedBits(const AllreduceCase& c, const std::vector<std::string>& inputs);

// "" if every element of `output` is near the result in fp64 (integers: exactly the result); else the first that is
// not.
std::string CompareWithOracle(const AllreduceCase& c, const std::vector<std::string>& inputs,
                              const std::string& output);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_ALLREDUCE_CASE_H_
