#include "runtime/negotiation/codec.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/negotiation.pb.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::Status Damaged(absl::string_view field, absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("damaged control message: the ", field, " of tensor '", name, "' is out of range"));
}

// Saturates: an infinite duration becomes the largest number.
void ToProto(const WaitLimits& limits, v1::WaitLimits* proto) {
  proto->set_warning_ns(absl::ToInt64Nanoseconds(limits.warning));
  proto->set_deadline_ns(absl::ToInt64Nanoseconds(limits.deadline));
}

absl::Duration FromNanoseconds(int64_t ns) {
  return ns == std::numeric_limits<int64_t>::max() ? absl::InfiniteDuration() : absl::Nanoseconds(ns);
}

WaitLimits FromProto(const v1::WaitLimits& proto) {
  return {.warning = FromNanoseconds(proto.warning_ns()), .deadline = FromNanoseconds(proto.deadline_ns())};
}

void ToProto(const TensorRequest& request, v1::TensorRequest* proto) {
  proto->set_name(request.name);
  proto->set_op(static_cast<uint32_t>(request.op));
  proto->set_dtype(static_cast<uint32_t>(request.dtype));
  proto->mutable_shape()->Assign(request.shape.begin(), request.shape.end());
  proto->set_reduction(static_cast<uint32_t>(request.reduction));
  proto->set_wire(static_cast<uint32_t>(request.wire));
  proto->set_prescale(request.prescale);
  proto->set_postscale(request.postscale);
  proto->set_root(request.root);
  proto->set_process_set(request.process_set);
  proto->set_detect_overflow(request.overflow == TensorRequest::Overflow::kDetected);
  proto->set_receiver(request.receiver);
  proto->set_group(request.group);
  proto->set_group_size(request.group_size);
  proto->set_absent_as_zeros(request.absent == TensorRequest::Absent::kCountedAsZeros);
  proto->mutable_members()->Assign(request.members.begin(), request.members.end());
  proto->set_subject(request.subject);
  if (request.limits) ToProto(*request.limits, proto->mutable_limits());
}

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

absl::StatusOr<TensorRequest> FromProto(const v1::TensorRequest& proto) {
  TensorRequest request;
  request.name = proto.name();
  if (request.name.empty()) return absl::InvalidArgumentError("damaged control message: a tensor without a name");
  const auto op = OpTypeFromInt(proto.op());
  if (!op) return Damaged("operation", request.name);
  const auto dtype = DTypeFromInt(proto.dtype());
  if (!dtype) return Damaged("dtype", request.name);
  const auto reduction = ReductionFromInt(proto.reduction());
  if (!reduction) return Damaged("reduce op", request.name);
  const auto wire = WireFormatFromInt(proto.wire());
  if (!wire) return Damaged("wire format", request.name);
  request.op = *op;
  request.dtype = *dtype;
  request.reduction = *reduction;
  request.wire = *wire;
  request.shape.assign(proto.shape().begin(), proto.shape().end());
  if (!IsSane(request.shape) || (*op == OpType::kAllgather && request.shape.empty())) {
    return Damaged("shape", request.name);
  }
  if (proto.root() < 0) return Damaged("root", request.name);
  using Overflow = TensorRequest::Overflow;
  using Absent = TensorRequest::Absent;
  request.process_set = proto.process_set();
  request.overflow = proto.detect_overflow() ? Overflow::kDetected : Overflow::kIgnored;
  request.receiver = proto.receiver();
  request.group = proto.group();
  request.group_size = proto.group_size();
  request.absent = proto.absent_as_zeros() ? Absent::kCountedAsZeros : Absent::kNotCounted;
  request.members.assign(proto.members().begin(), proto.members().end());
  request.subject = proto.subject();
  if (proto.has_limits()) request.limits = FromProto(proto.limits());
  request.prescale = proto.prescale();
  request.postscale = proto.postscale();
  request.root = proto.root();
  return request;
}

void ToProto(const Execution& execution, v1::Execution* proto) {
  if (const CacheId* id = std::get_if<CacheId>(&execution)) {
    proto->set_cached(*id);
    return;
  }
  const Response& response = std::get<Response>(execution);
  ToProto(response.request, proto->mutable_response()->mutable_request());
  proto->mutable_response()->mutable_first_dims()->Assign(response.first_dims.begin(), response.first_dims.end());
}

absl::StatusOr<Execution> FromProto(const v1::Execution& proto) {
  if (proto.what_case() == v1::Execution::kCached) return Execution(CacheId{proto.cached()});
  if (proto.what_case() != v1::Execution::kResponse) {
    return absl::InvalidArgumentError("damaged control message: an execution without a tensor");
  }
  Response response;
  RONDA_ASSIGN_OR_RETURN(response.request, FromProto(proto.response().request()));
  response.first_dims.assign(proto.response().first_dims().begin(), proto.response().first_dims().end());
  for (int64_t dim : response.first_dims) {
    if (dim < 0) return Damaged("first dimension", response.request.name);
  }
  return Execution(std::move(response));
}

