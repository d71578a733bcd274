// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "proto/ronda/v1/negotiation.pb.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kCacheCapacity = 1024;

RankReport SomeReport() {
  RankReport report;
  report.cached = {3, 1, uint64_t{1} << 60};
  report.requests = {{.name = "a/b", .dtype = DType::kBfloat16, .shape = {2, 0, 5}, .reduction = Reduction::kMax},
                     {.name = "c",
                      .op = OpType::kBroadcast,
                      .reduction = Reduction::kAverage,
                      .wire = WireFormat::kBfloat16,
                      .prescale = 0.5,
                      .postscale = -2,
                      .root = 7}};
  report.requests.push_back({.name = "add", .op = OpType::kAddProcessSet, .members = {0, 1, 2, 9}});
  report.requests.push_back({.name = std::string(kJoinName), .op = OpType::kJoin});
  report.repeated = {{77, {.name = "again"}}};
  report.presence = RankReport::Presence::kShuttingDown;
  report.identity = "host h, pid 1";
  report.schedule = uint64_t{1} << 40;
  report.waited = RankReport::Waited::kNo;
  report.age = absl::Milliseconds(1500);
  report.program = RankReport::Program::kWaits;
  return report;
}

// Returns a request with a value in every field that any operation uses.
TensorRequest Everything() {
  return {.name = "all",
          .process_set = 3,
          .op = OpType::kReduceScatter,
          .function = TensorRequest::Function::kSparseAllreduce,
          .dtype = DType::kFloat64,
          .memory = Memory::kCuda,
          .shape = {4, 2},
          .reduction = Reduction::kAdasum,
          .wire = WireFormat::kFp8E5M2,
          .prescale = 3,
          .postscale = 0.1,
          .overflow = TensorRequest::Overflow::kDetected,
          .root = 5,
          .receiver = 6,
          .group = "g",
          .group_size = 2,
          .absent = TensorRequest::Absent::kCountedAsZeros,
          .subject = 9,
          .limits = WaitLimits{.warning = absl::Milliseconds(5), .deadline = absl::InfiniteDuration()},
          .refusal = "it will not"};
}

ResponseList SomeList() {
  ResponseList list;
  list.matches = {{.process_set = 4, .receiver = 3, .receive = "any", .message = "m", .sender = 2}};
  list.errors = {{"x", 4, absl::DeadlineExceededError("late"), {0, 4}}};
  list.buckets = {{{CacheId{7}, CacheId{8}, CacheId{9}, CacheId{3}, Response{Everything(), {}}, CacheId{4}}},
                  {{Response{{.name = "g", .op = OpType::kAllgather, .shape = {0, 2}}, {1, 0, 3}}},
                   {1, 2, 3, 7},
                   TensorRequest::Absent::kCountedAsZeros}};
  list.job = ResponseList::Job::kEnds;
  list.settings = {.cache_capacity = 5,
                   .limits = {.deadline = absl::Seconds(3)},
                   .cycle_time = absl::Milliseconds(2),
                   .chunk_bytes = size_t{1} << 33};
  return list;
}

TEST(Messages, ReportSurvivesTheRoundTrip) {
  const RankReport sent = SomeReport();
  const auto got = DecodeRankReport(Encode(sent), kCacheCapacity);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->cached, sent.cached);
  EXPECT_EQ(got->requests, sent.requests);
  EXPECT_EQ(got->repeated, sent.repeated);
  EXPECT_EQ(got->presence, sent.presence);
  EXPECT_EQ(got->identity, sent.identity);
  EXPECT_EQ(got->schedule, sent.schedule);
  EXPECT_EQ(got->age, sent.age);
  EXPECT_EQ(got->waited, sent.waited);
  EXPECT_EQ(got->program, sent.program);
  EXPECT_EQ(DecodeRankReport(Encode(RankReport()), kCacheCapacity)->waited, RankReport::Waited::kPerhaps);
}

TEST(Messages, ResponseListSurvivesTheRoundTrip) {
  const ResponseList sent = SomeList();
  const auto got = DecodeResponseList(Encode(sent), kCacheCapacity);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->matches, sent.matches);
  ASSERT_EQ(got->errors.size(), 1u);
  EXPECT_EQ(got->errors[0].name, "x");
  EXPECT_EQ(got->errors[0].process_set, 4u);
  EXPECT_EQ(got->errors[0].status, sent.errors[0].status);
  EXPECT_THAT(got->errors[0].ranks, ElementsAre(0, 4));
  EXPECT_EQ(got->buckets, sent.buckets);
  EXPECT_EQ(got->job, sent.job);
  EXPECT_EQ(got->settings, sent.settings);
}

