// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Rank 1 of a job of four, with process set 1 = {0, 1, 3} and process set 2 = {0, 2}; process set 3 was removed.
class SubmissionCheckTest : public ::testing::Test {
 protected:
  SubmissionCheckTest() {
    Apply({.op = OpType::kAddProcessSet, .members = {0, 1, 3}, .subject = 1});
    Apply({.op = OpType::kAddProcessSet, .members = {0, 2}, .subject = 2});
    Apply({.op = OpType::kAddProcessSet, .members = {1}, .subject = 3});
    Apply({.op = OpType::kRemoveProcessSet, .subject = 3});
  }

  void Apply(TensorRequest request) { EXPECT_TRUE(sets_.Apply({.request = std::move(request)}).ok()); }

  // Returns the error of the submission, or "" if it is valid.
  std::string Objection(const Submission& submission) {
    const absl::Status status = CheckSubmission(submission, {.rank = 1, .world_size = 4, .process_sets = &sets_});
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  // Returns a submission of `request` with both buffers.
  Submission Full(TensorRequest request) {
    request.name = "x";
    if (request.shape.empty()) request.shape = {4};
    return {.request = std::move(request), .input = buffer_, .output = buffer_ + 64};
  }

  ProcessSets sets_{4};
  char buffer_[128] = {};
};

TEST_F(SubmissionCheckTest, EveryOperationIsAcceptedWithTheBuffersThatItUses) {
  for (int op = 0; op < kOpTypeCount; ++op) {
    TensorRequest request{.op = static_cast<OpType>(op), .root = 1, .receiver = 3};
    if (request.op == OpType::kAddProcessSet) request.members = {0, 3};
    if (request.op == OpType::kCreateProcessSet) request.members = {1, 3};
    if (request.op == OpType::kRemoveProcessSet) request.subject = 2;
    EXPECT_EQ(Objection(Full(request)), "") << Name(request.op);
  }
}

TEST_F(SubmissionCheckTest, MissingBuffersAreNamedWhereTheyAreNeeded) {
  struct Case {
    OpType op;
    RankId root;
    const char* without_input;
    const char* without_output;
  };
  for (const Case& c : {
           Case{OpType::kAllreduce, 0, "input is null", "output is null"},
           Case{OpType::kAllgather, 0, "input is null", ""},
           Case{OpType::kBroadcast, 0, "", "output is null"},
           Case{OpType::kReduce, 0, "input is null", ""},
           Case{OpType::kReduce, 1, "input is null", "output is null"},
           Case{OpType::kReduceScatter, 0, "input is null", ""},
           Case{OpType::kGather, 1, "input is null", ""},
           Case{OpType::kScatter, 0, "", ""},
           Case{OpType::kScatter, 1, "input is null", ""},
           Case{OpType::kAlltoall, 0, "input is null", ""},
           Case{OpType::kSendRecv, 1, "input is null", ""},
       }) {
    Submission submission = Full({.op = c.op, .root = c.root, .receiver = 2});
    submission.input = nullptr;
    EXPECT_THAT(Objection(submission), HasSubstr(c.without_input)) << Name(c.op) << " from " << c.root;
    submission = Full({.op = c.op, .root = c.root, .receiver = 2});
    submission.output = nullptr;
    EXPECT_THAT(Objection(submission), HasSubstr(c.without_output)) << Name(c.op) << " from " << c.root;
  }
  Submission received = Full({.op = OpType::kSendRecv, .root = 0, .receiver = 1});
  received.input = nullptr;
  EXPECT_EQ(Objection(received), "");
  received.output = nullptr;
  EXPECT_THAT(Objection(received), HasSubstr("output is null"));
  EXPECT_EQ(Objection({.request = {.name = "x", .shape = {0, 3}}}), "") << "no elements, no buffers";
}

TEST_F(SubmissionCheckTest, NamesAndShapes) {
  EXPECT_THAT(Objection({}), HasSubstr("needs a name"));
  EXPECT_THAT(Objection(Full({.shape = {2, -1}})), AllOf(HasSubstr("allreduce of tensor 'x'"), HasSubstr("[2, -1]")));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(Objection({.request = {.name = "ronda/of_its_own", .shape = {2, -1}}}), StartsWith("allreduce: "))
      << "the caller has not given this name";
  EXPECT_THAT(Objection(Full({.shape = {0, huge, huge}})), HasSubstr("more bytes than 64 bits can count"));
  for (OpType op : {OpType::kAllgather, OpType::kGather, OpType::kScatter, OpType::kAlltoall, OpType::kReduceScatter}) {
    EXPECT_THAT(Objection({.request = {.name = "x", .op = op, .root = 1}, .input = buffer_}), HasSubstr("scalar"))
        << Name(op);
  }
}

TEST_F(SubmissionCheckTest, ProcessSetsMustExistAndHoldTheRank) {
  EXPECT_EQ(Objection(Full({.process_set = 1})), "");
  EXPECT_THAT(Objection(Full({.process_set = 2})), HasSubstr("rank 1 is not in process set 2, whose ranks are 0, 2"));
  EXPECT_THAT(Objection(Full({.process_set = 3})), HasSubstr("process set 3 was removed"));
  EXPECT_THAT(Objection(Full({.process_set = 9})), HasSubstr("no process set 9"));
}

TEST_F(SubmissionCheckTest, RootsMustBeInTheProcessSet) {
  for (OpType op : {OpType::kBroadcast, OpType::kReduce, OpType::kGather, OpType::kScatter}) {
    EXPECT_THAT(Objection(Full({.process_set = 1, .op = op, .root = 2})),
                HasSubstr("root 2 is not in process set 1, whose ranks are 0, 1, 3"));
  }
  EXPECT_THAT(Objection(Full({.op = OpType::kBroadcast, .root = 4})), HasSubstr("root 4"));
  EXPECT_THAT(Objection(Full({.op = OpType::kBroadcast, .root = -1})), HasSubstr("root -1"));
}

TEST_F(SubmissionCheckTest, SenderAndReceiverAreTwoAndSubmitIt) {
  const auto send = [](RankId from, RankId to) {
    return TensorRequest{.op = OpType::kSendRecv, .root = from, .receiver = to};
  };
  EXPECT_THAT(Objection(Full(send(1, 1))), HasSubstr("rank 1 is sender and receiver"));
  EXPECT_THAT(Objection(Full(send(1, 4))), HasSubstr("receiver 4 is not in process set 0"));
  EXPECT_THAT(Objection(Full(send(-1, 1))), HasSubstr("sender -1 is not in process set 0"));
  EXPECT_THAT(Objection(Full(send(2, 3))), HasSubstr("rank 1 is neither the sender, 2, nor the receiver, 3"));
}

TEST_F(SubmissionCheckTest, BuffersMayBeTheSameButNotOverlap) {
  Submission submission = Full({.shape = {8}});
  submission.output = buffer_;
  EXPECT_EQ(Objection(submission), "");
  submission.output = buffer_ + 4;
  EXPECT_THAT(Objection(submission), HasSubstr("overlap by 28 bytes"));
  submission.output = buffer_ + 32;
  EXPECT_EQ(Objection(submission), "");
}

TEST_F(SubmissionCheckTest, ReductionsMustBeDefinedOnTheDtype) {
  EXPECT_THAT(Objection(Full({.dtype = DType::kBool, .reduction = Reduction::kAverage})),
              HasSubstr("average is not defined on bool"));
  EXPECT_THAT(Objection(Full({.reduction = Reduction::kBitXor})), HasSubstr("bxor is not defined on float32"));
  EXPECT_THAT(Objection(Full({.dtype = DType::kInt32, .reduction = Reduction::kAdasum})),
              HasSubstr("adasum is not defined on int32"));
  EXPECT_EQ(Objection(Full({.memory = Memory::kCuda, .reduction = Reduction::kAdasum})), "");
  EXPECT_THAT(Objection(Full({.op = OpType::kReduce, .reduction = Reduction::kAdasum})),
              HasSubstr("only an allreduce"));
  EXPECT_THAT(Objection(Full({.reduction = Reduction::kAdasum, .wire = WireFormat::kFp8E5M2})),
              HasSubstr("does not travel as fp8_e5m2"));
  EXPECT_THAT(Objection(Full({.prescale = std::nan("")})), HasSubstr("must be finite"));
  EXPECT_THAT(Objection(Full({.postscale = std::numeric_limits<double>::infinity()})), HasSubstr("must be finite"));
}

TEST_F(SubmissionCheckTest, FactorsMustFitIntoTheTypeInWhichElementsAreScaled) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
    EXPECT_THAT(Objection(Full({.dtype = dtype, .prescale = 1e300})), HasSubstr("prescale 1e+300"));
    EXPECT_THAT(Objection(Full({.dtype = dtype, .postscale = -1e39})), HasSubstr("postscale -1e+39"));
    EXPECT_THAT(Objection(Full({.dtype = dtype, .prescale = 1e30, .postscale = 1e30})), HasSubstr("their product"));
    EXPECT_EQ(Objection(Full({.dtype = dtype, .prescale = 3e38, .postscale = 1e-30})), "");
  }
  EXPECT_THAT(Objection(Full({.dtype = DType::kFloat64, .wire = WireFormat::kFloat16, .postscale = 1e300})),
              HasSubstr("postscale 1e+300"));
  EXPECT_EQ(Objection(Full({.dtype = DType::kFloat64, .prescale = 1e300, .postscale = 1e300})), "");
  EXPECT_EQ(Objection(Full({.dtype = DType::kInt32, .postscale = 1e300})), "");
}

