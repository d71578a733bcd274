// What ranks tell the coordinator rank and what it answers, as plain structs. The wire's form of them is
// proto/ronda/v1/negotiation.proto; codec.h converts.
#ifndef RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_
#define RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"

namespace ronda {

// Names an entry of the response cache; the same on every rank, never used twice.
using CacheId = uint64_t;

// One tensor that a rank is ready to operate on.
struct TensorRequest {
  std::string name;
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  Shape shape;
  ReduceOp reduce_op = ReduceOp::kSum;
  enum class Averaging : uint8_t { kNo, kOverRanks } averaging = Averaging::kNo;
  WireFormat wire = WireFormat::kNone;
  double prescale = 1.0;
  double postscale = 1.0;
  RankId root = 0;

  friend bool operator==(const TensorRequest&, const TensorRequest&) = default;
};

// What has become ready on a rank since its last report.
struct RankReport {
  std::vector<CacheId> cached;          // requests equal to the cached one of this id
  std::vector<TensorRequest> requests;  // all others
  enum class Membership : uint8_t { kStaying, kLeaving } membership = Membership::kStaying;
  std::string identity;  // in the first report: "host h, pid 42"
};

// One tensor that every rank is ready to operate on. For an allgather, `request.shape` is that of the first rank to
// report, and `first_dims` holds every rank's first dimension, in rank order; otherwise it is empty.
struct Response {
  TensorRequest request;
  std::vector<int64_t> first_dims;

  friend bool operator==(const Response&, const Response&) = default;
};

// A tensor to carry out: spelled out, or by its place in the response cache.
using Execution = std::variant<CacheId, Response>;

// Tensors that are carried out together, as one collective.
using Bucket = std::vector<Execution>;

// A tensor that will not be carried out. It answers the submissions of `ranks` and of no others.
struct TensorError {
  std::string name;
  absl::Status status;
  std::vector<RankId> ranks;  // ascending
};

// What must be the same on every rank, or should be: rank 0's configuration.
struct JobSettings {
  uint64_t cache_capacity = 0;
  absl::Duration stall_deadline = absl::InfiniteDuration();

  friend bool operator==(const JobSettings&, const JobSettings&) = default;
};

// What all ranks do next, in this order: errors, then buckets.
struct ResponseList {
  std::optional<JobSettings> settings;  // in the first list, and before everything else
  std::vector<TensorError> errors;
  std::vector<Bucket> buckets;
  enum class Job : uint8_t { kGoesOn, kEnds } job = Job::kGoesOn;  // kEnds: every rank has left

  bool empty() const { return !settings && errors.empty() && buckets.empty() && job == Job::kGoesOn; }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_MESSAGES_H_
