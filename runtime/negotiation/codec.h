#ifndef RONDA_RUNTIME_NEGOTIATION_CODEC_H_
#define RONDA_RUNTIME_NEGOTIATION_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// The messages in the form of proto/ronda/v1/negotiation.proto.
std::string Encode(const RankReport& report);
std::string Encode(const ResponseList& list);

// Every enum, dimension and rank is checked: what these return can be used without further looks.
// Errors: INVALID_ARGUMENT that names the field and the tensor.
absl::StatusOr<RankReport> DecodeRankReport(absl::string_view bytes);
absl::StatusOr<ResponseList> DecodeResponseList(absl::string_view bytes);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_CODEC_H_
