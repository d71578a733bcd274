#ifndef RONDA_RUNTIME_NEGOTIATION_RECORDING_H_
#define RONDA_RUNTIME_NEGOTIATION_RECORDING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/negotiator.h"

namespace ronda {

// One call of the coordinator rank's negotiator, or one answer of it.
struct NegotiationEvent {
  enum class Kind : uint8_t {
    kReport = 1,   // of `rank`, encoded, in `bytes`
    kFailure = 2,  // a call of Negotiator::Fail, as an encoded list of one error
    kList = 3,     // the encoded response list that was sent
    kLeave = 4,    // a call of Negotiator::LeaveSchedule: the rounds
    kSizes = 5,    // a call of Negotiator::SetBucketSizes: both sizes
  };
  Kind kind = Kind::kReport;
  absl::Time time;
  RankId rank = 0;
  std::string bytes;

  static NegotiationEvent Report(RankId rank, std::string bytes, absl::Time now) {
    return {Kind::kReport, now, rank, std::move(bytes)};
  }
  static NegotiationEvent Failure(TensorKeyView tensor, const absl::Status& status, absl::Time now);
  static NegotiationEvent List(std::string bytes, absl::Time now) { return {Kind::kList, now, 0, std::move(bytes)}; }
  static NegotiationEvent Leave(uint64_t rounds, absl::Time now);
  static NegotiationEvent Sizes(const Negotiator::BucketSizes& sizes, absl::Time now);
};

// What happened on a coordinator rank, from the beginning of its job on.
//
// In a file: "RONDANEG", the version, the options, then the events, each with its length in front. Numbers are
// little-endian. The end may be missing: the process may have been killed while it wrote.
struct Recording {
  Negotiator::Options options;
  std::vector<NegotiationEvent> events;
};

std::string EncodeHeader(const Negotiator::Options& options);
std::string Encode(const NegotiationEvent& event);

// Errors: INVALID_ARGUMENT if this is no recording, or one of another version.
absl::StatusOr<Recording> DecodeRecording(absl::string_view bytes);

// Runs all but the lists through a fresh negotiator, and compares the lists.
// Errors: INTERNAL with the number of the first list that comes out differently, and both versions of it;
// INVALID_ARGUMENT if an event cannot be decoded, or the negotiator refuses a report.
absl::Status Replay(const Recording& recording);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_RECORDING_H_
