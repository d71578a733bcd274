// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/tensor_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Time kStart = absl::UnixEpoch();

Submission Named(const std::string& name, ProcessSetId process_set = kGlobalProcessSet) {
  return {.request = {.name = name, .process_set = process_set}};
}

class TensorQueueTest : public ::testing::Test {
 protected:
  ~TensorQueueTest() override { callbacks_->Stop(); }

  std::vector<std::string> Fresh() {
    std::vector<std::string> names;
    for (const TensorEntry* entry : queue_.HandOverFresh(kStart)) names.push_back(entry->submission.request.name);
    return names;
  }

  absl::Status AddAll(const std::vector<Submission>& submissions) {
    std::vector<std::shared_ptr<Handle>> handles;
    return queue_.AddAll(submissions, kStart, &handles);
  }

  const TensorEntry* Find(const std::string& name, ProcessSetId process_set = kGlobalProcessSet) {
    return queue_.Find({process_set, name});
  }

  const std::shared_ptr<CallbackThread> callbacks_ = CallbackThread::Create({});
  const std::unique_ptr<FlightRecorder> flight_{new FlightRecorder()};
  TensorLog log_{flight_.get(), nullptr, nullptr};
  TensorQueue queue_{callbacks_, nullptr, &log_};
};

TEST_F(TensorQueueTest, EntriesAreFreshOnceAndSayWhenTheyWereTaken) {
  ASSERT_TRUE(queue_.Add(Named("a"), kStart).ok());
  ASSERT_TRUE(queue_.Add(Named("b"), kStart + absl::Seconds(1)).ok());
  EXPECT_EQ(queue_.OldestFresh(), kStart);
  const auto fresh = queue_.HandOverFresh(kStart + absl::Seconds(2));
  ASSERT_THAT(fresh, SizeIs(2));
  EXPECT_EQ(fresh[0]->submission.request.name, "a");
  EXPECT_EQ(fresh[0]->popped, kStart + absl::Seconds(2));
  EXPECT_EQ(fresh[1]->submission.request.name, "b");
  EXPECT_THAT(Fresh(), IsEmpty());
  EXPECT_EQ(queue_.OldestFresh(), absl::InfiniteFuture());
}

TEST_F(TensorQueueTest, EarliestIsByTheGivenTime) {
  const auto by_name = [](const TensorEntry& entry) {
    return entry.submission.request.name == "b" ? kStart : absl::InfiniteFuture();
  };
  EXPECT_EQ(queue_.Earliest(by_name), nullptr);
  ASSERT_TRUE(AddAll({Named("a"), Named("b"), Named("c")}).ok());
  EXPECT_EQ(queue_.Earliest(by_name), Find("b"));
  EXPECT_NE(queue_.Earliest([](const TensorEntry&) { return absl::InfiniteFuture(); }), nullptr);
}

TEST_F(TensorQueueTest, NameIsFreeAgainOnceTheHandleIsComplete) {
  const auto handle = queue_.Add(Named("a"), kStart);
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(queue_.Add(Named("a"), kStart).status().code(), absl::StatusCode::kAlreadyExists);
  std::thread trainer([&] {
    EXPECT_TRUE((*handle)->Wait().ok());
    EXPECT_TRUE(queue_.Add(Named("a"), kStart).ok());
  });
  queue_.Complete(Find("a"), absl::OkStatus());
  trainer.join();
  EXPECT_FALSE(queue_.empty());
}

TEST_F(TensorQueueTest, NameMayBeInFlightInTwoProcessSets) {
  const auto global = queue_.Add(Named("a"), kStart);
  const auto in_set = queue_.Add(Named("a", 3), kStart);
  ASSERT_TRUE(global.ok() && in_set.ok());
  const absl::Status twice = queue_.Add(Named("a", 3), kStart).status();
  EXPECT_EQ(twice.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("tensor 'a' of process set 3 is in flight"));
  queue_.Complete(Find("a", 3), absl::OkStatus());
  EXPECT_TRUE((*in_set)->done());
  EXPECT_FALSE((*global)->done());
  EXPECT_NE(Find("a"), nullptr);
}

