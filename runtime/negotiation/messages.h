// SPDX-License-Identifier: Apache-2.0

// The ranks' reports to the coordinator, and the coordinator's answers. Each is a plain struct here, and a message in
// proto/ronda/v1/negotiation.proto.
#ifndef RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_
#define RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/tensor_request.h"
#include "runtime/step/step.h"

namespace ronda {

// A request that a rank repeats in full, because it reported the request by an id that was evicted before the request
// was answered.
struct RepeatedRequest {
  CacheId id = 0;
  TensorRequest request;

  friend bool operator==(const RepeatedRequest&, const RepeatedRequest&) = default;
};

// What a rank has submitted since its last report. The coordinator processes the fields in their order.
struct RankReport {
  std::vector<CacheId> cached;            // ids of cached responses; the rank makes the same requests again
  std::vector<RepeatedRequest> repeated;  // ignored unless the coordinator no longer knew the id
  std::vector<TensorRequest> requests;    // all others, in the order of their submission
  // kDraining: the rank submits nothing more, and waits for its tensors in flight. kShuttingDown: the rank has nothing
  // in flight, and this report is its last report.
  enum class Presence : uint8_t { kPresent, kDraining, kShuttingDown } presence = Presence::kPresent;
  std::string identity;  // in the first report: "host h, pid 42"
  // The number of the latest schedule that this rank has begun, or 0 if there was none. A report that was sent before a
  // schedule began is ignored, because its submissions are part of the schedule, or are reported again after the
  // unlock.
  uint64_t schedule = 0;
  // Whether the program may have learned of a completion between the last submission of the previous report and the
  // last submission of this one. If not (kNo), the submissions of this report do not depend on the submissions of the
  // previous report.
  enum class Waited : uint8_t { kPerhaps, kNo } waited = Waited::kPerhaps;
  // Whether the last schedule fitted the program. kDidNotFit means that tensors waited in this schedule for other
  // tensors that came only later, so the program no longer submits its tensors as in the steps from which the schedule
  // was made.
  enum class LastSchedule : uint8_t { kFitted, kDidNotFit } last_schedule = LastSchedule::kFitted;
  // kWaits means that a thread of the program waits for an operation, and that the program has submitted nothing for a
  // while.
  enum class Program : uint8_t { kRuns, kWaits } program = Program::kRuns;
  // How long ago the last submission of this report was made. Not zero after an unlock, because the submissions have
  // waited in the schedule.
  absl::Duration age;
};

// One tensor that every rank of its process set has submitted, except the ranks that have joined.
//
// All ranks have submitted the same `request.shape`, except for the first dimension, which depends on FirstDimension.
// For kGathered, it is 0, and `first_dims` contains the first dimension of every member, in the order of the process
// set. (For all other values, `first_dims` is empty.) For kLocal, it is 0. For kOfRoot, it is the root's.
//
// If the operation adds a process set, `request.subject` is the id of the new set.
struct Response {
  TensorRequest request;
  std::vector<int64_t> first_dims;

  friend bool operator==(const Response&, const Response&) = default;
};

// One tensor that the ranks must carry out, as a full response or as the id of a response in the response cache.
using Execution = std::variant<CacheId, Response>;

// Tensors of one process set that the ranks carry out as one collective.
struct Bucket {
  std::vector<Execution> executions;
  std::vector<RankId> joined;  // members of the process set that do not take part; ascending
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// A Bucket after all ids have been looked up in the response cache.
struct AgreedBucket {
  std::vector<std::shared_ptr<const Response>> responses;  // at least one
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
  ProcessSetId process_set = kGlobalProcessSet;
  std::shared_ptr<const Group> members;       // of the process set, including those that have joined
  std::shared_ptr<const Group> participants;  // without those that have joined; send/recv: sender and receiver
};

// A tensor that will not be carried out. The error answers only the submissions of `ranks`.
struct TensorError {
  std::string name;
  ProcessSetId process_set = kGlobalProcessSet;
  absl::Status status;
  std::vector<RankId> ranks;  // ascending

  TensorKeyView key() const { return {process_set, name}; }
};

// Assigns a message to a receive that takes messages in the order of arrival (IsOrderedReceive). From now on, the
// receiver's submission has the name of the message, and an error or a bucket in the same response list answers it.
struct ReceiveMatch {
  ProcessSetId process_set = kGlobalProcessSet;
  RankId receiver = 0;
  std::string receive;  // the name with which it was submitted
  std::string message;  // its new name
  RankId sender = 0;

  friend bool operator==(const ReceiveMatch&, const ReceiveMatch&) = default;
};

// Settings from rank 0, which apply to every rank. The cache capacity never changes during a job.
struct JobSettings {
  uint64_t cache_capacity = 0;
  WaitLimits limits;
  absl::Duration cycle_time;  // longest time a tensor may wait for others to be fused with
  size_t chunk_bytes = 0;     // collectives cut their data into chunks of this size; 0: the backend chooses

  friend bool operator==(const JobSettings&, const JobSettings&) = default;
};

// The work that all ranks do next. A rank applies first the settings, then the matches, the errors, the buckets, and
// finally the schedule.
struct ResponseList {
  std::optional<JobSettings> settings;  // in the first list, and in any that changes them
  std::vector<ReceiveMatch> matches;
  std::vector<TensorError> errors;
  std::vector<Bucket> buckets;
  std::optional<Schedule> schedule;
  enum class Job : uint8_t { kGoesOn, kEnds } job = Job::kGoesOn;  // kEnds: all ranks have shut down

  // Does not check `matches`, because a list with a match always has an error or a bucket that answers the match.
  bool empty() const { return !settings && errors.empty() && buckets.empty() && !schedule && job == Job::kGoesOn; }
};

std::string Encode(const RankReport& report);
std::string Encode(const ResponseList& list);

// The decoders check every enum, dimension and rank, so callers need no further checks. `cache_capacity` is the
// capacity of the receiver's response cache, which is the most ids that a message can have. This limits the memory that
// a few damaged bytes can request. Errors: INVALID_ARGUMENT, naming the field and the tensor.
absl::StatusOr<RankReport> DecodeRankReport(absl::string_view bytes, size_t cache_capacity);
absl::StatusOr<ResponseList> DecodeResponseList(absl::string_view bytes, size_t cache_capacity);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_
