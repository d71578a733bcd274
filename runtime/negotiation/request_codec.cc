#include "runtime/negotiation/request_codec.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/runs.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/operation_rules.h"

namespace ronda {
namespace {

// The dimensions are not negative and their product, in bytes of the widest dtype, does not overflow.
bool IsSane(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) {
    if (dim < 0) return false;
    if (dim > 0 && count > std::numeric_limits<int64_t>::max() / 16 / dim) return false;
    if (dim > 0) count *= dim;
  }
  return true;
}

absl::Status TakeEnums(const v1::TensorRequest& proto, TensorRequest* request) {
  const auto op = OpTypeFromInt(proto.op());
  if (!op) return DamagedField("operation", request->name);
  const auto dtype = DTypeFromInt(proto.dtype());
  if (!dtype) return DamagedField("dtype", request->name);
  const auto reduction = ReductionFromInt(proto.reduction());
  if (!reduction) return DamagedField("reduce op", request->name);
  const auto wire = WireFormatFromInt(proto.wire());
  if (!wire) return DamagedField("wire format", request->name);
  const auto memory = MemoryFromInt(proto.memory());
  if (!memory) return DamagedField("memory", request->name);
  request->op = *op;
  request->dtype = *dtype;
  request->reduction = *reduction;
  request->wire = *wire;
  request->memory = *memory;
  using Overflow = TensorRequest::Overflow;
  request->overflow = proto.detect_overflow() ? Overflow::kDetected : Overflow::kIgnored;
  using Absent = TensorRequest::Absent;
  request->absent = proto.absent_as_zeros() ? Absent::kCountedAsZeros : Absent::kNotCounted;
  return absl::OkStatus();
}

absl::Status TakeRanks(const v1::TensorRequest& proto, TensorRequest* request) {
  if (proto.root() < 0) return DamagedField("root", request->name);
  if (proto.receiver() < 0) return DamagedField("receiver", request->name);
  auto members = FromRuns<RankId>(proto.members(), kMaxRanks);
  const bool adds = request->op == OpType::kAddProcessSet;
  if (!members || members->empty() == adds ||
      !std::is_sorted(members->begin(), members->end(), std::less_equal<RankId>())) {
    return DamagedField("list of members", request->name);
  }
  request->root = proto.root();
  request->receiver = proto.receiver();
  request->members = *std::move(members);
  return absl::OkStatus();
}

absl::Status TakeGroup(const v1::TensorRequest& proto, TensorRequest* request) {
  const bool grouped = !proto.group().empty();
  if (grouped != (proto.group_size() > 0) || proto.group_size() < 0 || (grouped && !IsCached(request->op))) {
    return DamagedField("group", request->name);
  }
  request->group = proto.group();
  request->group_size = proto.group_size();
  return absl::OkStatus();
}

}  // namespace

absl::Duration DurationFromNanoseconds(int64_t ns) {
  return ns == std::numeric_limits<int64_t>::max() ? absl::InfiniteDuration() : absl::Nanoseconds(ns);
}

absl::Status DamagedField(absl::string_view field, absl::string_view tensor) {
  return absl::InvalidArgumentError(
      absl::StrCat("damaged control message: the ", field, " of tensor '", tensor, "' is out of range"));
}

// Saturates: an infinite duration becomes the largest number.
void LimitsToProto(const WaitLimits& limits, v1::WaitLimits* proto) {
  proto->set_warning_ns(absl::ToInt64Nanoseconds(limits.warning));
  proto->set_deadline_ns(absl::ToInt64Nanoseconds(limits.deadline));
}

absl::StatusOr<WaitLimits> LimitsFromProto(const v1::WaitLimits& proto, absl::string_view of) {
  if (proto.warning_ns() < 0 || proto.deadline_ns() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("damaged control message: the wait limits of ", of, " are negative"));
  }
  return WaitLimits{.warning = DurationFromNanoseconds(proto.warning_ns()),
                    .deadline = DurationFromNanoseconds(proto.deadline_ns())};
}

void RequestToProto(const TensorRequest& request, v1::TensorRequest* proto) {
  proto->set_name(request.name);
  proto->set_op(static_cast<uint32_t>(request.op));
  proto->set_dtype(static_cast<uint32_t>(request.dtype));
  proto->mutable_shape()->Assign(request.shape.begin(), request.shape.end());
  proto->set_reduction(static_cast<uint32_t>(request.reduction));
  proto->set_wire(static_cast<uint32_t>(request.wire));
  proto->set_memory(static_cast<uint32_t>(request.memory));
  proto->set_prescale(request.prescale);
  proto->set_postscale(request.postscale);
  proto->set_root(request.root);
  proto->set_process_set(request.process_set);
  proto->set_detect_overflow(request.overflow == TensorRequest::Overflow::kDetected);
  proto->set_receiver(request.receiver);
  proto->set_group(request.group);
  proto->set_group_size(request.group_size);
  proto->set_absent_as_zeros(request.absent == TensorRequest::Absent::kCountedAsZeros);
  const std::vector<RankId> members = ToRuns(request.members);
  proto->mutable_members()->Assign(members.begin(), members.end());
  proto->set_subject(request.subject);
  if (request.limits) LimitsToProto(*request.limits, proto->mutable_limits());
}

absl::StatusOr<TensorRequest> RequestFromProto(const v1::TensorRequest& proto) {
  TensorRequest request;
  request.name = proto.name();
  if (request.name.empty()) return absl::InvalidArgumentError("damaged control message: a tensor without a name");
  RONDA_RETURN_IF_ERROR(TakeEnums(proto, &request));
  if ((request.op == OpType::kJoin) != (request.name == kJoinName)) return DamagedField("name", request.name);
  request.shape.assign(proto.shape().begin(), proto.shape().end());
  if (!IsSane(request.shape) || (NeedsFirstDimension(request.op) && request.shape.empty())) {
    return DamagedField("shape", request.name);
  }
  RONDA_RETURN_IF_ERROR(TakeRanks(proto, &request));
  RONDA_RETURN_IF_ERROR(TakeGroup(proto, &request));
  if (proto.has_limits()) {
    RONDA_ASSIGN_OR_RETURN(request.limits,
                           LimitsFromProto(proto.limits(), absl::StrCat("tensor '", request.name, "'")));
  }
  request.process_set = proto.process_set();
  request.subject = proto.subject();
  request.prescale = proto.prescale();
  request.postscale = proto.postscale();
  return request;
}

}  // namespace ronda