TEST_F(SubmissionCheckTest, OptionsOfReductionsAreRefusedElsewhere) {
  EXPECT_THAT(Objection(Full({.op = OpType::kAllgather, .wire = WireFormat::kFloat16})), HasSubstr("a wire format is"));
  EXPECT_THAT(Objection(Full({.op = OpType::kBroadcast, .overflow = TensorRequest::Overflow::kDetected})),
              HasSubstr("overflow detection is"));
  Submission submission = Full({.op = OpType::kAlltoall});
  submission.error_feedback = Submission::ErrorFeedback::kOn;
  EXPECT_THAT(Objection(submission), HasSubstr("error feedback is"));
  submission = Full({.reduction = Reduction::kMax});
  submission.error_feedback = Submission::ErrorFeedback::kOn;
  EXPECT_THAT(Objection(submission), HasSubstr("not in max"));
}

TEST_F(SubmissionCheckTest, SplitsMustAddUp) {
  const auto objection = [&](OpType op, std::vector<int64_t> splits) {
    Submission submission = Full({.process_set = 1, .op = op, .shape = {4}, .root = 1});
    submission.splits = std::move(splits);
    return Objection(submission);
  };
  EXPECT_EQ(objection(OpType::kAlltoall, {1, 0, 3}), "");
  EXPECT_THAT(objection(OpType::kAlltoall, {}), HasSubstr("its 4 rows cannot be split evenly among 3 ranks"));
  EXPECT_THAT(objection(OpType::kAlltoall, {2, 2}), HasSubstr("splits has 2 entries for 3 ranks"));
  EXPECT_THAT(objection(OpType::kAlltoall, {2, 3, -1}), HasSubstr("more rows than the tensor, which has 4"));
  EXPECT_THAT(objection(OpType::kAlltoall, {4, -1, 1}), HasSubstr("negative entry -1"));
  EXPECT_THAT(objection(OpType::kAlltoall, {1, 1, 1}), HasSubstr("leaves out 1 of 4 rows"));
  EXPECT_EQ(objection(OpType::kScatter, {}), "");
  EXPECT_THAT(objection(OpType::kScatter, {4, 0, 1}), HasSubstr("more rows"));
  EXPECT_THAT(objection(OpType::kAllgather, {4, 0, 0}), HasSubstr("splits are for alltoall"));
}