void ToProto(const TensorError& error, v1::TensorError* proto) {
  proto->set_name(error.name);
  proto->set_process_set(error.process_set);
  proto->set_code(static_cast<int32_t>(error.status.code()));
  proto->set_text(std::string(error.status.message()));
  proto->mutable_ranks()->Assign(error.ranks.begin(), error.ranks.end());
}

absl::StatusOr<TensorError> FromProto(const v1::TensorError& proto) {
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (proto.code() <= 0 || proto.code() > kLastCode) return Damaged("error code", proto.name());
  TensorError error;
  error.name = proto.name();
  error.process_set = proto.process_set();
  error.status = absl::Status(static_cast<absl::StatusCode>(proto.code()), proto.text());
  error.ranks.assign(proto.ranks().begin(), proto.ranks().end());
  return error;
}

JobSettings FromProto(const v1::JobSettings& proto) {
  return {.cache_capacity = proto.cache_capacity(), .limits = FromProto(proto.limits())};
}

absl::Status Undecodable(absl::string_view what, size_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat("damaged control message: ", bytes, " bytes are no ", what));
}

bool Parse(absl::string_view bytes, google::protobuf::MessageLite* proto) {
  return bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
         proto->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string Encode(const RankReport& report) {
  v1::RankReport proto;
  proto.mutable_cached()->Assign(report.cached.begin(), report.cached.end());
  for (const TensorRequest& request : report.requests) ToProto(request, proto.add_requests());
  proto.set_leaving(report.membership == RankReport::Membership::kLeaving);
  proto.set_identity(report.identity);
  return proto.SerializeAsString();
}

std::string Encode(const ResponseList& list) {
  v1::ResponseList proto;
  if (list.settings) {
    proto.mutable_settings()->set_cache_capacity(list.settings->cache_capacity);
    ToProto(list.settings->limits, proto.mutable_settings()->mutable_limits());
  }
  for (const TensorError& error : list.errors) ToProto(error, proto.add_errors());
  for (const Bucket& bucket : list.buckets) {
    v1::Bucket* out = proto.add_buckets();
    for (const Execution& execution : bucket.executions) ToProto(execution, out->add_executions());
    out->mutable_joined()->Assign(bucket.joined.begin(), bucket.joined.end());
    out->set_absent_as_zeros(bucket.absent == TensorRequest::Absent::kCountedAsZeros);
  }
  proto.set_all_left(list.job == ResponseList::Job::kEnds);
  return proto.SerializeAsString();
}

absl::StatusOr<RankReport> DecodeRankReport(absl::string_view bytes) {
  v1::RankReport proto;
  if (!Parse(bytes, &proto)) return Undecodable("report", bytes.size());
  RankReport report;
  report.cached.assign(proto.cached().begin(), proto.cached().end());
  report.requests.reserve(proto.requests_size());
  for (const v1::TensorRequest& request : proto.requests()) {
    RONDA_ASSIGN_OR_RETURN(TensorRequest decoded, FromProto(request));
    report.requests.push_back(std::move(decoded));
  }
  report.membership = proto.leaving() ? RankReport::Membership::kLeaving : RankReport::Membership::kStaying;
  report.identity = proto.identity();
  return report;
}

absl::StatusOr<ResponseList> DecodeResponseList(absl::string_view bytes) {
  v1::ResponseList proto;
  if (!Parse(bytes, &proto)) return Undecodable("response list", bytes.size());
  ResponseList list;
  if (proto.has_settings()) list.settings = FromProto(proto.settings());
  for (const v1::TensorError& error : proto.errors()) {
    RONDA_ASSIGN_OR_RETURN(TensorError decoded, FromProto(error));
    list.errors.push_back(std::move(decoded));
  }
  for (const v1::Bucket& bucket : proto.buckets()) {
    Bucket& out = list.buckets.emplace_back();
    for (const v1::Execution& execution : bucket.executions()) {
      RONDA_ASSIGN_OR_RETURN(Execution decoded, FromProto(execution));
      out.executions.push_back(std::move(decoded));
    }
    out.joined.assign(bucket.joined().begin(), bucket.joined().end());
    if (bucket.absent_as_zeros()) out.absent = TensorRequest::Absent::kCountedAsZeros;
  }
  list.job = proto.all_left() ? ResponseList::Job::kEnds : ResponseList::Job::kGoesOn;
  return list;
}

}  // namespace ronda
