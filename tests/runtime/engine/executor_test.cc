// SPDX-License-Identifier: Apache-2.0

// Tests which communicator calls the executor makes, for each set of participating ranks.
#include "runtime/engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A fake of the communicator of rank 1 of four, which moves no data. For each call, it records the operation, the size
// of the group (0 for the job), this rank's vote, and whether the call has a buffer.
class RecordingCommunicator : public Communicator {
 public:
  RankId rank() const override { return 1; }
  int size() const override { return 4; }

  absl::Status Reduce(const ReduceCall& call) override {
    divisor_ = call.postscale.divisor;
    return Record("reduce", call.info, call.segments.front().input);
  }
  absl::Status Broadcast(const BroadcastCall& call) override { return Record("broadcast", call.info, call.data); }
  absl::Status Allgather(const AllgatherCall& call) override { return Record("allgather", call.info, call.output); }
  absl::Status Alltoall(const AlltoallCall& call) override { return Record("alltoall", call.info, call.output); }
  absl::Status Barrier(const CallInfo& info) override { return Record("barrier", info, nullptr); }
  void Tune(const Tuning&) override {}

  std::vector<std::string> calls_;
  WaitLimits limits_;                                       // the last call's
  Ballot::Result votes_say_ = Ballot::Result::kCarriedOut;  // if the call has a ballot
  int64_t divisor_ = 0;

 private:
  static std::string VoteOf(const CallInfo& info) {
    if (info.ballot == nullptr) return "";
    return info.ballot->own == Ballot::Vote::kApprove ? " stays" : " leaves";
  }

  absl::Status Record(const std::string& call, const CallInfo& info, const void* buffer) {
    calls_.push_back(absl::StrCat(call, " ", info.group == nullptr ? 0 : info.group->size(),
                                  buffer == nullptr ? "" : " with buffer", VoteOf(info)));
    limits_ = info.limits;
    if (info.ballot == nullptr) return absl::OkStatus();
    info.ballot->result = votes_say_;
    info.ballot->flags = info.ballot->own_flags;
    return absl::OkStatus();
  }
};

class ExecutorTest : public ::testing::Test {
 protected:
  ~ExecutorTest() override { callbacks_->Stop(); }

  static AgreedBucket BucketOf(std::vector<TensorRequest> requests, std::vector<RankId> members,
                               std::vector<RankId> joined = {}) {
    AgreedBucket bucket;
    for (TensorRequest& request : requests) {
      auto response = std::make_shared<Response>();
      if (request.op == OpType::kAllgather || request.op == OpType::kGather) {
        response->first_dims.assign(members.size(), request.shape.front());
      }
      response->request = std::move(request);
      bucket.responses.push_back(std::move(response));
    }
    bucket.members = std::make_shared<Group>(members);
    bucket.participants = std::make_shared<Group>(bucket.members->Without(joined));
    bucket.joined = std::move(joined);
    return bucket;
  }

  std::shared_ptr<Handle> Submit(const TensorRequest& request) {
    return *queue_.Add({.request = request, .input = data_, .output = data_}, absl::UnixEpoch());
  }

  absl::StatusOr<Executor::Decision> ExecuteIfAllApprove(const TensorRequest& request, Ballot::Vote own) {
    std::vector<const TensorEntry*> entries;
    if (own == Ballot::Vote::kApprove) entries.push_back(queue_.Find(request.key()));
    return executor_.ExecuteIfAllApprove(BucketOf({request}, {0, 1, 2, 3}),
                                         {.own = own, .entries = entries, .flags = flags_, .when_late = [] {}});
  }

  float data_[8] = {};
  Flags flags_;  // this rank's, in votes
  RecordingCommunicator communicator_;
  const std::shared_ptr<CallbackThread> callbacks_ = CallbackThread::Create({});
  const std::unique_ptr<FlightRecorder> flight_{new FlightRecorder()};
  TensorLog log_{flight_.get(), nullptr, nullptr};
  TensorQueue queue_{callbacks_, nullptr, &log_};
  ProcessSets process_sets_{4};
  DeviceLanes devices_{{.host = &communicator_}};
  Executor executor_{{&communicator_, &queue_, &process_sets_, &log_, &devices_}, WaitLimits{}};
};