TEST_F(TensorQueueTest, NamesOfARemovedProcessSetAreForgotten) {
  const auto submit = [&](ProcessSetId set, int64_t rows) {
    Submission submission = Named("a", set);
    submission.request.shape = {rows};
    EXPECT_TRUE(queue_.Add(submission, kStart).ok());
    return Find("a", set);
  };
  for (const ProcessSetId set : {1, 2}) {
    queue_.Complete(submit(set, 3), absl::OkStatus());
    queue_.Complete(submit(set, 4), absl::OkStatus());
  }
  queue_.Forget(1);
  EXPECT_EQ(submit(1, 4)->version, 1u) << "it begins anew";
  EXPECT_EQ(submit(2, 4)->version, 2u);
  queue_.Forget(1);
  EXPECT_NE(Find("a", 1), nullptr) << "it is in flight";
}

TEST_F(TensorQueueTest, OnlyRemovalsOfProcessSetsNeedNoWait) {
  EXPECT_TRUE(queue_.has_only_removals());
  ASSERT_TRUE(queue_.Add({.request = {.name = "r", .op = OpType::kRemoveProcessSet, .subject = 1}}, kStart).ok());
  EXPECT_TRUE(queue_.has_only_removals());
  ASSERT_TRUE(queue_.Add(Named("a"), kStart).ok());
  EXPECT_FALSE(queue_.has_only_removals());
}

TEST_F(TensorQueueTest, AReceiveThatIsMatchedHasTheNameOfItsMessage) {
  const auto handle = queue_.Add(Named("receive"), kStart);
  ASSERT_TRUE(handle.ok());
  ASSERT_TRUE(queue_.Add(Named("later"), kStart).ok());
  EXPECT_THAT(Fresh(), SizeIs(2));
  const ReceiveMatch match = {.receiver = 0, .receive = "receive", .message = "message", .sender = 3};
  ASSERT_TRUE(queue_.Match(match).ok());
  EXPECT_EQ(Find("receive"), nullptr);
  const TensorEntry* const entry = Find("message");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->submission.request.name, "message");
  EXPECT_EQ(entry->submission.request.root, 3);
  EXPECT_EQ(queue_.HandedOver().front(), entry) << "the order stays";
  EXPECT_FALSE(queue_.Match(match).ok());
  EXPECT_FALSE(queue_.Match({.receive = "later", .message = "message"}).ok());
  queue_.Complete(entry, absl::OkStatus());
  EXPECT_TRUE((*handle)->done());
  EXPECT_EQ((*handle)->sender(), 3);
  ASSERT_TRUE(queue_.Add(Named("receive"), kStart).ok()) << "the name is free";
}

