// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/flight_recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/shm/shm_attach.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using testing::ForkedChild;

constexpr FlightTime kNoon = absl::Hours(12);

// Returns the sequence number of slot i in memory. Peers in other processes rely on this memory layout.
uint64_t* SequenceOf(FlightRecorder& recorder, int i) {
  constexpr size_t kHeaderBytes = 64;
  constexpr size_t kSlotBytes = 128;
  static_assert(sizeof(FlightRecorder) == kHeaderBytes + FlightRecorder::kEvents * kSlotBytes);
  return reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(&recorder) + kHeaderBytes + i * kSlotBytes);
}

class FlightRecorderTest : public ::testing::Test {
 protected:
  // Records an event with n in each field.
  static void RecordNth(FlightRecorder& recorder, uint64_t n) {
    recorder.Record(FlightKind::kStarted, OpType::kAllgather, absl::StrCat("tensor ", n), n, absl::Nanoseconds(n));
  }
  static bool IsWhole(const FlightEvent& event) {
    return event.name == absl::StrCat("tensor ", event.bytes) &&
           event.time == absl::Nanoseconds(static_cast<int64_t>(event.bytes)) && event.kind == FlightKind::kStarted &&
           event.op == OpType::kAllgather;
  }

  const std::unique_ptr<FlightRecorder> recorder_{new FlightRecorder()};  // zeroed
};

TEST_F(FlightRecorderTest, ZeroBytesAreAnEmptyRecorder) {
  EXPECT_TRUE(recorder_->Events().empty());
  EXPECT_FALSE(recorder_->Last().has_value());
  EXPECT_EQ(DescribeLastEvent(*recorder_), "has done nothing yet");
}

TEST_F(FlightRecorderTest, EventsAreReadAsTheyWereRecorded) {
  recorder_->Record(FlightKind::kSubmitted, OpType::kBroadcast, "weights", 0, kNoon);
  recorder_->Record(FlightKind::kFailed, OpType::kAllreduce, "", 4096, kNoon + absl::Nanoseconds(1));
  const std::vector<FlightEvent> events = recorder_->Events();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].kind, FlightKind::kSubmitted);
  EXPECT_EQ(events[0].op, OpType::kBroadcast);
  EXPECT_EQ(events[0].name, "weights");
  EXPECT_EQ(events[0].bytes, 0);
  EXPECT_EQ(events[0].time, kNoon);
  EXPECT_EQ(events[1].kind, FlightKind::kFailed);
  EXPECT_EQ(events[1].name, "");
  EXPECT_EQ(events[1].bytes, 4096);
  EXPECT_EQ(events[1].time, kNoon + absl::Nanoseconds(1));
}

TEST_F(FlightRecorderTest, OnlyTheLastEventsAreKept) {
  constexpr uint64_t kRecorded = 3 * FlightRecorder::kEvents + 5;
  for (uint64_t n = 0; n < kRecorded; ++n) RecordNth(*recorder_, n);
  const std::vector<FlightEvent> events = recorder_->Events();
  ASSERT_EQ(events.size(), FlightRecorder::kEvents);
  EXPECT_EQ(events.front().bytes, kRecorded - FlightRecorder::kEvents);
  EXPECT_EQ(events.back().bytes, kRecorded - 1);
  EXPECT_EQ(recorder_->Last()->bytes, kRecorded - 1);
}

TEST_F(FlightRecorderTest, EventsAreFoundByTheBeginningOfTheirNames) {
  for (const uint64_t n : {7, 70, 8, 700}) RecordNth(*recorder_, n);
  const std::vector<FlightEvent> events = recorder_->Events("tensor 7");
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].bytes, 7);
  EXPECT_EQ(events[2].bytes, 700);
  EXPECT_TRUE(std::all_of(events.begin(), events.end(), IsWhole));
  EXPECT_TRUE(recorder_->Events("tensor 7000").empty());
}

TEST_F(FlightRecorderTest, LongNamesAreCutBetweenCharacters) {
  const std::string ascii(FlightRecorder::kNameBytes + 1, 'x');
  recorder_->Record(FlightKind::kStarted, OpType::kAllreduce, ascii, 0);
  EXPECT_EQ(recorder_->Last()->name, ascii.substr(0, FlightRecorder::kNameBytes));
  // The maximum length of the name falls between the two bytes of a character, an e with an accent.
  const std::string before(FlightRecorder::kNameBytes - 1, 'x');
  recorder_->Record(FlightKind::kStarted, OpType::kAllreduce, before + "\xc3\xa9", 0);
  EXPECT_EQ(recorder_->Last()->name, before);
  const std::string fits(FlightRecorder::kNameBytes, 'y');
  recorder_->Record(FlightKind::kStarted, OpType::kAllreduce, fits, 0);
  EXPECT_EQ(recorder_->Last()->name, fits);
}

TEST_F(FlightRecorderTest, ASlotThatIsBeingWrittenIsLeftOut) {
  for (uint64_t n = 0; n < 3; ++n) RecordNth(*recorder_, n);
  *SequenceOf(*recorder_, 2) -= 1;
  ASSERT_EQ(recorder_->Events().size(), 2);
  EXPECT_EQ(recorder_->Last()->bytes, 1);
}

