#include "runtime/negotiation/codec.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/negotiation.pb.h"
#include "runtime/base/runs.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/request_codec.h"

namespace ronda {
namespace {

// More tensors than any response list or report has; bounds what a few damaged bytes can ask for.
constexpr size_t kMaxIds = size_t{1} << 18;

template <typename T>
void SetRuns(const std::vector<T>& values, google::protobuf::RepeatedField<T>* field) {
  const std::vector<T> runs = ToRuns(values);
  field->Assign(runs.begin(), runs.end());
}

// Ranks, ascending.
absl::StatusOr<std::vector<RankId>> RanksFromRuns(const google::protobuf::RepeatedField<int32_t>& runs,
                                                  absl::string_view of) {
  auto ranks = FromRuns<RankId>(runs, kMaxRanks);
  if (ranks && std::is_sorted(ranks->begin(), ranks->end(), std::less_equal<RankId>())) return *std::move(ranks);
  return absl::InvalidArgumentError(absl::StrCat("damaged control message: the ranks of ", of, " are out of range"));
}

void ToProto(const Response& response, v1::Response* proto) {
  RequestToProto(response.request, proto->mutable_request());
  proto->mutable_first_dims()->Assign(response.first_dims.begin(), response.first_dims.end());
}

absl::StatusOr<Response> FromProto(const v1::Response& proto) {
  Response response;
  RONDA_ASSIGN_OR_RETURN(response.request, RequestFromProto(proto.request()));
  response.first_dims.assign(proto.first_dims().begin(), proto.first_dims().end());
  for (int64_t dim : response.first_dims) {
    if (dim < 0) return DamagedField("first dimension", response.request.name);
  }
  return response;
}

void ToProto(const Bucket& bucket, v1::Bucket* proto) {
  RunWriter<uint64_t> ids;
  const auto say_ids = [&] {
    const std::vector<uint64_t> runs = ids.Take();
    if (!runs.empty()) proto->add_executions()->mutable_cached()->Assign(runs.begin(), runs.end());
    ids = {};
  };
  for (const Execution& execution : bucket.executions) {
    if (const CacheId* id = std::get_if<CacheId>(&execution)) {
      ids.Add(*id);
      continue;
    }
    say_ids();
    ToProto(std::get<Response>(execution), proto->add_executions()->mutable_response());
  }
  say_ids();
  SetRuns(bucket.joined, proto->mutable_joined());
  proto->set_absent_as_zeros(bucket.absent == TensorRequest::Absent::kCountedAsZeros);
}

// `ids_left` is what the whole list may still hold.
absl::Status TakeExecution(const v1::Execution& proto, size_t* ids_left, Bucket* bucket) {
  const auto ids = FromRuns<uint64_t>(proto.cached(), *ids_left);
  if (!ids || ids->empty() != proto.has_response()) {
    return absl::InvalidArgumentError("damaged control message: an execution without a tensor, or with too many");
  }
  *ids_left -= ids->size();
  bucket->executions.insert(bucket->executions.end(), ids->begin(), ids->end());
  if (!proto.has_response()) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(Response response, FromProto(proto.response()));
  bucket->executions.push_back(std::move(response));
  return absl::OkStatus();
}

absl::StatusOr<Bucket> FromProto(const v1::Bucket& proto, size_t* ids_left) {
  Bucket bucket;
  if (proto.executions().empty()) return absl::InvalidArgumentError("damaged control message: an empty bucket");
  for (const v1::Execution& execution : proto.executions()) {
    RONDA_RETURN_IF_ERROR(TakeExecution(execution, ids_left, &bucket));
  }
  RONDA_ASSIGN_OR_RETURN(bucket.joined, RanksFromRuns(proto.joined(), "a bucket"));
  if (proto.absent_as_zeros()) bucket.absent = TensorRequest::Absent::kCountedAsZeros;
  return bucket;
}

void ToProto(const TensorError& error, v1::TensorError* proto) {
  proto->set_name(error.name);
  proto->set_process_set(error.process_set);
  proto->set_code(static_cast<int32_t>(error.status.code()));
  proto->set_text(std::string(error.status.message()));
  SetRuns(error.ranks, proto->mutable_ranks());
}

absl::StatusOr<TensorError> FromProto(const v1::TensorError& proto) {
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (proto.code() <= 0 || proto.code() > kLastCode) return DamagedField("error code", proto.name());
  TensorError error;
  error.name = proto.name();
  error.process_set = proto.process_set();
  error.status = absl::Status(static_cast<absl::StatusCode>(proto.code()), proto.text());
  RONDA_ASSIGN_OR_RETURN(error.ranks, RanksFromRuns(proto.ranks(), absl::StrCat("tensor '", error.name, "'")));
  return error;
}

absl::StatusOr<JobSettings> FromProto(const v1::JobSettings& proto) {
  RONDA_ASSIGN_OR_RETURN(const WaitLimits limits, LimitsFromProto(proto.limits(), "the job"));
  if (proto.cycle_time_ns() < 0) {
    return absl::InvalidArgumentError("damaged control message: the cycle time of the job is negative");
  }
  return JobSettings{.cache_capacity = proto.cache_capacity(),
                     .limits = limits,
                     .cycle_time = DurationFromNanoseconds(proto.cycle_time_ns()),
                     .chunk_bytes = proto.chunk_bytes()};
}

void ToProto(const JobSettings& settings, v1::JobSettings* proto) {
  proto->set_cache_capacity(settings.cache_capacity);
  LimitsToProto(settings.limits, proto->mutable_limits());
  proto->set_cycle_time_ns(absl::ToInt64Nanoseconds(settings.cycle_time));
  proto->set_chunk_bytes(settings.chunk_bytes);
}

void ToProto(const Schedule& schedule, v1::Schedule* proto) {
  proto->set_number(schedule.number);
  for (const std::vector<CacheId>& bucket : schedule.buckets) SetRuns(bucket, proto->add_buckets()->mutable_cached());
}

absl::StatusOr<Schedule> FromProto(const v1::Schedule& proto) {
  Schedule schedule = {.number = proto.number()};
  if (schedule.number == 0 || proto.buckets().empty()) {
    return absl::InvalidArgumentError("damaged control message: a schedule without a number or without buckets");
  }
  absl::flat_hash_set<CacheId> seen;
  for (const v1::ScheduledBucket& bucket : proto.buckets()) {
    auto ids = FromRuns<uint64_t>(bucket.cached(), kMaxIds - seen.size());
    if (!ids || ids->empty()) {
      return absl::InvalidArgumentError("damaged control message: a bucket of a schedule is empty or too large");
    }
    for (CacheId id : *ids) {
      if (seen.insert(id).second) continue;
      return absl::InvalidArgumentError(absl::StrCat("damaged control message: a schedule has id ", id, " twice"));
    }
    schedule.buckets.push_back(*std::move(ids));
  }
  return schedule;
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
  SetRuns(report.cached, proto.mutable_cached());
  for (const RepeatedRequest& repeated : report.repeated) {
    v1::RepeatedRequest* out = proto.add_repeated();
    out->set_id(repeated.id);
    RequestToProto(repeated.request, out->mutable_request());
  }
  for (const TensorRequest& request : report.requests) RequestToProto(request, proto.add_requests());
  proto.set_leaving(report.membership == RankReport::Membership::kLeaving);
  proto.set_identity(report.identity);
  proto.set_schedule(report.schedule);
  proto.set_not_waited(report.waited == RankReport::Waited::kNo);
  proto.set_age_ns(absl::ToInt64Nanoseconds(report.age));
  return proto.SerializeAsString();
}

std::string Encode(const ResponseList& list) {
  v1::ResponseList proto;
  if (list.settings) ToProto(*list.settings, proto.mutable_settings());
  for (const TensorError& error : list.errors) ToProto(error, proto.add_errors());
  for (const Bucket& bucket : list.buckets) ToProto(bucket, proto.add_buckets());
  if (list.schedule) ToProto(*list.schedule, proto.mutable_schedule());
  proto.set_all_left(list.job == ResponseList::Job::kEnds);
  return proto.SerializeAsString();
}

absl::StatusOr<RankReport> DecodeRankReport(absl::string_view bytes) {
  v1::RankReport proto;
  if (!Parse(bytes, &proto)) return Undecodable("report", bytes.size());
  RankReport report;
  auto cached = FromRuns<uint64_t>(proto.cached(), kMaxIds);
  if (!cached) return absl::InvalidArgumentError("damaged control message: a report with too many ids");
  report.cached = *std::move(cached);
  for (const v1::RepeatedRequest& repeated : proto.repeated()) {
    RONDA_ASSIGN_OR_RETURN(TensorRequest request, RequestFromProto(repeated.request()));
    report.repeated.push_back({repeated.id(), std::move(request)});
  }
  report.requests.reserve(proto.requests_size());
  for (const v1::TensorRequest& request : proto.requests()) {
    RONDA_ASSIGN_OR_RETURN(TensorRequest decoded, RequestFromProto(request));
    report.requests.push_back(std::move(decoded));
  }
  report.membership = proto.leaving() ? RankReport::Membership::kLeaving : RankReport::Membership::kStaying;
  report.identity = proto.identity();
  report.schedule = proto.schedule();
  report.waited = proto.not_waited() ? RankReport::Waited::kNo : RankReport::Waited::kPerhaps;
  if (proto.age_ns() < 0) return absl::InvalidArgumentError("damaged control message: a report from the future");
  report.age = absl::Nanoseconds(proto.age_ns());
  return report;
}

absl::StatusOr<ResponseList> DecodeResponseList(absl::string_view bytes) {
  v1::ResponseList proto;
  if (!Parse(bytes, &proto)) return Undecodable("response list", bytes.size());
  ResponseList list;
  if (proto.has_settings()) {
    RONDA_ASSIGN_OR_RETURN(list.settings, FromProto(proto.settings()));
  }
  for (const v1::TensorError& error : proto.errors()) {
    RONDA_ASSIGN_OR_RETURN(TensorError decoded, FromProto(error));
    list.errors.push_back(std::move(decoded));
  }
  size_t ids_left = kMaxIds;
  for (const v1::Bucket& bucket : proto.buckets()) {
    RONDA_ASSIGN_OR_RETURN(Bucket decoded, FromProto(bucket, &ids_left));
    list.buckets.push_back(std::move(decoded));
  }
  if (proto.has_schedule()) {
    if (proto.all_left()) return absl::InvalidArgumentError("damaged control message: a schedule in the last list");
    RONDA_ASSIGN_OR_RETURN(list.schedule, FromProto(proto.schedule()));
  }
  list.job = proto.all_left() ? ResponseList::Job::kEnds : ResponseList::Job::kGoesOn;
  return list;
}

}  // namespace ronda
