// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/rank_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Kind = TimelineRequest::Kind;

class RankRequestTest : public ::testing::Test {
 protected:
  // The rank's side. The rank stores the request in `asked_`, and answers with `answer_`.
  void Answer() {
    AnswerRequest(
        [this](const TimelineRequest& request) {
          asked_ += request.kind == Kind::kStart ? "start " + request.path + ";" : "stop;";
          return answer_;
        },
        words_.get());
  }
  std::string AnswerText(uint64_t number) const {
    const auto answer = AnswerTo(number, *words_);
    if (!answer.has_value()) return "none";
    return answer->ok() ? **answer : std::string(answer->status().message());
  }

  const std::unique_ptr<RankRequestWords> words_ = std::make_unique<RankRequestWords>();
  std::string asked_;
  absl::StatusOr<std::string> answer_ = "file";
};

TEST_F(RankRequestTest, IsTakenOnceAndAnswered) {
  EXPECT_FALSE(HasRequest(*words_));
  const auto start = Ask({.kind = Kind::kStart, .path = "/tmp/a.json"}, words_.get());
  ASSERT_TRUE(start.ok());
  EXPECT_TRUE(HasRequest(*words_));
  EXPECT_EQ(AnswerText(*start), "none");
  Answer();
  EXPECT_FALSE(HasRequest(*words_));
  EXPECT_EQ(AnswerText(*start), "file");
  answer_ = absl::NotFoundError("no such folder");
  const auto stop = Ask({.kind = Kind::kStop}, words_.get());
  ASSERT_TRUE(stop.ok());
  EXPECT_EQ(AnswerText(*stop), "none") << "the last answer is not its own";
  Answer();
  EXPECT_EQ(AnswerText(*stop), "no such folder");
  EXPECT_EQ(asked_, "start /tmp/a.json;stop;");
}

TEST_F(RankRequestTest, ReplacesOneThatTheRankHasNotComeTo) {
  const auto first = Ask({.kind = Kind::kStart, .path = "/a"}, words_.get());
  const auto second = Ask({.kind = Kind::kStart, .path = "/b"}, words_.get());
  ASSERT_TRUE(first.ok() && second.ok());
  Answer();
  EXPECT_EQ(asked_, "start /b;");
  EXPECT_EQ(AnswerText(*first), "none");
  EXPECT_EQ(AnswerText(*second), "file");
}

TEST_F(RankRequestTest, HasToBeWhole) {
  ASSERT_TRUE(Ask({.kind = Kind::kStart, .path = "/a"}, words_.get()).ok());
  const uint64_t number = words_->number;
  words_->number = 0;  // the process that asks is in the middle of it
  Answer();
  EXPECT_EQ(asked_, "");
  words_->number = number;
  Answer();
  EXPECT_EQ(asked_, "start /a;");
}

TEST_F(RankRequestTest, PathHasToBeOneForEachProcess) {
  const auto error = [&](const std::string& path) {
    return std::string(Ask({.kind = Kind::kStart, .path = path}, words_.get()).status().message());
  };
  EXPECT_THAT(error("a.json"), HasSubstr("begins with '/'; got 'a.json'"));
  EXPECT_THAT(error(""), HasSubstr("begins with '/'"));
  EXPECT_THAT(error("/a\nb"), HasSubstr("no control characters"));
  EXPECT_THAT(error("/" + std::string(RankRequestWords::kPathBytes, 'x')), HasSubstr("1023 bytes at most"));
  EXPECT_FALSE(HasRequest(*words_));
}

// Any process of the same user may write to the memory, so it may contain any bytes.
TEST_F(RankRequestTest, WordsThatAreNoRequestAreAnsweredWithAnError) {
  words_->kind = 77;
  words_->number = 5;
  Answer();
  EXPECT_THAT(AnswerText(5), HasSubstr("no request 77"));
  words_->kind = static_cast<uint64_t>(Kind::kStart);
  for (std::atomic<char>& c : words_->path) c = 'x';  // without an end
  words_->number = 6;
  Answer();
  EXPECT_THAT(AnswerText(6), HasSubstr("1023 bytes at most"));
  EXPECT_EQ(asked_, "");
}

TEST_F(RankRequestTest, IsNeverAMixtureOfTwo) {
  constexpr int kRequests = 2000;
  std::atomic<bool> done{false};
  std::thread rank([&] {
    while (!done) {
      AnswerRequest(
          [](const TimelineRequest& request) -> absl::StatusOr<std::string> {
            const std::string& path = request.path;
            const bool is_whole = path == "/" + std::string(path.size() - 1, path.back());
            EXPECT_TRUE(is_whole) << path;
            return path;
          },
          words_.get());
    }
  });
  for (int i = 0; i < kRequests; ++i) {
    const std::string path = "/" + std::string(static_cast<size_t>(1 + i % 300), static_cast<char>('a' + i % 26));
    const auto number = Ask({.kind = Kind::kStart, .path = path}, words_.get());
    ASSERT_TRUE(number.ok());
    if (i % 10 != 0) continue;
    while (!AnswerTo(*number, *words_).has_value()) std::this_thread::yield();
    EXPECT_EQ(AnswerText(*number), path);
  }
  done = true;
  rank.join();
}

}  // namespace
}  // namespace ronda
