// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/node_handshake.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Verdict = NodeWelcome::Verdict;

NodeHello Beta() { return {.version = kVersion, .name = "beta", .slots = 2}; }

std::string WithoutLength(const std::string& message) { return message.substr(kNodeLengthBytes); }

class NodeHandshakeTest : public ::testing::Test {
 protected:
  static NodeCallee Callee(const std::string& secret) { return *NodeCallee::Create(secret); }
  static NodeCaller Caller(const std::string& secret) { return *NodeCaller::Create(secret); }

  // Returns the hello if the leader accepts it, and otherwise the leader's error.
  static absl::StatusOr<NodeHello> Judged(const NodeHello& hello, const std::string& leaders_secret,
                                          const std::string& nodes_secret) {
    NodeCallee callee = Callee(leaders_secret);
    NodeCaller caller = Caller(nodes_secret);
    return callee.Check(WithoutLength(*caller.Answer(callee.challenge(), hello)));
  }
};

TEST_F(NodeHandshakeTest, BothEndsKnowEachOtherAfterIt) {
  for (const std::string secret : {"f00d", ""}) {
    NodeCallee callee = Callee(secret);
    NodeCaller caller = Caller(secret);
    const std::string hello = *caller.Answer(callee.challenge(), Beta());
    EXPECT_EQ(NodeMessageLength(hello), hello.size() - kNodeLengthBytes);
    const auto heard = callee.Check(WithoutLength(hello));
    ASSERT_TRUE(heard.ok()) << heard.status();
    EXPECT_EQ(*heard, Beta());
    const std::string answer = callee.Answer({.verdict = Verdict::kAccepted, .text = "beta-2"});
    EXPECT_EQ(NodeMessageLength(answer), answer.size() - kNodeLengthBytes);
    const auto welcome = caller.Check(WithoutLength(answer));
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    EXPECT_EQ(welcome->verdict, Verdict::kAccepted);
    EXPECT_EQ(welcome->text, "beta-2");
  }
}

TEST_F(NodeHandshakeTest, ACallerWithAnotherSecretIsDenied) {
  EXPECT_EQ(Judged(Beta(), "f00d", "cafe").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Judged(Beta(), "f00d", "").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Judged(Beta(), "", "cafe").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(NodeHandshakeTest, ALeaderWithAnotherSecretIsDenied) {
  NodeCallee callee = Callee("f00d");
  NodeCaller caller = Caller("cafe");
  EXPECT_FALSE(callee.Check(WithoutLength(*caller.Answer(callee.challenge(), Beta()))).ok());
  for (const Verdict verdict : {Verdict::kAccepted, Verdict::kNoRoom, Verdict::kNotProved, Verdict::kUnfit}) {
    const auto welcome = caller.Check(WithoutLength(callee.Answer({.verdict = verdict, .text = "beta"})));
    EXPECT_EQ(welcome.status().code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(NodeHandshakeTest, NoByteOfAnyMessageCanBeChanged) {
  NodeCallee callee = Callee("f00d");
  NodeCaller caller = Caller("f00d");
  const std::string hello = WithoutLength(*caller.Answer(callee.challenge(), Beta()));
  for (size_t i = 0; i < hello.size(); ++i) {
    std::string changed = hello;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(callee.Check(changed).status().code(), absl::StatusCode::kPermissionDenied) << i;
  }
  ASSERT_TRUE(callee.Check(hello).ok());
  const std::string welcome = WithoutLength(callee.Answer({.verdict = Verdict::kNoRoom, .text = "full"}));
  for (size_t i = 0; i < welcome.size(); ++i) {
    std::string changed = welcome;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(caller.Check(changed).status().code(), absl::StatusCode::kPermissionDenied) << i;
  }
  EXPECT_TRUE(caller.Check(welcome).ok());
}

TEST_F(NodeHandshakeTest, MessagesOfAnotherConnectionProveNothing) {
  NodeCallee first = Callee("f00d");
  NodeCallee second = Callee("f00d");
  NodeCaller caller = Caller("f00d");
  const std::string hello = WithoutLength(*caller.Answer(first.challenge(), Beta()));
  EXPECT_FALSE(second.Check(hello).ok());
  // The caller also refuses its own proof, sent back to it.
  EXPECT_FALSE(caller.Check(hello).ok());
}

TEST_F(NodeHandshakeTest, AShortMessageIsDenied) {
  for (const size_t size : {size_t{0}, size_t{1}, kNonceBytes, kNonceBytes + kProofBytes - 1}) {
    EXPECT_FALSE(Callee("f00d").Check(std::string(size, 'x')).ok());
    EXPECT_FALSE(Caller("f00d").Check(std::string(size, 'x')).ok());
  }
}

TEST_F(NodeHandshakeTest, ANodeThatMakesNoSenseIsUnfit) {
  const auto judged = [](const NodeHello& hello) { return Judged(hello, "f00d", "f00d").status(); };
  NodeHello older = Beta();
  older.version = "0.0.9";
  EXPECT_EQ(judged(older).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(judged(older).message()), HasSubstr(kVersion));
  for (const int slots : {0, -1, 1025}) {
    NodeHello hello = Beta();
    hello.slots = slots;
    EXPECT_EQ(judged(hello).code(), absl::StatusCode::kInvalidArgument) << slots;
  }
  for (const std::string name : {"", "-o", "a b", "a\nb", "a;b"}) {
    NodeHello hello = Beta();
    hello.name = name;
    EXPECT_EQ(judged(hello).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(NodeHandshakeTest, MessageThatIsNoChallengeIsNotAnswered) {
  NodeCaller caller = Caller("f00d");
  EXPECT_FALSE(caller.Answer("", Beta()).ok());
  EXPECT_FALSE(caller.Answer(std::string(kNodeChallengeBytes, 'x'), Beta()).ok());
  EXPECT_FALSE(caller.Answer(Callee("f00d").challenge() + "x", Beta()).ok());
}

TEST_F(NodeHandshakeTest, LengthsAreBounded) {
  EXPECT_EQ(NodeMessageLength(std::string("\x04\x00", 2)), 1024);
  EXPECT_EQ(NodeMessageLength(std::string("\x04\x01", 2)), std::nullopt);
  EXPECT_EQ(NodeMessageLength("\xff\xff"), std::nullopt);
}

}  // namespace
}  // namespace ronda
