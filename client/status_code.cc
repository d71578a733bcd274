#include "client/status_code.h"

namespace ronda {
namespace {

// Codes that mean the same wherever they come from.
ronda_status CommonStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return RONDA_OK;
    case absl::StatusCode::kDeadlineExceeded:
      return RONDA_ERROR_DEADLINE;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return RONDA_ERROR_PEER_FAILED;
    case absl::StatusCode::kResourceExhausted:
      return RONDA_ERROR_OUT_OF_MEMORY;
    default:
      return RONDA_ERROR_INTERNAL;
  }
}

// Whatever keeps ranks from coming together though none has failed is a matter of how the job was set up.
ronda_status StartupStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:  // other versions or sizes
    case absl::StatusCode::kAlreadyExists:       // a job id, a rank or a port that is taken
    case absl::StatusCode::kNotFound:            // the host to meet at
    case absl::StatusCode::kPermissionDenied:    // another secret
    case absl::StatusCode::kUnauthenticated:
      return RONDA_ERROR_INVALID_ARGUMENT;
    default:
      return CommonStatus(code);
  }
}

ronda_status SubmissionStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:  // a tensor in a GPU's memory, and no GPU; a stream that is captured
      return RONDA_ERROR_INVALID_ARGUMENT;
    case absl::StatusCode::kAlreadyExists:
      return RONDA_ERROR_DUPLICATE_NAME;
    case absl::StatusCode::kCancelled:  // after Shutdown
      return RONDA_ERROR_NOT_INITIALIZED;
    default:
      return CommonStatus(code);
  }
}

}  // namespace

ronda_status ToRondaStatus(absl::StatusCode code, Answer from) {
  switch (from) {
    case Answer::kStartup:
      return StartupStatus(code);
    case Answer::kSubmission:
      return SubmissionStatus(code);
    case Answer::kCompletion:
      return code == absl::StatusCode::kFailedPrecondition ? RONDA_ERROR_MISMATCH : CommonStatus(code);
  }
  return RONDA_ERROR_INTERNAL;
}

}  // namespace ronda