TEST(Messages, ScheduleSurvivesTheRoundTrip) {
  ResponseList sent;
  sent.schedule = Schedule{.number = 3, .buckets = {{9, 8, 7}, {1}, {2, 3, uint64_t{1} << 50}}};
  const auto got = DecodeResponseList(Encode(sent), kCacheCapacity);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->schedule, sent.schedule);
  EXPECT_EQ(DecodeResponseList(Encode(ResponseList()), kCacheCapacity)->schedule, std::nullopt);
}

TEST(Messages, ScheduleThatCannotBeIsRefused) {
  struct Case {
    std::string problem;
    void (*damage)(v1::ResponseList*);
  };
  const Case kCases[] = {
      {"without a number", [](v1::ResponseList* list) { list->mutable_schedule()->set_number(0); }},
      {"without buckets", [](v1::ResponseList* list) { list->mutable_schedule()->clear_buckets(); }},
      {"empty", [](v1::ResponseList* list) { list->mutable_schedule()->add_buckets(); }},
      {"too large",
       [](v1::ResponseList* list) { list->mutable_schedule()->mutable_buckets(0)->set_cached(1, kCacheCapacity + 1); }},
      {"too large", [](v1::ResponseList* list) { list->mutable_schedule()->mutable_buckets(0)->add_cached(1); }},
      {"id 7 twice",
       [](v1::ResponseList* list) { *list->mutable_schedule()->add_buckets() = list->schedule().buckets(0); }},
      {"in the last list", [](v1::ResponseList* list) { list->set_all_left(true); }},
      {"cycle time", [](v1::ResponseList* list) { list->mutable_settings()->set_cycle_time_ns(-1); }},
  };
  for (const Case& c : kCases) {
    v1::ResponseList proto;
    proto.mutable_schedule()->set_number(1);
    v1::ScheduledBucket* bucket = proto.mutable_schedule()->add_buckets();
    for (uint64_t number : {7, 2}) bucket->add_cached(number);
    ASSERT_TRUE(DecodeResponseList(proto.SerializeAsString(), kCacheCapacity).ok());
    c.damage(&proto);
    const auto got = DecodeResponseList(proto.SerializeAsString(), kCacheCapacity);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << c.problem;
    EXPECT_THAT(std::string(got.status().message()), HasSubstr(c.problem));
  }
}

TEST(Messages, InfiniteTimesSurviveTheRoundTrip) {
  ResponseList sent;
  sent.settings = {.cache_capacity = 0, .cycle_time = absl::InfiniteDuration()};
  EXPECT_EQ(DecodeResponseList(Encode(sent), kCacheCapacity)->settings, sent.settings);
}

TEST(Messages, FieldOutOfRangeIsRefusedWithItsName) {
  struct Case {
    std::string field;
    void (*damage)(v1::TensorRequest*);
  };
  const Case kCases[] = {
      {"operation", [](v1::TensorRequest* r) { r->set_op(200); }},
      {"dtype", [](v1::TensorRequest* r) { r->set_dtype(99); }},
      {"reduce op", [](v1::TensorRequest* r) { r->set_reduction(17); }},
      {"compression", [](v1::TensorRequest* r) { r->set_wire(5); }},
      {"memory", [](v1::TensorRequest* r) { r->set_memory(2); }},
      {"shape", [](v1::TensorRequest* r) { r->add_shape(-1); }},
      {"shape", [](v1::TensorRequest* r) { r->add_shape(int64_t{1} << 62), r->add_shape(0), r->add_shape(2); }},
      {"shape", [](v1::TensorRequest* r) { r->set_op(static_cast<uint32_t>(OpType::kAllgather)); }},
      {"shape", [](v1::TensorRequest* r) { r->set_op(static_cast<uint32_t>(OpType::kAlltoall)); }},
      {"root", [](v1::TensorRequest* r) { r->set_root(-1); }},
      {"receiver", [](v1::TensorRequest* r) { r->set_receiver(-1); }},
      {"name", [](v1::TensorRequest* r) { r->set_op(static_cast<uint32_t>(OpType::kJoin)); }},
      {"group", [](v1::TensorRequest* r) { r->set_group("without a size"); }},
      {"group", [](v1::TensorRequest* r) { r->set_group_size(2); }},
      {"group size", [](v1::TensorRequest* r) { r->set_group_size(-1); }},
      {"members", [](v1::TensorRequest* r) { r->add_members(1); }},
      {"members", [](v1::TensorRequest* r) { r->mutable_members()->Add(1), r->mutable_members()->Add(1); }},
      {"members", [](v1::TensorRequest* r) { r->set_op(static_cast<uint32_t>(OpType::kAddProcessSet)); }},
  };
  for (const Case& c : kCases) {
    v1::RankReport proto;
    proto.add_requests()->set_name("x");
    c.damage(proto.mutable_requests(0));
    const auto got = DecodeRankReport(proto.SerializeAsString(), kCacheCapacity);
    ASSERT_FALSE(got.ok()) << c.field;
    EXPECT_THAT(std::string(got.status().message()), HasSubstr("the " + c.field + " of tensor 'x'"));
  }
}

