#ifndef RONDA_RUNTIME_NEGOTIATION_REQUEST_CHECK_H_
#define RONDA_RUNTIME_NEGOTIATION_REQUEST_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "runtime/base/group.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/process_set_table.h"
#include "runtime/negotiation/roster.h"

namespace ronda {

// Whether a correct rank can have sent `request`, whose process set has these `members`. The codec has checked what
// needs no knowledge of the job.
// Errors: INVALID_ARGUMENT that names the rank.
absl::Status CheckRequest(RankId rank, const TensorRequest& request, const Group& members, const Roster& roster);

// Whether a tensor on which all agree can be carried out without the ranks `joined`, and if it changes the process
// sets, whether that can be done.
// Errors: FAILED_PRECONDITION that names the rank that joined, or the process set.
absl::Status CheckFeasible(const TensorRequest& request, const std::vector<RankId>& joined,
                           const ProcessSetTable& process_sets, const Roster& roster);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_REQUEST_CHECK_H_
