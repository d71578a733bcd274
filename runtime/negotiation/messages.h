// What ranks tell the coordinator rank and what it answers, as plain structs. The wire's form of them is
// proto/ronda/v1/negotiation.proto; codec.h converts.
#ifndef RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_
#define RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/tensor_key.h"

namespace ronda {

// Names an entry of the response cache; the same on every rank, never used twice.
using CacheId = uint64_t;

// The name of every join.
inline constexpr absl::string_view kJoinName = "ronda/join";

// One tensor that a rank is ready to operate on. Ranks are numbered as in the job, not as in the process set.
struct TensorRequest {
  std::string name;  // with the process set, what brings the ranks' requests together
  ProcessSetId process_set = kGlobalProcessSet;
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  Memory memory = Memory::kHost;  // where the buffers are, on every rank; a join or barrier has none: kHost
  Shape shape;
  Reduction reduction = Reduction::kSum;
  WireFormat wire = WireFormat::kNone;
  double prescale = 1.0;
  double postscale = 1.0;
  enum class Overflow : uint8_t { kIgnored, kDetected } overflow = Overflow::kIgnored;
  RankId root = 0;  // broadcast, reduce, gather, scatter: the root; send/recv: the sender. In a join's response: the
                    // last rank to join
  RankId receiver = 0;  // send/recv

  // A group of tensors runs as a whole or not at all. Empty: this tensor is in none.
  std::string group;
  int group_size = 0;

  // A join: how averages count the ranks that have joined.
  enum class Absent : uint8_t { kNotCounted, kCountedAsZeros } absent = Absent::kNotCounted;

  std::vector<RankId> members;  // kAddProcessSet; ascending
  ProcessSetId subject = 0;     // kRemoveProcessSet

  std::optional<WaitLimits> limits;  // nullopt: the job's. Ranks may differ in it; the shortest holds

  TensorKeyView key() const { return {process_set, name}; }

  friend bool operator==(const TensorRequest&, const TensorRequest&) = default;
};

// Bytes of the whole tensor.
// REQUIRES: the element count fits in memory (the codec and the client have checked).
inline size_t TensorBytes(const TensorRequest& request) {
  return static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype);
}

// A request that the rank has reported by an id which was evicted while nothing had answered it.
struct RepeatedRequest {
  CacheId id = 0;
  TensorRequest request;

  friend bool operator==(const RepeatedRequest&, const RepeatedRequest&) = default;
};

// What has become ready on a rank since its last report. It is taken in the order of the fields.
struct RankReport {
  std::vector<CacheId> cached;            // requests equal to the cached one of this id
  std::vector<RepeatedRequest> repeated;  // count if the coordinator rank did not know the id any more
  std::vector<TensorRequest> requests;    // all others, in the order of their submission
  enum class Membership : uint8_t { kStaying, kLeaving } membership = Membership::kStaying;
  std::string identity;  // in the first report: "host h, pid 42"
  // The number of the last schedule that this rank has begun; 0: none. What was sent before a schedule began counts for
  // nothing any more: the submissions are part of the schedule, or are reported again once it is left.
  uint64_t schedule = 0;
  // Whether the program may have learned that something is complete after the last submission of the last report and
  // before the last one of these. If not, these do not depend on those.
  enum class Waited : uint8_t { kPerhaps, kNo } waited = Waited::kPerhaps;
  // How long ago the last of these submissions was made, where that is not just now: in a schedule that has been left.
  absl::Duration age;
};

// One tensor that every rank of its process set is ready to operate on, but for those that have joined.
//
// `request.shape` is what every rank has submitted, with these exceptions. Allgather, gather: the first dimension is 0,
// and `first_dims` holds every member's, in the order of the process set (otherwise it is empty). Alltoall: the first
// dimension is 0; each rank knows its own alone. Scatter: the first dimension is the root's.
//
// The response to kAddProcessSet has the new set's id in `request.subject`.
struct Response {
  TensorRequest request;
  std::vector<int64_t> first_dims;

  friend bool operator==(const Response&, const Response&) = default;
};

// A tensor to carry out: spelled out, or by its place in the response cache.
using Execution = std::variant<CacheId, Response>;

// Tensors of one process set that are carried out together, as one collective.
struct Bucket {
  std::vector<Execution> executions;
  std::vector<RankId> joined;  // members of the process set that take no part; ascending
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// A Bucket in which everything has been looked up.
struct AgreedBucket {
  std::vector<std::shared_ptr<const Response>> responses;  // at least one
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
  ProcessSetId process_set = kGlobalProcessSet;
  std::shared_ptr<const Group> members;       // of the process set, those that have joined included
  std::shared_ptr<const Group> participants;  // without those that have joined; send/recv: the two
};

// A tensor that will not be carried out. It answers the submissions of `ranks` and of no others.
struct TensorError {
  std::string name;
  ProcessSetId process_set = kGlobalProcessSet;
  absl::Status status;
  std::vector<RankId> ranks;  // ascending

  TensorKeyView key() const { return {process_set, name}; }
};

// What must be the same on every rank, or should be: rank 0's configuration. The cache capacity never changes.
struct JobSettings {
  uint64_t cache_capacity = 0;
  WaitLimits limits;
  absl::Duration cycle_time;  // longest time a tensor may wait for others to be fused with
  size_t chunk_bytes = 0;     // in which collectives cut their data; 0: the backend's own choice

  friend bool operator==(const JobSettings&, const JobSettings&) = default;
};

// Buckets that all ranks carry out from now on, over and over, as their tensors become ready and without being told,
// until one of them votes to leave: the locked schedule (locked_schedule.h). All ranks take part in all of them, and each
// tensor is there once, by its place in the response cache.
struct Schedule {
  uint64_t number = 0;  // 1, 2, 3, ... in the order in which they begin
  std::vector<std::vector<CacheId>> buckets;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// What all ranks do next, in this order: settings, errors, buckets, schedule.
struct ResponseList {
  std::optional<JobSettings> settings;  // in the first list, and in any that changes them
  std::vector<TensorError> errors;
  std::vector<Bucket> buckets;
  std::optional<Schedule> schedule;
  enum class Job : uint8_t { kGoesOn, kEnds } job = Job::kGoesOn;  // kEnds: every rank has left

  bool empty() const { return !settings && errors.empty() && buckets.empty() && !schedule && job == Job::kGoesOn; }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_