TEST_F(TensorQueueTest, AllAreAddedOrNone) {
  ASSERT_TRUE(queue_.Add(Named("b"), kStart).ok());
  EXPECT_EQ(AddAll({Named("a"), Named("b"), Named("c")}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(AddAll({Named("d"), Named("d")}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Fresh(), ElementsAre("b"));
  EXPECT_EQ(Find("a"), nullptr);
  EXPECT_EQ(Find("d"), nullptr);
  std::vector<std::shared_ptr<Handle>> handles;
  ASSERT_TRUE(queue_.AddAll({Named("a"), Named("c")}, kStart, &handles).ok());
  EXPECT_THAT(handles, SizeIs(2));
  EXPECT_THAT(Fresh(), ElementsAre("a", "c"));
}

TEST_F(TensorQueueTest, FlightRecorderTakesNoteOfWhatWasAdded) {
  ASSERT_TRUE(queue_.Add({.request = {.name = "a", .shape = {3}}}, kStart).ok());
  EXPECT_FALSE(AddAll({Named("b"), Named("a")}).ok());
  ASSERT_TRUE(queue_.Add({.request = {.name = "j", .op = OpType::kJoin}}, kStart).ok());
  const std::vector<FlightEvent> events = flight_->Events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, FlightKind::kSubmitted);
  EXPECT_EQ(events[0].name, "a");
  EXPECT_EQ(events[0].bytes, 12U);
  EXPECT_EQ(events[1].kind, FlightKind::kJoined);
}

TEST_F(TensorQueueTest, TakenAreThoseInFlightInTheOrderOfTheirSubmission) {
  ASSERT_TRUE(AddAll({Named("b"), Named("a"), Named("c")}).ok());
  EXPECT_THAT(queue_.HandedOver(), IsEmpty()) << "fresh, all of them";
  queue_.HandOverFresh(kStart);
  ASSERT_TRUE(queue_.Add(Named("d"), kStart).ok());
  queue_.Complete(Find("a"), absl::OkStatus());
  ASSERT_TRUE(queue_.Add(Named("a"), kStart).ok());
  const std::vector<TensorEntry*> taken = queue_.HandedOver();
  ASSERT_THAT(taken, SizeIs(2));
  EXPECT_EQ(taken[0]->submission.request.name, "b");
  EXPECT_EQ(taken[1]->submission.request.name, "c");
}

TEST_F(TensorQueueTest, ANameThatComesAgainFindsItsMemoryAndNothingOfBefore) {
  Submission submission = Named("a");
  submission.request.shape = {2, 3, 4};
  submission.request.group = "g";
  submission.splits = {1, 1};
  const auto first = queue_.Add(submission, kStart);
  queue_.HandOverFresh(kStart);
  const TensorEntry* const entry = Find("a");
  const int64_t* const shape = entry->submission.request.shape.data();
  queue_.Complete(entry, absl::UnavailableError("rank 1 died"));
  EXPECT_EQ(Find("a"), nullptr);

  const auto second = queue_.Add({.request = {.name = "a", .shape = {5}}}, kStart + absl::Seconds(1));
  ASSERT_TRUE(second.ok());
  ASSERT_EQ(Find("a"), entry);
  EXPECT_EQ(entry->submission.request.shape.data(), shape);
  EXPECT_EQ(entry->submission.request, (TensorRequest{.name = "a", .shape = {5}}));
  EXPECT_THAT(entry->submission.splits, IsEmpty());
  EXPECT_EQ(entry->since, kStart + absl::Seconds(1));
  EXPECT_EQ(entry->popped, absl::InfiniteFuture());
  EXPECT_FALSE((*second)->done());
  EXPECT_EQ((*first)->Wait(), absl::UnavailableError("rank 1 died")) << "the handle of before keeps its own";
}

TEST_F(TensorQueueTest, RequestThatDiffersFromTheLastOneOfItsNameIsAnotherVersion) {
  std::vector<uint64_t> versions;
  float data = 0;
  Submission submission = Named("a");
  const auto add = [&] {
    ASSERT_TRUE(queue_.Add(submission, kStart).ok());
    const TensorEntry* const entry = queue_.HandOverFresh(kStart).front();
    EXPECT_EQ(entry->submission.request, submission.request);
    EXPECT_EQ(entry->submission.output, submission.output);
    versions.push_back(entry->version);
    queue_.Complete(entry, absl::OkStatus());
  };
  add();
  submission.output = &data;  // the output is not part of the request
  add();
  submission.request.shape = {1};
  add();
  submission.request.shape = {};
  add();
  EXPECT_EQ(versions[0], versions[1]);
  EXPECT_NE(versions[1], versions[2]);
  EXPECT_NE(versions[2], versions[3]);
  EXPECT_NE(versions[3], versions[1]);
}

TEST_F(TensorQueueTest, ManyAreCompletedAtOnce) {
  std::vector<std::shared_ptr<Handle>> handles;
  ASSERT_TRUE(queue_.AddAll({Named("a"), Named("b"), Named("c")}, kStart, &handles).ok());
  const std::vector<TensorEntry*> fresh = queue_.HandOverFresh(kStart);
  std::vector<OperationResult> results(2);
  results[1].number = 7;
  queue_.CompleteAll({fresh[0], fresh[2]}, absl::MakeSpan(results));
  EXPECT_TRUE(handles[0]->done());
  EXPECT_FALSE(handles[1]->done());
  EXPECT_EQ(handles[2]->result().number, 7);
  EXPECT_THAT(queue_.HandedOver(), ElementsAre(fresh[1]));
  EXPECT_FALSE(queue_.empty());
  queue_.Complete(fresh[1], absl::OkStatus());
  EXPECT_TRUE(queue_.empty());
}

TEST_F(TensorQueueTest, NamesMayComeAgainInAnyOrder) {
  const std::vector<std::string> orders[] = {{"a", "b", "c"}, {"a", "b", "c"}, {"c", "b", "a"},     {"b", "c"},
                                             {"a", "d", "c"}, {"d", "b"},      {"a", "b", "c", "d"}};
  for (const std::vector<std::string>& names : orders) {
    std::vector<std::shared_ptr<Handle>> handles;
    for (const std::string& name : names) handles.push_back(*queue_.Add(Named(name), kStart));
    const std::vector<TensorEntry*> fresh = queue_.HandOverFresh(kStart);
    ASSERT_EQ(fresh.size(), names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(fresh[i]->submission.request.name, names[i]);
      EXPECT_EQ(Find(names[i]), fresh[i]);
      queue_.Complete(fresh[i], absl::OkStatus());
    }
    for (const auto& handle : handles) EXPECT_TRUE(handle->done());
  }
}

// The queue gets more names than it can keep, and forgets the least recently used one. If that name is submitted again,
// the queue treats it as new.
TEST_F(TensorQueueTest, NamesThatAreNotUsedAnyMoreAreForgotten) {
  for (size_t i = 0; i < 2 * TensorQueue::kMaxIdle; ++i) {
    const std::string name = absl::StrCat("step", i);
    const auto handle = queue_.Add(Named(name), kStart);
    ASSERT_TRUE(handle.ok());
    queue_.HandOverFresh(kStart);
    queue_.Complete(Find(name), absl::OkStatus());
    ASSERT_TRUE((*handle)->done());
  }
  for (const char* name : {"step0", "step1"}) {
    ASSERT_TRUE(queue_.Add(Named(name), kStart).ok());
    EXPECT_NE(Find(name), nullptr);
  }
  EXPECT_EQ(Find("step2"), nullptr);
}

// The queue is full of idle names, and a receive that has ended is the oldest of them. A match with it fails, and must
// not make the queue forget its name while the match still uses it.
TEST_F(TensorQueueTest, MatchWithAReceiveThatHasEndedFailsAndForgetsNoName) {
  const auto run = [&](Submission submission) {
    ASSERT_TRUE(queue_.Add(submission, kStart).ok());
    queue_.HandOverFresh(kStart);
    queue_.Complete(Find(submission.request.name), absl::OkStatus());
  };
  Submission receive = Named("receive");
  run(receive);
  receive.request.shape = {2};
  run(receive);
  for (size_t i = 1; i < TensorQueue::kMaxIdle; ++i) run(Named(absl::StrCat("step", i)));
  const absl::Status status = queue_.Match({.receive = "receive", .message = "message"});
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  ASSERT_TRUE(queue_.Add(receive, kStart).ok());
  EXPECT_EQ(Find("receive")->version, 2u) << "a name that was forgotten begins again at 1";
}

TEST_F(TensorQueueTest, RefusalKeepsWhatIsInFlight) {
  const auto handle = queue_.Add(Named("a"), kStart);
  queue_.Refuse(absl::CancelledError("closing"));
  EXPECT_EQ(queue_.Add(Named("b"), kStart).status(), absl::CancelledError("closing"));
  EXPECT_EQ(AddAll({Named("b")}), absl::CancelledError("closing"));
  EXPECT_FALSE((*handle)->done());
  queue_.Complete(Find("a"), absl::OkStatus());
  EXPECT_TRUE((*handle)->Wait().ok());
}

Submission Unnamed(uint64_t call, Shape shape) {
  return {.request = {.name = "ronda/unnamed/0", .shape = std::move(shape)}, .unnamed_call = call};
}

TEST_F(TensorQueueTest, UnnamedTensorsOfOneNameFollowEachOther) {
  const auto first = queue_.Add(Unnamed(1, {1}), kStart), second = queue_.Add(Unnamed(2, {2}), kStart),
             third = queue_.Add(Unnamed(3, {2}), kStart);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_THAT(Fresh(), SizeIs(1));
  const TensorEntry* const entry = Find("ronda/unnamed/0");
  const uint64_t version = entry->version;
  queue_.Complete(entry, absl::OkStatus());
  EXPECT_TRUE((*first)->done());
  EXPECT_FALSE((*second)->done());
  EXPECT_EQ(entry->submission.unnamed_call, 2u);
  EXPECT_EQ(entry->submission.request.shape, Shape{2});
  EXPECT_NE(entry->version, version);
  EXPECT_EQ(entry->popped, absl::InfiniteFuture());
  EXPECT_THAT(Fresh(), SizeIs(1));
  EXPECT_THAT(queue_.HandedOver(), ElementsAre(entry));
  OperationResult results[1];
  queue_.CompleteAll({&entry, 1}, absl::MakeSpan(results));
  EXPECT_TRUE((*second)->done());
  EXPECT_FALSE((*third)->done());
  EXPECT_EQ(entry->submission.unnamed_call, 3u);
  EXPECT_FALSE(queue_.empty());
  queue_.Complete(entry, absl::OkStatus());
  EXPECT_TRUE((*third)->done());
  EXPECT_TRUE(queue_.empty());
}

TEST_F(TensorQueueTest, TensorsAfterATensorWithALateRankAreGivenUp) {
  const auto first = queue_.Add(Unnamed(1, {1}), kStart), second = queue_.Add(Unnamed(2, {1}), kStart);
  Fresh();
  queue_.Complete(Find("ronda/unnamed/0"), absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ((*first)->Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*second)->Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(queue_.empty());
  EXPECT_THAT(Fresh(), IsEmpty());
}

TEST_F(TensorQueueTest, CloseFailsThoseThatFollowToo) {
  const auto first = queue_.Add(Unnamed(1, {1}), kStart), second = queue_.Add(Unnamed(2, {1}), kStart);
  EXPECT_EQ(queue_.Add(Named("ronda/unnamed/0"), kStart).status().code(), absl::StatusCode::kAlreadyExists);
  Fresh();
  queue_.Close(absl::UnavailableError("over"));
  EXPECT_EQ((*first)->Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*second)->Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(queue_.empty());
  EXPECT_THAT(Fresh(), IsEmpty());
}

TEST_F(TensorQueueTest, CloseFailsEverythingAndNamesEachTensor) {
  const auto a = queue_.Add(Named("a"), kStart);
  const auto b = queue_.Add(Named("b"), kStart);
  queue_.Refuse(absl::CancelledError("closing"));
  queue_.Close(absl::UnavailableError("rank 1 died"));
  EXPECT_EQ((*a)->Wait(), absl::UnavailableError("tensor 'a': rank 1 died"));
  EXPECT_EQ((*b)->Wait(), absl::UnavailableError("tensor 'b': rank 1 died"));
  EXPECT_EQ(queue_.Add(Named("c"), kStart).status(), absl::UnavailableError("rank 1 died"));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(TensorQueueTest, AllFollowRefusalsOrNone) {
  Submission refused = Named("a");
  refused.request.refusal = "its shape has a negative size";
  ASSERT_TRUE(queue_.Add(refused, kStart).ok());
  ASSERT_TRUE(queue_.Add(Named("c"), kStart).ok());
  EXPECT_EQ(AddAll({Named("d"), Named("a"), Named("c")}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(queue_.has_followers());
  EXPECT_EQ(Find("d"), nullptr);
  EXPECT_EQ(AddAll({Named("d"), Named("a")}), absl::OkStatus());
  EXPECT_TRUE(queue_.has_followers());
  EXPECT_THAT(Fresh(), ElementsAre("a", "c", "d"));
}

}  // namespace
}  // namespace ronda
