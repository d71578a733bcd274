// SPDX-License-Identifier: Apache-2.0

// Tests the blocking operations of the C ABI, and its statistics, on ranks that are threads and on a single rank.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::Each;
using ::testing::HasSubstr;

void Call(void* context) { (*static_cast<const std::function<void()>*>(context))(); }

ronda_status RunRanks(int size, const std::function<void()>& body) {
  return ronda_run_threads(nullptr, size, Call, const_cast<std::function<void()>*>(&body));
}

// Arguments for a one-dimensional float32 tensor with all of `values`, which must outlive the arguments.
template <typename Args>
Args WithTensor(Args args, const char* name, const int64_t* count) {
  args.tensor = {name, RONDA_FLOAT32, 1, count};
  return args;
}

ronda_status Sum(const char* name, std::vector<float>* values) {
  const int64_t count = static_cast<int64_t>(values->size());
  auto args = WithTensor<ronda_allreduce_args>(RONDA_ALLREDUCE_ARGS_INIT, name, &count);
  args.input = args.output = values->data();
  return ronda_allreduce(&args);
}

uint64_t ReportsSent() {
  ronda_statistics statistics = RONDA_STATISTICS_INIT;
  EXPECT_EQ(ronda_get_statistics(&statistics), RONDA_OK) << ronda_last_error();
  return statistics.reports_sent;
}

void ReduceBroadcastAndSend() {
  const int rank = ronda_rank(), size = ronda_size();
  const int64_t count = 3;
  std::vector<float> values(3, static_cast<float>(rank)), output(3, -1);
  ASSERT_EQ(Sum("sum", &values), RONDA_OK) << ronda_last_error();
  EXPECT_THAT(values, Each(static_cast<float>(size * (size - 1) / 2)));

  values.assign(3, static_cast<float>(rank));
  auto reduce = WithTensor<ronda_reduce_args>(RONDA_REDUCE_ARGS_INIT, "reduce", &count);
  reduce.input = values.data();
  reduce.output = output.data();
  reduce.op = RONDA_MAX;
  ASSERT_EQ(ronda_reduce(&reduce), RONDA_OK) << ronda_last_error();
  EXPECT_THAT(output, Each(rank == 0 ? static_cast<float>(size - 1) : -1));

  auto broadcast = WithTensor<ronda_broadcast_args>(RONDA_BROADCAST_ARGS_INIT, "broadcast", &count);
  broadcast.data = values.data();
  broadcast.root = size - 1;
  ASSERT_EQ(ronda_broadcast(&broadcast), RONDA_OK) << ronda_last_error();
  EXPECT_THAT(values, Each(static_cast<float>(size - 1)));

  if (size < 2 || rank > 1) return;
  auto send = WithTensor<ronda_send_args>(RONDA_SEND_ARGS_INIT, nullptr, &count);
  send.input = values.data();
  send.to = 1;
  auto recv = WithTensor<ronda_recv_args>(RONDA_RECV_ARGS_INIT, nullptr, &count);
  recv.output = output.data();
  EXPECT_EQ(rank == 0 ? ronda_send(&send) : ronda_recv(&recv), RONDA_OK) << ronda_last_error();
  if (rank == 1) {
    EXPECT_THAT(output, Each(static_cast<float>(size - 1)));
  }
}

void Group() {
  const int64_t count = 5;
  std::vector<std::vector<float>> values(7, std::vector<float>(5, 1));
  const char* const names[] = {"a", "b", "c", "d", "e", "f", "g"};
  std::vector<ronda_allreduce_args> args;
  for (std::size_t i = 0; i < values.size(); ++i) {
    args.push_back(WithTensor<ronda_allreduce_args>(RONDA_ALLREDUCE_ARGS_INIT, names[i], &count));
    args.back().input = args.back().output = values[i].data();
  }
  for (int times = 1; times <= 2; ++times) {
    ASSERT_EQ(ronda_grouped_allreduce(args.data(), args.size(), "group"), RONDA_OK) << ronda_last_error();
  }
  EXPECT_THAT(values, Each(Each(static_cast<float>(ronda_size() * ronda_size()))));
  EXPECT_EQ(ronda_grouped_allreduce(nullptr, 0, "group"), RONDA_OK) << "nothing to do";
}

