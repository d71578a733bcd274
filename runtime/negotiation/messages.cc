// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/messages.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/negotiation.pb.h"
#include "runtime/base/group.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// More ranks than any job has.
constexpr size_t kMaxRanks = size_t{1} << 16;

absl::Status Damaged(absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("damaged control message: ", problem));
}

absl::Status DamagedField(absl::string_view field, absl::string_view tensor) {
  return Damaged(absl::StrCat("out of range: the ", field, " of tensor '", tensor, "'"));
}

template <typename T>
void SetRuns(const std::vector<T>& values, google::protobuf::RepeatedField<T>* field) {
  const std::vector<T> runs = ToRuns(values);
  field->Assign(runs.begin(), runs.end());
}

bool IsAscending(const std::vector<RankId>& ranks) {
  return std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<RankId>());
}

absl::StatusOr<std::vector<RankId>> RanksFromRuns(const google::protobuf::RepeatedField<int32_t>& runs,
                                                  absl::string_view of) {
  auto ranks = FromRuns<RankId>(runs, kMaxRanks);
  if (ranks && IsAscending(*ranks)) return *std::move(ranks);
  return Damaged(absl::StrCat("the ranks of ", of, " are out of range"));
}

// Converts nanoseconds to a duration. INT64_MAX means an infinite duration.
absl::Duration DurationFromNanoseconds(int64_t ns) {
  return ns == std::numeric_limits<int64_t>::max() ? absl::InfiniteDuration() : absl::Nanoseconds(ns);
}

// Converts the value of a request's field to the type that the protobuf setter of the field takes. There is one
// overload per type of field.
template <typename T>
auto ToScalar(T value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<uint32_t>(value);
  } else {
    return value;
  }
}
const std::string& ToScalar(const std::string& value) { return value; }
bool ToScalar(TensorRequest::Overflow overflow) { return overflow == TensorRequest::Overflow::kDetected; }
bool ToScalar(TensorRequest::Absent absent) { return absent == TensorRequest::Absent::kCountedAsZeros; }

void ToList(const Shape& shape, google::protobuf::RepeatedField<int64_t>* field) {
  field->Assign(shape.begin(), shape.end());
}
void ToList(const std::vector<RankId>& ranks, google::protobuf::RepeatedField<int32_t>* field) {
  SetRuns(ranks, field);
}

// Converts limits to their protobuf message. An infinite duration becomes the largest number.
void ToProto(const WaitLimits& limits, v1::WaitLimits* proto) {
  proto->set_warning_ns(absl::ToInt64Nanoseconds(limits.warning));
  proto->set_deadline_ns(absl::ToInt64Nanoseconds(limits.deadline));
}