TEST_F(ExecutorTest, RanksOutsideMakeTheSameCallsWithoutBuffers) {
  struct Case {
    OpType op;
    std::vector<std::string> calls;
  };
  for (const Case& c :
       {Case{OpType::kAllreduce, {"reduce 2"}}, Case{OpType::kReduce, {"reduce 2"}},
        Case{OpType::kReduceScatter, {"reduce 2"}}, Case{OpType::kBroadcast, {"broadcast 2"}},
        Case{OpType::kAllgather, {"allgather 2"}}, Case{OpType::kGather, {"allgather 2"}},
        Case{OpType::kScatter, {"broadcast 0 with buffer", "alltoall 2"}},
        Case{OpType::kAlltoall, {"allgather 0 with buffer", "alltoall 2"}}, Case{OpType::kSendRecv, {"alltoall 2"}},
        Case{OpType::kBarrier, {"barrier 2"}}, Case{OpType::kJoin, {}}}) {
    communicator_.calls_.clear();
    const TensorRequest request = {.name = "x", .op = c.op, .shape = {4}, .root = 0, .receiver = 2};
    ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 2})).ok());
    EXPECT_EQ(communicator_.calls_, c.calls) << Name(c.op);
    // A rank that has joined makes the same calls as the other ranks.
    communicator_.calls_.clear();
    if (c.op == OpType::kJoin) continue;
    ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 1, 2}, {1})).ok());
    EXPECT_EQ(communicator_.calls_, c.calls) << Name(c.op);
  }
  EXPECT_THAT(flight_->Events(), IsEmpty()) << "none of this was this rank's";
}

// A HostPlane that records its own calls and the calls of its communicator.
class RecordingPlane : public HostPlane {
 public:
  using HostPlane::HostPlane;

  Communicator& communicator() override {
    calls_.push_back("communicator");
    return HostPlane::communicator();
  }
  absl::Status PrepareOverflow(size_t tensors) override {
    calls_.push_back(absl::StrCat("room for ", tensors));
    return room_.ok() ? HostPlane::PrepareOverflow(tensors) : room_;
  }
  absl::StatusOr<uint8_t*> FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) override {
    calls_.push_back("look");
    return HostPlane::FindNonFinite(tensors, dtype);
  }

  std::vector<std::string> calls_;
  absl::Status room_;
};

TEST_F(ExecutorTest, RoomForOverflowIsThereBeforeTheReductionIsUnderWay) {
  const TensorRequest request = {.name = "x", .shape = {4}, .overflow = TensorRequest::Overflow::kDetected};
  Submit(request);
  const AgreedBucket bucket = BucketOf({request}, {0, 1, 2, 3});
  const std::vector<const TensorEntry*> entries = {queue_.Find(request.key())};
  std::vector<OperationResult> results(1);
  const BucketRun run = {
      .bucket = bucket, .info = {.label = "x"}, .position = 1, .entries = entries, .results = absl::MakeSpan(results)};
  RecordingPlane plane(&communicator_);
  Reductions reductions(&plane);
  EXPECT_EQ(reductions.Run(run), absl::OkStatus());
  EXPECT_THAT(plane.calls_, ElementsAre("room for 1", "communicator", "look"));
  plane.calls_.clear();
  plane.room_ = absl::ResourceExhaustedError("no room");
  EXPECT_EQ(reductions.Run(run), plane.room_);
  EXPECT_THAT(plane.calls_, ElementsAre("room for 1"));
  queue_.Complete(entries.front(), absl::OkStatus());
}

TEST_F(ExecutorTest, OverflowIsVotedOnByRanksOutsideToo) {
  const TensorRequest request = {
      .name = "x", .op = OpType::kReduceScatter, .shape = {4}, .overflow = TensorRequest::Overflow::kDetected};
  ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 2})).ok());
  EXPECT_THAT(communicator_.calls_, ElementsAre("reduce 2", "reduce 2"));
}

TEST_F(ExecutorTest, AveragesAreOverThosePresentUnlessJoinedOnesCountAsZeros) {
  const TensorRequest request = {.name = "x", .shape = {4}, .reduction = Reduction::kAverage};
  AgreedBucket bucket = BucketOf({request}, {0, 1, 2, 3}, {0});
  Submit(request);
  ASSERT_TRUE(executor_.Execute(bucket).ok());
  EXPECT_EQ(communicator_.divisor_, 3);
  EXPECT_THAT(communicator_.calls_, ElementsAre("reduce 3 with buffer"));
  bucket.absent = TensorRequest::Absent::kCountedAsZeros;
  Submit(request);
  ASSERT_TRUE(executor_.Execute(bucket).ok());
  EXPECT_EQ(communicator_.divisor_, 4);
}

TEST_F(ExecutorTest, LimitsAreTheCallsOwnOrTheJobs) {
  const WaitLimits job = {.warning = absl::Seconds(7), .deadline = absl::Seconds(9)};
  executor_.set_limits(job);
  TensorRequest request = {.name = "a", .shape = {4}};
  ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 2})).ok());
  EXPECT_EQ(communicator_.limits_, job);
  request.limits = WaitLimits{.warning = absl::Seconds(1), .deadline = absl::Seconds(20)};
  ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 2})).ok());
  EXPECT_EQ(communicator_.limits_, *request.limits);
  request.limits->deadline = absl::Milliseconds(1);
  ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 2})).ok());
  EXPECT_EQ(communicator_.limits_.deadline, job.deadline) << "all ranks have come: it shall not fail the job";
}

