// SPDX-License-Identifier: Apache-2.0

#include "runtime/tcp/tcp_handshake.h"

#include <string>

#include "gtest/gtest.h"

namespace ronda {
namespace {

const TcpJob kJob = {.job_id = "job", .secret = "open sesame"};
const TcpConnectionId kId = {.level = 3, .caller = 7, .callee = 2};

TEST(TcpHandshakeTest, EndsOfOneJobProveItToEachOther) {
  TcpCallee callee = *TcpCallee::Create(&kJob, 2);
  TcpCaller caller = *TcpCaller::Create(&kJob, kId);
  ASSERT_EQ(callee.challenge().size(), kTcpChallengeBytes);
  const std::string hello = caller.Answer(callee.challenge());
  ASSERT_EQ(hello.size(), kTcpHelloBytes);
  const absl::StatusOr<TcpCallee::Welcome> welcome = callee.Check(hello);
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->id, kId);
  ASSERT_EQ(welcome->text.size(), kTcpWelcomeBytes);
  EXPECT_EQ(caller.Check(welcome->text), absl::OkStatus());
}

TEST(TcpHandshakeTest, EndsOnLoopbackNeedNoSecret) {
  const TcpJob job = {.job_id = "job"};
  TcpCallee callee = *TcpCallee::Create(&job, 2);
  TcpCaller caller = *TcpCaller::Create(&job, kId);
  const absl::StatusOr<TcpCallee::Welcome> welcome = callee.Check(caller.Answer(callee.challenge()));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(caller.Check(welcome->text), absl::OkStatus());
}

TEST(TcpHandshakeTest, CallerOfAnotherJobIsRefused) {
  for (const TcpJob& other : {TcpJob{.job_id = "job", .secret = "open barley"}, TcpJob{.job_id = "job", .secret = ""},
                              TcpJob{.job_id = "another", .secret = "open sesame"}}) {
    TcpCallee callee = *TcpCallee::Create(&kJob, 2);
    TcpCaller caller = *TcpCaller::Create(&other, kId);
    EXPECT_EQ(callee.Check(caller.Answer(callee.challenge())).status().code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST(TcpHandshakeTest, CalleeOfAnotherJobIsNotBelieved) {
  const TcpJob other = {.job_id = "job", .secret = "open barley"};
  TcpCallee callee = *TcpCallee::Create(&other, 2);
  TcpCaller in_their_job = *TcpCaller::Create(&other, kId);
  TcpCaller caller = *TcpCaller::Create(&kJob, kId);
  caller.Answer(callee.challenge());
  const std::string welcome = callee.Check(in_their_job.Answer(callee.challenge()))->text;
  EXPECT_EQ(caller.Check(welcome).code(), absl::StatusCode::kPermissionDenied);
}

TEST(TcpHandshakeTest, HelloCannotBeUsedAgain) {
  TcpCallee first = *TcpCallee::Create(&kJob, 2), second = *TcpCallee::Create(&kJob, 2);
  TcpCaller caller = *TcpCaller::Create(&kJob, kId);
  const std::string hello = caller.Answer(first.challenge());
  EXPECT_TRUE(first.Check(hello).ok());
  EXPECT_EQ(second.Check(hello).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(TcpHandshakeTest, ProofSentBackIsNoWelcome) {
  TcpCallee callee = *TcpCallee::Create(&kJob, 2);
  TcpCaller caller = *TcpCaller::Create(&kJob, kId);
  const std::string hello = caller.Answer(callee.challenge());
  EXPECT_FALSE(caller.Check(hello.substr(hello.size() - kTcpWelcomeBytes)).ok());
}

TEST(TcpHandshakeTest, AnyChangedByteOfAHelloIsRefused) {
  TcpCallee callee = *TcpCallee::Create(&kJob, 2);
  TcpCaller caller = *TcpCaller::Create(&kJob, kId);
  const std::string hello = caller.Answer(callee.challenge());
  for (size_t i = 0; i < hello.size(); ++i) {
    std::string changed = hello;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(callee.Check(changed).ok()) << "byte " << i;
  }
}

TEST(TcpHandshakeTest, RankThatTakesThisOneForAnotherIsToldApart) {
  TcpCallee callee = *TcpCallee::Create(&kJob, 5);
  TcpCaller caller = *TcpCaller::Create(&kJob, kId);
  EXPECT_EQ(callee.Check(caller.Answer(callee.challenge())).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ronda