void ToProto(const TensorRequest& request, v1::TensorRequest* proto) {
  proto->set_name(request.name);
#define RONDA_SCALAR(field, proto_field, ...) proto->set_##proto_field(ToScalar(request.field));
#define RONDA_LIST(field, proto_field, ...) ToList(request.field, proto->mutable_##proto_field());
#define RONDA_MESSAGE(field, proto_field, ...) \
  if (request.field) ToProto(*request.field, proto->mutable_##proto_field());
  RONDA_REQUEST_FIELDS(RONDA_SCALAR, RONDA_LIST, RONDA_MESSAGE)
#undef RONDA_SCALAR
#undef RONDA_LIST
#undef RONDA_MESSAGE
}

// Each of these functions decodes a field of a request, and returns false if the value is out of range.
template <typename T>
bool DecodeIf(std::optional<T> value, T* field) {
  if (value) *field = *value;
  return value.has_value();
}
bool Decode(uint32_t value, OpType* field) { return DecodeIf(OpTypeFromInt(value), field); }
bool Decode(uint32_t value, DType* field) { return DecodeIf(DTypeFromInt(value), field); }
bool Decode(uint32_t value, Memory* field) { return DecodeIf(MemoryFromInt(value), field); }
bool Decode(uint32_t value, Reduction* field) { return DecodeIf(ReductionFromInt(value), field); }
bool Decode(uint32_t value, TensorRequest::Function* field) {
  if (value >= static_cast<uint32_t>(kFunctionCount)) return false;
  *field = static_cast<TensorRequest::Function>(value);
  return true;
}
bool Decode(uint32_t value, WireFormat* field) { return DecodeIf(WireFormatFromInt(value), field); }
// Decodes a rank or a size.
bool Decode(int32_t value, int* field) {
  *field = value;
  return value >= 0;
}
template <typename T>
bool Decode(const T& value, T* field) {
  *field = value;
  return true;
}
bool Decode(bool value, TensorRequest::Overflow* field) {
  *field = value ? TensorRequest::Overflow::kDetected : TensorRequest::Overflow::kIgnored;
  return true;
}
bool Decode(bool value, TensorRequest::Absent* field) {
  *field = value ? TensorRequest::Absent::kCountedAsZeros : TensorRequest::Absent::kNotCounted;
  return true;
}

// Does not check the dimensions, because their limit depends on the dtype.
bool Decode(const google::protobuf::RepeatedField<int64_t>& dims, Shape* shape) {
  shape->assign(dims.begin(), dims.end());
  return true;
}

bool Decode(const google::protobuf::RepeatedField<int32_t>& runs, std::vector<RankId>* ranks) {
  return DecodeIf(FromRuns<RankId>(runs, kMaxRanks), ranks) && IsAscending(*ranks);
}

bool Decode(const v1::WaitLimits& proto, WaitLimits* limits) {
  *limits = {.warning = DurationFromNanoseconds(proto.warning_ns()),
             .deadline = DurationFromNanoseconds(proto.deadline_ns())};
  return proto.warning_ns() >= 0 && proto.deadline_ns() >= 0;
}

// Returns the name of a field whose value is possible but contradicts another field; nullptr if there is none.
const char* Contradiction(const TensorRequest& request) {
  const OperationTraits& traits = TraitsOf(request.op);
  if ((request.op == OpType::kJoin) != (request.name == kJoinName)) return "name";
  if (traits.by_rows && request.shape.empty()) return "shape";
  if (request.members.empty() == traits.adds_process_set) return "members";
  const bool grouped = !request.group.empty();
  return grouped != (request.group_size > 0) || (grouped && !traits.cached()) ? "group" : nullptr;
}

absl::StatusOr<TensorRequest> FromProto(const v1::TensorRequest& proto) {
  TensorRequest request;
  request.name = proto.name();
  if (request.name.empty()) return Damaged("a tensor without a name");
#define RONDA_FIELD(field, proto_field, word, uses) \
  if (!Decode(proto.proto_field(), &request.field)) return DamagedField(word, request.name);
#define RONDA_MESSAGE(field, proto_field, word, uses)                                        \
  if (proto.has_##proto_field() && !Decode(proto.proto_field(), &request.field.emplace())) { \
    return DamagedField(word, request.name);                                                 \
  }
  RONDA_REQUEST_FIELDS(RONDA_FIELD, RONDA_FIELD, RONDA_MESSAGE)
#undef RONDA_FIELD
#undef RONDA_MESSAGE
  if (!ExtentInBytes(request.shape, request.dtype)) return DamagedField("shape", request.name);
  if (const char* field = Contradiction(request)) return DamagedField(field, request.name);
  return request;
}

void ToProto(const Response& response, v1::Response* proto) {
  ToProto(response.request, proto->mutable_request());
  proto->mutable_first_dims()->Assign(response.first_dims.begin(), response.first_dims.end());
}

absl::StatusOr<Response> FromProto(const v1::Response& proto) {
  Response response;
  RONDA_ASSIGN_OR_RETURN(response.request, FromProto(proto.request()));
  response.first_dims.assign(proto.first_dims().begin(), proto.first_dims().end());
  for (int64_t dim : response.first_dims) {
    if (dim < 0) return DamagedField("first dimension", response.request.name);
  }
  return response;
}

void ToProto(const Bucket& bucket, v1::Bucket* proto) {
  RunWriter<uint64_t> ids;
  const auto write_ids = [&] {
    const std::vector<uint64_t> runs = ids.Take();
    if (!runs.empty()) proto->add_executions()->mutable_cached()->Assign(runs.begin(), runs.end());
    ids = {};
  };
  for (const Execution& execution : bucket.executions) {
    if (const CacheId* id = std::get_if<CacheId>(&execution)) {
      ids.Add(*id);
      continue;
    }
    write_ids();
    ToProto(std::get<Response>(execution), proto->add_executions()->mutable_response());
  }
  write_ids();
  SetRuns(bucket.joined, proto->mutable_joined());
  proto->set_absent_as_zeros(bucket.absent == TensorRequest::Absent::kCountedAsZeros);
}

// Decodes one execution, and adds it to `bucket`. `ids_left` is the number of ids that the rest of the list may
// contain.
absl::Status DecodeExecution(const v1::Execution& proto, size_t* ids_left, Bucket* bucket) {
  const auto ids = FromRuns<uint64_t>(proto.cached(), *ids_left);
  if (!ids || ids->empty() != proto.has_response()) {
    return Damaged("an execution without a tensor, or with too many");
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
  if (proto.executions().empty()) return Damaged("an empty bucket");
  for (const v1::Execution& execution : proto.executions()) {
    RONDA_RETURN_IF_ERROR(DecodeExecution(execution, ids_left, &bucket));
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

void ToProto(const ReceiveMatch& match, v1::ReceiveMatch* proto) {
  proto->set_process_set(match.process_set);
  proto->set_receiver(match.receiver);
  proto->set_receive(match.receive);
  proto->set_message(match.message);
  proto->set_sender(match.sender);
}

absl::StatusOr<ReceiveMatch> FromProto(const v1::ReceiveMatch& proto) {
  if (proto.receiver() < 0 || proto.sender() < 0) return DamagedField("ranks", proto.receive());
  if (proto.message().empty()) return DamagedField("new name", proto.receive());
  return ReceiveMatch{.process_set = proto.process_set(),
                      .receiver = proto.receiver(),
                      .receive = proto.receive(),
                      .message = proto.message(),
                      .sender = proto.sender()};
}

absl::StatusOr<JobSettings> FromProto(const v1::JobSettings& proto) {
  WaitLimits limits;
  if (!Decode(proto.limits(), &limits)) return Damaged("the wait limits of the job are negative");
  if (proto.cycle_time_ns() < 0) return Damaged("the cycle time of the job is negative");
  return JobSettings{.cache_capacity = proto.cache_capacity(),
                     .limits = limits,
                     .cycle_time = DurationFromNanoseconds(proto.cycle_time_ns()),
                     .chunk_bytes = proto.chunk_bytes()};
}

void ToProto(const JobSettings& settings, v1::JobSettings* proto) {
  proto->set_cache_capacity(settings.cache_capacity);
  ToProto(settings.limits, proto->mutable_limits());
  proto->set_cycle_time_ns(absl::ToInt64Nanoseconds(settings.cycle_time));
  proto->set_chunk_bytes(settings.chunk_bytes);
}

void ToProto(const Schedule& schedule, v1::Schedule* proto) {
  proto->set_number(schedule.number);
  for (const std::vector<CacheId>& bucket : schedule.buckets) SetRuns(bucket, proto->add_buckets()->mutable_cached());
}

absl::StatusOr<Schedule> FromProto(const v1::Schedule& proto, size_t max_ids) {
  Schedule schedule = {.number = proto.number()};
  if (schedule.number == 0 || proto.buckets().empty()) {
    return Damaged("a schedule without a number or without buckets");
  }
  std::unordered_set<CacheId> seen;
  for (const v1::ScheduledBucket& bucket : proto.buckets()) {
    auto ids = FromRuns<uint64_t>(bucket.cached(), max_ids - seen.size());
    if (!ids || ids->empty()) {
      return Damaged("a bucket of a schedule is empty or too large");
    }
    for (CacheId id : *ids) {
      if (seen.insert(id).second) continue;
      return Damaged(absl::StrCat("a schedule has id ", id, " twice"));
    }
    schedule.buckets.push_back(*std::move(ids));
  }
  return schedule;
}

absl::Status Undecodable(absl::string_view message, size_t bytes) {
  return Damaged(absl::StrCat(bytes, " bytes are no ", message));
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
    ToProto(repeated.request, out->mutable_request());
  }
  for (const TensorRequest& request : report.requests) ToProto(request, proto.add_requests());
  proto.set_draining(report.presence == RankReport::Presence::kDraining);
  proto.set_leaving(report.presence == RankReport::Presence::kShuttingDown);
  proto.set_identity(report.identity);
  proto.set_schedule(report.schedule);
  proto.set_not_waited(report.waited == RankReport::Waited::kNo);
  proto.set_misfit(report.last_schedule == RankReport::LastSchedule::kDidNotFit);
  proto.set_program_waits(report.program == RankReport::Program::kWaits);
  proto.set_age_ns(absl::ToInt64Nanoseconds(report.age));
  return proto.SerializeAsString();
}

std::string Encode(const ResponseList& list) {
  v1::ResponseList proto;
  if (list.settings) ToProto(*list.settings, proto.mutable_settings());
  for (const ReceiveMatch& match : list.matches) ToProto(match, proto.add_matches());
  for (const TensorError& error : list.errors) ToProto(error, proto.add_errors());
  for (const Bucket& bucket : list.buckets) ToProto(bucket, proto.add_buckets());
  if (list.schedule) ToProto(*list.schedule, proto.mutable_schedule());
  proto.set_all_left(list.job == ResponseList::Job::kEnds);
  return proto.SerializeAsString();
}

absl::StatusOr<RankReport> DecodeRankReport(absl::string_view bytes, size_t cache_capacity) {
  v1::RankReport proto;
  if (!Parse(bytes, &proto)) return Undecodable("report", bytes.size());
  RankReport report;
  auto cached = FromRuns<uint64_t>(proto.cached(), cache_capacity);
  if (!cached) return Damaged("the ids of a report are out of range");
  report.cached = *std::move(cached);
  for (const v1::RepeatedRequest& repeated : proto.repeated()) {
    RONDA_ASSIGN_OR_RETURN(TensorRequest request, FromProto(repeated.request()));
    report.repeated.push_back({repeated.id(), std::move(request)});
  }
  report.requests.reserve(proto.requests_size());
  for (const v1::TensorRequest& request : proto.requests()) {
    RONDA_ASSIGN_OR_RETURN(TensorRequest decoded, FromProto(request));
    report.requests.push_back(std::move(decoded));
  }
  if (proto.draining()) report.presence = RankReport::Presence::kDraining;
  if (proto.leaving()) report.presence = RankReport::Presence::kShuttingDown;
  report.identity = proto.identity();
  report.schedule = proto.schedule();
  report.waited = proto.not_waited() ? RankReport::Waited::kNo : RankReport::Waited::kPerhaps;
  report.last_schedule = proto.misfit() ? RankReport::LastSchedule::kDidNotFit : RankReport::LastSchedule::kFitted;
  report.program = proto.program_waits() ? RankReport::Program::kWaits : RankReport::Program::kRuns;
  if (proto.age_ns() < 0) return Damaged("a report from the future");
  report.age = absl::Nanoseconds(proto.age_ns());
  return report;
}

absl::StatusOr<ResponseList> DecodeResponseList(absl::string_view bytes, size_t cache_capacity) {
  v1::ResponseList proto;
  if (!Parse(bytes, &proto)) return Undecodable("response list", bytes.size());
  ResponseList list;
  if (proto.has_settings()) {
    RONDA_ASSIGN_OR_RETURN(list.settings, FromProto(proto.settings()));
  }
  for (const v1::ReceiveMatch& match : proto.matches()) {
    RONDA_ASSIGN_OR_RETURN(ReceiveMatch decoded, FromProto(match));
    list.matches.push_back(std::move(decoded));
  }
  for (const v1::TensorError& error : proto.errors()) {
    RONDA_ASSIGN_OR_RETURN(TensorError decoded, FromProto(error));
    list.errors.push_back(std::move(decoded));
  }
  size_t ids_left = cache_capacity;
  for (const v1::Bucket& bucket : proto.buckets()) {
    RONDA_ASSIGN_OR_RETURN(Bucket decoded, FromProto(bucket, &ids_left));
    list.buckets.push_back(std::move(decoded));
  }
  if (proto.has_schedule()) {
    if (proto.all_left()) return Damaged("a schedule in the last list");
    RONDA_ASSIGN_OR_RETURN(list.schedule, FromProto(proto.schedule(), cache_capacity));
  }
  list.job = proto.all_left() ? ResponseList::Job::kEnds : ResponseList::Job::kGoesOn;
  return list;
}

}  // namespace ronda
