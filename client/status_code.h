#ifndef RONDA_CLIENT_STATUS_CODE_H_
#define RONDA_CLIENT_STATUS_CODE_H_

#include "absl/status/status.h"
#include "client/ronda.h"

namespace ronda {

// Which part of the runtime answered: the same absl code means something else to the caller in each.
enum class Answer {
  kStartup,     // reading the configuration, finding the other ranks
  kSubmission,  // Runtime::Submit
  kCompletion,  // Handle::Wait, Runtime::Shutdown
};

// The code under which a C caller learns of `code`. Pure.
ronda_status ToRondaStatus(absl::StatusCode code, Answer from);

}  // namespace ronda

#endif  // RONDA_CLIENT_STATUS_CODE_H_
