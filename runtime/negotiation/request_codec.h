#ifndef RONDA_RUNTIME_NEGOTIATION_REQUEST_CODEC_H_
#define RONDA_RUNTIME_NEGOTIATION_REQUEST_CODEC_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/ronda/v1/negotiation.pb.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// The part of the codec that is about one request; codec.h is what others use.

// More ranks than any job has.
inline constexpr size_t kMaxRanks = size_t{1} << 16;

// INT64_MAX: for ever.
absl::Duration DurationFromNanoseconds(int64_t ns);

absl::Status DamagedField(absl::string_view field, absl::string_view tensor);

void LimitsToProto(const WaitLimits& limits, v1::WaitLimits* proto);
// Errors: INVALID_ARGUMENT if one is negative; `of` says whose they are.
absl::StatusOr<WaitLimits> LimitsFromProto(const v1::WaitLimits& proto, absl::string_view of);

void RequestToProto(const TensorRequest& request, v1::TensorRequest* proto);
absl::StatusOr<TensorRequest> RequestFromProto(const v1::TensorRequest& proto);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_REQUEST_CODEC_H_