TEST_F(SubmissionCheckTest, ProcessSetsAreAddedByTheWholeJobOfAscendingRanks) {
  const auto add = [](std::vector<RankId> members) {
    return TensorRequest{.op = OpType::kAddProcessSet, .members = std::move(members)};
  };
  EXPECT_EQ(Objection(Full(add({3}))), "");
  EXPECT_THAT(Objection(Full(add({}))), HasSubstr("at least one rank"));
  EXPECT_THAT(Objection(Full(add({0, 0}))), HasSubstr("members [0, 0] should be ascending ranks"));
  EXPECT_THAT(Objection(Full(add({2, 1}))), HasSubstr("ascending"));
  EXPECT_THAT(Objection(Full(add({0, 4}))), HasSubstr("0 to 3"));
  EXPECT_THAT(Objection(Full(add({-1, 0}))), HasSubstr("0 to 3"));
  TensorRequest elsewhere = add({1});
  elsewhere.process_set = 1;
  EXPECT_THAT(Objection(Full(elsewhere)), HasSubstr("the ranks of process set 0 do that together: name that set"));
  EXPECT_THAT(Objection(Full({.op = OpType::kRemoveProcessSet})), HasSubstr("process set 0 is the job itself"));
  EXPECT_THAT(Objection(Full({.op = OpType::kRemoveProcessSet, .subject = 3})), HasSubstr("was removed"));
}

