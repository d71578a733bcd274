// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_CHAOS_OPERATION_H_
#define RONDA_TESTS_CHAOS_OPERATION_H_

#include <memory>

#include "client/ronda.hpp"
#include "tests/chaos/round_plan.h"

namespace ronda::chaos {

// One operation on one rank, and its expected result, which a rank can compute because it knows every rank's
// contribution. The object must not be moved while the operation is in flight, because it owns the buffers.
class Operation {
 public:
  virtual ~Operation() = default;

  // Submits the operation. Errors: those of the submission.
  virtual Status Submit(const CallOptions& call) = 0;

  // Waits for the operation, and expects the right result. REQUIRES: Submit returned OK. Errors: those of the
  // operation.
  virtual Status Finish() = 0;
};

// Returns the part of `rank` in the operation. REQUIRES: `rank` is one of plan.members.
std::unique_ptr<Operation> MakeOperation(const OperationPlan& plan, int rank);

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_OPERATION_H_