TEST(Messages, LargestShapesSurviveTheRoundTrip) {
  RankReport sent;
  sent.requests = {{.name = "empty", .dtype = DType::kUint8, .shape = {0, int64_t{1} << 62}},
                   {.name = "wide", .dtype = DType::kFloat64, .shape = {0, int64_t{1} << 59}}};
  const auto got = DecodeRankReport(Encode(sent), kCacheCapacity);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->requests, sent.requests);
}

TEST(Messages, NamelessTensorAndEmptyExecutionAreRefused) {
  v1::RankReport report;
  report.add_requests();
  EXPECT_FALSE(DecodeRankReport(report.SerializeAsString(), kCacheCapacity).ok());
  v1::ResponseList list;
  list.add_buckets()->add_executions();
  EXPECT_FALSE(DecodeResponseList(list.SerializeAsString(), kCacheCapacity).ok());
}

TEST(Messages, NegativeLimitsAreRefused) {
  v1::RankReport report;
  report.add_requests()->set_name("x");
  report.mutable_requests(0)->mutable_limits()->set_warning_ns(-1);
  EXPECT_THAT(std::string(DecodeRankReport(report.SerializeAsString(), kCacheCapacity).status().message()),
              HasSubstr("tensor 'x'"));
  v1::ResponseList list;
  list.mutable_settings()->mutable_limits()->set_deadline_ns(-1);
  EXPECT_FALSE(DecodeResponseList(list.SerializeAsString(), kCacheCapacity).ok());
}

TEST(Messages, RanksThatAreNotAscendingAreRefused) {
  v1::ResponseList list;
  list.add_errors()->set_code(1);
  for (int number : {3, 1, 2, 1}) list.mutable_errors(0)->add_ranks(number);
  EXPECT_FALSE(DecodeResponseList(list.SerializeAsString(), kCacheCapacity).ok());
}

TEST(Messages, FewBytesCannotAskForAllMemory) {
  v1::RankReport report;
  for (uint64_t number : {uint64_t{1}, uint64_t{kCacheCapacity + 1}}) report.add_cached(number);
  EXPECT_FALSE(DecodeRankReport(report.SerializeAsString(), kCacheCapacity).ok());
  v1::ResponseList list;
  for (int bucket = 0; bucket < 2; ++bucket) {
    v1::Execution* execution = list.add_buckets()->add_executions();
    for (uint64_t number : {size_t{1}, kCacheCapacity / 2 + 1}) execution->add_cached(number);
  }
  EXPECT_FALSE(DecodeResponseList(list.SerializeAsString(), kCacheCapacity).ok()) << "the limit is the whole list's";
}

TEST(Messages, EveryEntryOfALargeCacheSurvivesTheRoundTrip) {
  constexpr size_t kCapacity = 300'000;
  std::vector<CacheId> ids(kCapacity);
  std::iota(ids.begin(), ids.end(), CacheId{1});
  RankReport report;
  report.cached = ids;
  const auto got_report = DecodeRankReport(Encode(report), kCapacity);
  ASSERT_TRUE(got_report.ok()) << got_report.status();
  EXPECT_EQ(got_report->cached, ids);
  ResponseList list;
  list.buckets = {{.executions = {ids.begin(), ids.end()}}};
  list.schedule = Schedule{.number = 1, .buckets = {ids}};
  const auto got_list = DecodeResponseList(Encode(list), kCapacity);
  ASSERT_TRUE(got_list.ok()) << got_list.status();
  EXPECT_EQ(got_list->buckets, list.buckets);
  EXPECT_EQ(got_list->schedule, list.schedule);
}

TEST(Messages, StepOfCachedTensorsIsAFewBytesHoweverManyTheyAre) {
  RankReport report;
  Bucket bucket;
  for (CacheId id = 1000; id < 1161; ++id) {
    report.cached.push_back(id);
    bucket.executions.push_back(id);
  }
  EXPECT_LE(Encode(report).size(), 8u);
  ResponseList list;
  list.buckets = {bucket};
  EXPECT_LE(Encode(list).size(), 16u);
}

TEST(Messages, RandomDamageNeverCrashesTheDecoder) {
  const uint32_t seed = 20240601;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ResponseList list = SomeList();
  list.job = ResponseList::Job::kGoesOn;
  list.schedule = Schedule{.number = 2, .buckets = {{3, 4}, {5}}};
  const std::string good[] = {Encode(SomeReport()), Encode(list)};
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good[i % 2];
    for (int flips = 1 + random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (!(i % 2 == 0 ? DecodeRankReport(bytes, kCacheCapacity).status()
                     : DecodeResponseList(bytes, kCacheCapacity).status())
             .ok())
      ++refused;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace ronda
