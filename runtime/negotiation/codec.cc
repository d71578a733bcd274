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

void ToProto(const TensorRequest& request, v1::TensorRequest* proto) {
  proto->set_name(request.name);
  proto->set_op(static_cast<uint32_t>(request.op));
  proto->set_dtype(static_cast<uint32_t>(request.dtype));
  proto->mutable_shape()->Assign(request.shape.begin(), request.shape.end());
  proto->set_reduce_op(static_cast<uint32_t>(request.reduce_op));
  proto->set_average(request.averaging == TensorRequest::Averaging::kOverRanks);
  proto->set_wire(static_cast<uint32_t>(request.wire));
  proto->set_prescale(request.prescale);
  proto->set_postscale(request.postscale);
  proto->set_root(request.root);
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
  const auto reduce_op = ReduceOpFromInt(proto.reduce_op());
  if (!reduce_op) return Damaged("reduce op", request.name);
  const auto wire = WireFormatFromInt(proto.wire());
  if (!wire) return Damaged("wire format", request.name);
  request.op = *op;
  request.dtype = *dtype;
  request.reduce_op = *reduce_op;
  request.wire = *wire;
  request.shape.assign(proto.shape().begin(), proto.shape().end());
  if (!IsSane(request.shape) || (*op == OpType::kAllgather && request.shape.empty())) {
    return Damaged("shape", request.name);
  }
  if (proto.root() < 0) return Damaged("root", request.name);
  request.averaging = proto.average() ? TensorRequest::Averaging::kOverRanks : TensorRequest::Averaging::kNo;
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
  proto->set_code(static_cast<int32_t>(error.status.code()));
  proto->set_text(std::string(error.status.message()));
  proto->mutable_ranks()->Assign(error.ranks.begin(), error.ranks.end());
}

absl::StatusOr<TensorError> FromProto(const v1::TensorError& proto) {
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (proto.code() <= 0 || proto.code() > kLastCode) return Damaged("error code", proto.name());
  TensorError error;
  error.name = proto.name();
  error.status = absl::Status(static_cast<absl::StatusCode>(proto.code()), proto.text());
  error.ranks.assign(proto.ranks().begin(), proto.ranks().end());
  return error;
}

JobSettings FromProto(const v1::JobSettings& proto) {
  const int64_t deadline = proto.stall_deadline_ns();
  return {.cache_capacity = proto.cache_capacity(),
          .stall_deadline =
              deadline == std::numeric_limits<int64_t>::max() ? absl::InfiniteDuration() : absl::Nanoseconds(deadline)};
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
    // Saturates: an infinite deadline becomes the largest number.
    proto.mutable_settings()->set_stall_deadline_ns(absl::ToInt64Nanoseconds(list.settings->stall_deadline));
  }
  for (const TensorError& error : list.errors) ToProto(error, proto.add_errors());
  for (const Bucket& bucket : list.buckets) {
    v1::Bucket* out = proto.add_buckets();
    for (const Execution& execution : bucket) ToProto(execution, out->add_executions());
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
      out.push_back(std::move(decoded));
    }
  }
  list.job = proto.all_left() ? ResponseList::Job::kEnds : ResponseList::Job::kGoesOn;
  return list;
}

}  // namespace ronda