TEST_F(ExecutorTest, JoinedRanksAreToldWhenTheJoinIsComplete) {
  const TensorRequest request = {.name = "ronda/join", .op = OpType::kJoin, .root = 3};
  const auto handle = Submit(request);
  ASSERT_TRUE(executor_.Execute(BucketOf({request}, {0, 1, 3}, {0, 1, 3})).ok());
  ASSERT_TRUE(handle->done());
  EXPECT_EQ(handle->result().number, 3);
}

TEST_F(ExecutorTest, VotesTravelWithReductionsAndAheadOfAllElse) {
  struct Case {
    TensorRequest request;
    std::vector<std::string> calls;
  };
  for (const Case& c : std::vector<Case>{
           {{.name = "x", .shape = {4}}, {"reduce 0 with buffer stays"}},
           {{.name = "x", .op = OpType::kReduce, .shape = {4}}, {"reduce 0 with buffer stays"}},
           {{.name = "x", .shape = {4}, .wire = WireFormat::kFloat16}, {"barrier 0 stays", "reduce 0 with buffer"}},
           {{.name = "x", .op = OpType::kBroadcast, .shape = {4}}, {"barrier 0 stays", "broadcast 0 with buffer"}},
           {{.name = "x", .op = OpType::kAllgather, .shape = {1}}, {"barrier 0 stays", "allgather 0 with buffer"}},
           {{.name = "x", .op = OpType::kBarrier}, {"barrier 0 stays"}},
           {{.name = "x", .op = OpType::kReduceScatter, .shape = {4}, .overflow = TensorRequest::Overflow::kDetected},
            {"reduce 0 with buffer stays", "reduce 0 with buffer"}}}) {
    communicator_.calls_.clear();
    flags_.submitted ^= 1;
    const auto handle = Submit(c.request);
    const auto result = ExecuteIfAllApprove(c.request, Ballot::Vote::kApprove);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->result, Ballot::Result::kCarriedOut);
    EXPECT_EQ(result->flags, flags_);
    EXPECT_EQ(communicator_.calls_, c.calls) << Name(c.request.op);
    EXPECT_TRUE(handle->done());
  }
}

TEST_F(ExecutorTest, VetoLeavesTheTensorsInFlight) {
  communicator_.votes_say_ = Ballot::Result::kVetoed;
  for (const TensorRequest& request :
       {TensorRequest{.name = "allreduce", .shape = {4}},
        TensorRequest{.name = "rounded", .shape = {4}, .wire = WireFormat::kFloat16},
        TensorRequest{.name = "reduce", .op = OpType::kReduce, .shape = {4}, .root = 1},
        TensorRequest{.name = "broadcast", .op = OpType::kBroadcast, .shape = {4}, .root = 1}}) {
    communicator_.calls_.clear();
    const auto handle = Submit(request);
    const auto result = ExecuteIfAllApprove(request, Ballot::Vote::kApprove);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->result, Ballot::Result::kVetoed);
    EXPECT_EQ(communicator_.calls_.size(), 1U) << request.name;
    EXPECT_FALSE(handle->done());
    communicator_.votes_say_ = Ballot::Result::kCarriedOut;
    EXPECT_TRUE(ExecuteIfAllApprove(request, Ballot::Vote::kApprove).ok());
    EXPECT_TRUE(handle->done());
    communicator_.votes_say_ = Ballot::Result::kVetoed;
  }
}

TEST_F(ExecutorTest, RankThatVetoesNeedsNoTensor) {
  communicator_.votes_say_ = Ballot::Result::kVetoed;
  const auto result = ExecuteIfAllApprove({.name = "x", .shape = {4}}, Ballot::Vote::kVeto);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->result, Ballot::Result::kVetoed);
  EXPECT_THAT(communicator_.calls_, ElementsAre("reduce 0 leaves"));
  EXPECT_THAT(flight_->Events(), IsEmpty()) << "nothing was begun";
}

// When a vote's warning time has passed, the ranks go back to the negotiation. So the vote's deadline must be later
// than the negotiation's.
TEST_F(ExecutorTest, WaitsForVotesOutlastTheNegotiation) {
  executor_.set_limits({.warning = absl::InfiniteDuration(), .deadline = absl::Seconds(40)});
  Submit({.name = "x", .shape = {4}});
  ASSERT_TRUE(ExecuteIfAllApprove({.name = "x", .shape = {4}}, Ballot::Vote::kApprove).ok());
  EXPECT_EQ(communicator_.limits_.warning, absl::Seconds(40));
  EXPECT_EQ(communicator_.limits_.deadline, absl::Seconds(50));
}

TEST_F(ExecutorTest, OrderForATensorThatIsNotHereIsAnError) {
  const absl::Status status = executor_.Execute(BucketOf({{.name = "x", .shape = {4}}}, {0, 1}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(communicator_.calls_, IsEmpty());
}

}  // namespace
}  // namespace ronda
