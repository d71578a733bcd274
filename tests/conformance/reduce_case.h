// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_CONFORMANCE_REDUCE_CASE_H_
#define RONDA_TESTS_CONFORMANCE_REDUCE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "runtime/base/types.h"
#include "runtime/collectives/host_map.h"
#include "tests/conformance/scattered_tensor.h"

namespace ronda::testing {

// Which members receive the result, and which part of it each of them receives.
enum class Receives {
  kAll,      // all members, the whole result
  kRootAll,  // one member, the whole result: a reduce
  kRows,     // each member an equal part of each segment, as far as possible: a reducescatter
  kAnyPart,  // each member any part of each segment or none; some elements go to no member
};

// One reduction: its inputs and its expected result.
struct ReduceCase {
  size_t count = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  WireFormat wire = WireFormat::kNone;
  kernels::Scale prescale;
  kernels::Scale postscale;
  Receives receives = Receives::kAll;
  Cut cut = Cut::kWhole;
  Placement placement = Placement::kInPlace;  // of kAll
  uint64_t seed = 0;
};

// Returns, for example, "sum of 13 float32 over fp16, ...".
std::string ToString(const ReduceCase& c);

// Returns the number of elements in each segment of the case.
std::vector<size_t> SegmentCounts(const ReduceCase& c);

// Returns the part of each segment that member number `member` of `members` members receives.
std::vector<Part> PartsOf(const ReduceCase& c, int member, int members);

// Returns a member's input: pseudo-random numbers from the seed of the case.
std::string MakeInput(const ReduceCase& c, int member);

// Returns the whole result that every backend must produce, bit for bit. Uses the kernels, and reduces each segment as
// a whole.
std::string ExpectedBits(const ReduceCase& c, const std::vector<std::string>& inputs);

// Like ExpectedBits above, but first reduces the ranks of each host, and then the hosts' results. The result is the
// same as above if `hosts` is empty.
std::string ExpectedBits(const ReduceCase& c, const std::vector<std::string>& inputs, const HostMap& hosts);

// Returns the parts of `whole` that the member receives, one after the other.
std::string ReceivedBy(const ReduceCase& c, const std::string& whole, int member, int members);

// Returns a copy of `whole` in which `received` replaces the member's parts.
std::string WithParts(const ReduceCase& c, const std::string& whole, const std::string& received, int member,
                      int members);

// Returns "" if every element of `output` is close to the fp64 result, or equal to it if the elements are integers.
// Otherwise describes the first wrong element. `levels` is the number of levels on which the result was rounded.
std::string CompareWithOracle(const ReduceCase& c, const std::vector<std::string>& inputs, const std::string& output,
                              int levels);

// Returns the wire formats that change how elements of `dtype` travel.
std::vector<WireFormat> WireFormatsFor(DType dtype);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_REDUCE_CASE_H_