TEST(CBlockingTest, CarriesOutWhatItSays) {
  for (const int size : {1, 3}) {
    EXPECT_EQ(RunRanks(size, ReduceBroadcastAndSend), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(RunRanks(size, Group), RONDA_OK) << ronda_last_error();
  }
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK) << ronda_last_error();
  ReduceBroadcastAndSend();
  Group();
  EXPECT_EQ(ronda_shutdown(), RONDA_OK);
}

TEST(CBlockingTest, ErrorsAreThoseOfTheSubmissionAndOfTheOperation) {
  std::vector<float> values(3, 1);
  EXPECT_EQ(Sum("x", &values), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(ronda_grouped_allreduce(nullptr, 1, "g"), RONDA_ERROR_NOT_INITIALIZED);
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  EXPECT_EQ(ronda_allreduce(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Sum("", &values), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("tensor.name is empty"));
  EXPECT_EQ(ronda_grouped_allreduce(nullptr, 1, "g"), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Sum("x", &values), RONDA_OK) << "the errors have left nothing behind";
  EXPECT_EQ(ronda_shutdown(), RONDA_OK);
  EXPECT_EQ(RunRanks(2,
                     [] {
                       std::vector<float> values(3 + static_cast<std::size_t>(ronda_rank()), 1);
                       EXPECT_EQ(Sum("x", &values), RONDA_ERROR_MISMATCH);
                       EXPECT_THAT(ronda_last_error(), HasSubstr("'x'"));
                     }),
            RONDA_OK);
}

TEST(CBlockingTest, ThreadsOfOneRankMayWaitAtOnce) {
  const auto body = [] {
    const ronda_context rank = ronda_current();
    std::vector<std::thread> threads;
    for (const char* name : {"a", "b", "c"}) {
      threads.emplace_back([rank, name] {
        ASSERT_EQ(ronda_make_current(rank), RONDA_OK);
        for (int i = 0; i < 100; ++i) {
          std::vector<float> values(1, 1);
          ASSERT_EQ(Sum(name, &values), RONDA_OK) << ronda_last_error();
          EXPECT_EQ(values[0], 2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  EXPECT_EQ(RunRanks(2, body), RONDA_OK) << ronda_last_error();
}

// Before a rank ends, it waits for the threads that make calls on its behalf. It does not wait for a thread that is
// itself waiting for other ranks.
TEST(CBlockingTest, ABodyThatThrowsEndsTheJobAlsoForAThreadThatWaits) {
  std::thread waiting;
  std::atomic<int> status{RONDA_OK};
  const auto body = [&] {
    if (ronda_rank() == 1) return;
    const uint64_t before = ReportsSent();
    waiting = std::thread([&status, rank = ronda_current()] {
      ronda_make_current(rank);
      std::vector<float> values(1, 1);
      status = Sum("lonely", &values);
    });
    while (ReportsSent() == before) std::this_thread::yield();  // until the thread waits
    throw std::runtime_error("disk full");
  };
  EXPECT_NE(RunRanks(2, body), RONDA_OK);
  EXPECT_THAT(ronda_last_error(), HasSubstr("disk full"));
  waiting.join();
  EXPECT_NE(status, RONDA_OK);
}

TEST(CStatisticsTest, CountWhatWasCarriedOut) {
  ronda_statistics before = RONDA_STATISTICS_INIT, after = RONDA_STATISTICS_INIT;
  EXPECT_EQ(ronda_get_statistics(&before), RONDA_ERROR_NOT_INITIALIZED);
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  ASSERT_EQ(ronda_get_statistics(&before), RONDA_OK) << ronda_last_error();
  std::vector<float> values(3, 1);
  constexpr int kSteps = 50;
  for (int i = 0; i < kSteps; ++i) ASSERT_EQ(Sum("x", &values), RONDA_OK);
  ASSERT_EQ(ronda_get_statistics(&after), RONDA_OK);
  EXPECT_EQ(after.struct_size, sizeof(ronda_statistics));
  EXPECT_EQ(after.buckets_agreed + after.buckets_scheduled - before.buckets_agreed - before.buckets_scheduled,
            static_cast<uint64_t>(kSteps));
  EXPECT_GE(after.schedules_begun, 1u);
  EXPECT_LT(after.reports_sent, static_cast<uint64_t>(kSteps)) << "most steps need no message";
  EXPECT_EQ(after.steps, static_cast<uint64_t>(kSteps - 1)) << "the last one has not ended";
  EXPECT_EQ(after.tensors, static_cast<uint64_t>(kSteps));
  EXPECT_EQ(after.payload_bytes, kSteps * values.size() * sizeof(float));
  EXPECT_EQ(after.wire_bytes, after.payload_bytes);
  EXPECT_GT(after.bucket_nanoseconds, 0u);
  EXPECT_EQ(after.tensors_in_flight, 0u);
  EXPECT_GT(after.exposed_nanoseconds, 0u) << "the program waits for each sum";
  EXPECT_EQ(ronda_shutdown(), RONDA_OK);
}

TEST(CStatisticsTest, WireBytesAreThoseOfTheFormat) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  std::vector<float> values(100, 1);
  const int64_t count = 100;
  auto args = WithTensor<ronda_allreduce_args>(RONDA_ALLREDUCE_ARGS_INIT, "x", &count);
  args.input = args.output = values.data();
  args.compression = RONDA_COMPRESSION_FP16;
  ASSERT_EQ(ronda_allreduce(&args), RONDA_OK) << ronda_last_error();
  ronda_statistics counts = RONDA_STATISTICS_INIT;
  ASSERT_EQ(ronda_get_statistics(&counts), RONDA_OK);
  EXPECT_EQ(counts.payload_bytes, 400u);
  EXPECT_EQ(counts.wire_bytes, 200u);
  EXPECT_EQ(ronda_shutdown(), RONDA_OK);
}

TEST(CStatisticsTest, BytesOfAGatherAreTheRanksOwn) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  const std::vector<float> values(100, 1);
  const int64_t count = 100;
  auto args = WithTensor<ronda_allgather_args>(RONDA_ALLGATHER_ARGS_INIT, "x", &count);
  args.input = values.data();
  ronda_handle gathered = 0;
  ASSERT_EQ(ronda_allgather_async(&args, &gathered), RONDA_OK) << ronda_last_error();
  ASSERT_EQ(ronda_synchronize(gathered), RONDA_OK) << ronda_last_error();
  ronda_release(gathered);
  ronda_statistics counts = RONDA_STATISTICS_INIT;
  ASSERT_EQ(ronda_get_statistics(&counts), RONDA_OK);
  EXPECT_EQ(counts.payload_bytes, 400u);
  EXPECT_EQ(counts.wire_bytes, 400u);
  EXPECT_EQ(ronda_shutdown(), RONDA_OK);
}

TEST(CStatisticsTest, CallersOfOtherVersionsGetTheirShare) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  std::vector<float> values(3, 1);
  ASSERT_EQ(Sum("x", &values), RONDA_OK);
  struct {
    ronda_statistics known;
    uint64_t unknown;
  } later;
  std::memset(&later, 0xff, sizeof(later));
  later.known.struct_size = sizeof(later);
  ASSERT_EQ(ronda_get_statistics(&later.known), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(later.known.struct_size, sizeof(later));
  EXPECT_EQ(later.known.buckets_agreed, 1u);
  EXPECT_EQ(later.unknown, 0u);
  ronda_statistics earlier;
  std::memset(&earlier, 0xff, sizeof(earlier));
  earlier.struct_size = offsetof(ronda_statistics, reports_received);
  ASSERT_EQ(ronda_get_statistics(&earlier), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(earlier.reports_sent, later.known.reports_sent);
  EXPECT_EQ(earlier.reports_received, UINT64_MAX) << "not the caller's memory";
  earlier.struct_size = 0;
  EXPECT_EQ(ronda_get_statistics(&earlier), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("struct_size is 0"));
  EXPECT_EQ(ronda_get_statistics(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda_shutdown(), RONDA_OK);
}

}  // namespace