TEST_F(SubmissionCheckTest, MembersCreateAndRemoveTheirSetsThemselves) {
  EXPECT_THAT(Objection(Full({.op = OpType::kCreateProcessSet, .members = {0, 2}})),
              HasSubstr("rank 1 is not one of the members [0, 2]"));
  EXPECT_THAT(Objection(Full({.op = OpType::kCreateProcessSet, .members = {1, 1}})), HasSubstr("ascending"));
  ASSERT_TRUE(sets_.Apply({.request = {.op = OpType::kCreateProcessSet, .members = {1, 2}, .subject = 4}}).ok());
  EXPECT_EQ(sets_.RemoversOf(4), 4u);
  EXPECT_EQ(sets_.RemoversOf(1), 0u);
  EXPECT_EQ(sets_.RemoversOf(99), 0u);
  TensorRequest removal = {.op = OpType::kRemoveProcessSet, .subject = 4};
  EXPECT_THAT(Objection(Full(removal)), HasSubstr("the ranks of process set 4 do that together"));
  removal.process_set = 4;
  EXPECT_EQ(Objection(Full(removal)), "");
  removal.subject = 1;
  EXPECT_THAT(Objection(Full(removal)), HasSubstr("the ranks of process set 0 do that together"));
}

TEST_F(SubmissionCheckTest, ErrorFeedbackNeedsAName) {
  Submission submission = Full({.wire = WireFormat::kFloat16});
  submission.error_feedback = Submission::ErrorFeedback::kOn;
  EXPECT_EQ(Objection(submission), "");
  submission.unnamed_call = 1;
  EXPECT_THAT(Objection(submission), HasSubstr("error feedback is kept by the tensor's name"));
}

TEST_F(SubmissionCheckTest, LimitsAreAboveZero) {
  const WaitLimits no_warning = {.warning = absl::InfiniteDuration(), .deadline = absl::Seconds(1)};
  EXPECT_EQ(Objection(Full({.limits = no_warning})), "");
  EXPECT_THAT(Objection(Full({.limits = WaitLimits{.deadline = absl::ZeroDuration()}})), HasSubstr("above zero"));
  EXPECT_THAT(Objection(Full({.limits = WaitLimits{.warning = absl::Seconds(-1)}})), HasSubstr("above zero"));
}

TEST_F(SubmissionCheckTest, GroupsAreSubmittedWhole) {
  const Submitter submitter = {.rank = 1, .world_size = 4, .process_sets = &sets_};
  Submission a = Full({.group = "g", .group_size = 2});
  Submission b = a;
  b.request.name = "y";
  EXPECT_TRUE(CheckSubmissions({a, b}, submitter).ok());
  EXPECT_THAT(std::string(CheckSubmissions({a}, submitter).message()),
              HasSubstr("group 'g' is said to have 2 tensors, but 1 are submitted"));
  b.request.process_set = 1;
  EXPECT_FALSE(CheckSubmissions({a, b}, submitter).ok()) << "another process set, another group";
  EXPECT_THAT(Objection(Full({.group_size = 3})), HasSubstr("said to have 3 tensors, but 0"));
}

Response Added(ProcessSetId id, std::vector<RankId> members) {
  return {.request = {.op = OpType::kAddProcessSet, .members = std::move(members), .subject = id}};
}

TEST(ProcessSets, TellsRemovedSetsFromThoseThatNeverWere) {
  ProcessSets sets(4);
  EXPECT_EQ((*sets.Find(0))->size(), 4);
  ASSERT_TRUE(sets.Apply(Added(1, {0, 2})).ok());
  ASSERT_TRUE(sets.Apply(Added(2, {1})).ok());
  EXPECT_THAT(sets.Ids(), ElementsAre(0, 1, 2));
  EXPECT_THAT((*sets.Find(1))->ranks(), ElementsAre(0, 2));
  ASSERT_TRUE(sets.Apply({.request = {.op = OpType::kRemoveProcessSet, .subject = 1}}).ok());
  EXPECT_THAT(sets.Ids(), ElementsAre(0, 2));
  EXPECT_EQ(sets.Find(1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sets.Find(1).status().message()), HasSubstr("process set 1 was removed"));
  EXPECT_THAT(std::string(sets.Find(7).status().message()), HasSubstr("there is no process set 7, only 0, 2"));
}

TEST(ProcessSets, OtherResponsesChangeNothing) {
  ProcessSets sets(2);
  EXPECT_TRUE(sets.Apply({.request = {.name = "x", .op = OpType::kJoin}}).ok());
  EXPECT_THAT(sets.Ids(), ElementsAre(0));
}

}  // namespace
}  // namespace ronda
