#ifndef RONDA_RUNTIME_ENGINE_DEVICE_AGREEMENT_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// What all ranks have said of the same question.
struct Agreement {
  absl::Status refusal;            // OK if all said OK; else FAILED_PRECONDITION that names the first that did not
  std::vector<std::string> facts;  // by rank
};

// Tells all ranks of the job whether this one can (`own`), and its `facts`; both are cut where they are too long. A
// collective call over `host`.
// Errors: the communicator's.
absl::StatusOr<Agreement> AgreeWithAll(Communicator& host, const CallInfo& info, const absl::Status& own,
                                       const std::string& facts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_AGREEMENT_H_
