// SPDX-License-Identifier: Apache-2.0

// The work of each rank in a job, for ranks that are processes and for ranks that are threads. Each body runs between
// init() and shutdown(), uses the C++ API for every operation of one kind, and checks the results.
#ifndef RONDA_TESTS_CLIENT_RANK_BODIES_H_
#define RONDA_TESTS_CLIENT_RANK_BODIES_H_

#include <functional>
#include <string>
#include <vector>

#include "client/ronda.hpp"

namespace ronda::testing {

struct RankBody {
  std::string name;
  std::function<void()> run;
};

// Returns the bodies for reductions: reduce, reducescatter, Adasum, bitwise operators, 8-bit wire formats, overflow,
// error feedback.
std::vector<RankBody> ReductionBodies();

// Returns the bodies for gather, scatter, alltoall, send and receive, objects, and sparse tensors.
std::vector<RankBody> ExchangeBodies();

// Returns the bodies for process sets, groups of tensors, joins, barriers and callbacks.
std::vector<RankBody> CoordinationBodies();

// Returns the bodies for unnamed tensors, and for process sets that are created by their members.
std::vector<RankBody> OrderBodies();

// Returns the sum of the values of all ranks.
inline float Sum(const std::string& name, float value, const CallOptions& call = {}) {
  ronda::allreduce(ronda::tensor(name, &value), {Op::Sum}, call);
  return value;
}

// Returns the bodies of all functions above.
std::vector<RankBody> AllRankBodies();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CLIENT_RANK_BODIES_H_