TEST_F(FlightRecorderTest, AWriterThatIsAWholeRoundLateIsNotWaitedFor) {
  RecordNth(*recorder_, 0);
  *SequenceOf(*recorder_, 0) -= 1;
  for (uint64_t n = 1; n <= FlightRecorder::kEvents; ++n) RecordNth(*recorder_, n);
  // The event whose slot was not free is missing from the last events.
  const std::vector<FlightEvent> events = recorder_->Events();
  ASSERT_EQ(events.size(), FlightRecorder::kEvents - 1);
  EXPECT_EQ(events.back().bytes, FlightRecorder::kEvents - 1);
}

TEST_F(FlightRecorderTest, ImpossibleFieldsAreLeftOut) {
  for (uint64_t n = 0; n < 4; ++n) RecordNth(*recorder_, n);
  constexpr int kWhat = 3;
  SequenceOf(*recorder_, 0)[kWhat] = 0;                                // no kind
  SequenceOf(*recorder_, 1)[kWhat] = 1 | uint64_t{kOpTypeCount} << 8;  // no op
  SequenceOf(*recorder_, 2)[kWhat] = 1 | uint64_t{FlightRecorder::kNameBytes + 1} << 16;
  const std::vector<FlightEvent> events = recorder_->Events();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].bytes, 3);
}

TEST_F(FlightRecorderTest, TheLastActIsDescribedWithItsAge) {
  recorder_->Record(FlightKind::kStarted, OpType::kAllreduce, "x", 4096, kNoon);
  EXPECT_EQ(DescribeLastEvent(*recorder_, kNoon + absl::Milliseconds(12100)),
            "did last, 12.1s ago: started allreduce 'x' (4096 bytes)");
  recorder_->Record(FlightKind::kWaiting, OpType::kBarrier, "epoch", 0, kNoon + absl::Seconds(1));
  EXPECT_EQ(DescribeLastEvent(*recorder_, kNoon + absl::Seconds(3)), "did last, 2s ago: waited in barrier 'epoch'");
}

TEST_F(FlightRecorderTest, TimeIsTheSameInOtherProcesses) {
  const FlightTime before = FlightNow();
  ForkedChild child([](const ForkedChild::SayReady&) { return absl::StrCat(absl::ToInt64Nanoseconds(FlightNow())); });
  int64_t in_child = 0;
  ASSERT_TRUE(absl::SimpleAtoi(child.Result(), &in_child));
  EXPECT_LE(before, absl::Nanoseconds(in_child));
  EXPECT_LE(absl::Nanoseconds(in_child), FlightNow());
}

TEST_F(FlightRecorderTest, SeveralWritersAndAReaderDoNotMixEventsUp) {
  constexpr uint64_t kWriters = 3;
  constexpr uint64_t kEventsEach = 4000;
  std::atomic<uint64_t> writing{kWriters};
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (uint64_t n = 0; n < kEventsEach; ++n) RecordNth(*recorder_, writer * kEventsEach + n);
      --writing;
    });
  }
  while (writing > 0) {
    for (const FlightEvent& event : recorder_->Events()) ASSERT_TRUE(IsWhole(event)) << event.name;
  }
  for (std::thread& thread : threads) thread.join();
  // Each writer may have lost at most one event, because a late writer still held the event's slot.
  EXPECT_GE(recorder_->Events().size(), FlightRecorder::kEvents - kWriters);
}

// Tests a process that endlessly records events, in memory that it shares with this process.
class RecordingProcessTest : public FlightRecorderTest {
 protected:
  void Run(int signal, int wait_options) {
    auto memory = ShmMapping::Anonymous(sizeof(FlightRecorder));
    ASSERT_TRUE(memory.ok());
    const FlightBoard board({static_cast<FlightRecorder*>((*memory)->base())}, *memory);
    ForkedChild child([&](const ForkedChild::SayReady& say_ready) -> std::string {
      for (uint64_t n = 0;; ++n) {
        RecordNth(board.Of(0), n);
        if (n == 2 * FlightRecorder::kEvents) say_ready();
      }
    });
    child.WaitUntilReady();
    child.Kill(signal);
    // In a job, the parent of a rank is not one of its peers. Here the parent acts as the peer, because only a parent
    // can wait until the signal has taken effect.
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, wait_options | WNOWAIT), 0);
    const std::vector<FlightEvent> events = board.Of(0).Events();
    EXPECT_GE(events.size(), FlightRecorder::kEvents - 1) << "more than the one being written is missing";
    for (const FlightEvent& event : events) EXPECT_TRUE(IsWhole(event)) << event.name;
    EXPECT_TRUE(absl::StrContains(DescribeLastEvent(board.Of(0)), "started allgather 'tensor "));
  }
};

TEST_F(RecordingProcessTest, AStoppedProcessCanBeRead) { Run(SIGSTOP, WSTOPPED); }

TEST_F(RecordingProcessTest, AKilledProcessCanBeRead) { Run(SIGKILL, WEXITED); }

}  // namespace
}  // namespace ronda
