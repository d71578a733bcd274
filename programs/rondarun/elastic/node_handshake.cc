// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/node_handshake.h"

#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "programs/options/hosts.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

constexpr absl::string_view kHello = "ronda.v1.Node.Hello";
constexpr absl::string_view kWelcome = "ronda.v1.Node.Welcome";
// If the job has no secret, the proofs are computed with this key instead.
constexpr absl::string_view kNoSecret = "no secret";

absl::string_view KeyOf(const std::string& secret) { return secret.empty() ? kNoSecret : absl::string_view(secret); }

std::string WithLength(absl::string_view body) {
  std::string message(kNodeLengthBytes, '\0');
  message[0] = static_cast<char>(body.size() >> 8);
  message[1] = static_cast<char>(body.size());
  message.append(body.data(), body.size());
  return message;
}

bool IsVerdict(char letter) {
  using Verdict = NodeWelcome::Verdict;
  for (const Verdict verdict : {Verdict::kAccepted, Verdict::kNoRoom, Verdict::kNotProved, Verdict::kUnfit}) {
    if (letter == static_cast<char>(verdict)) return true;
  }
  return false;
}

// Parses the hello of a node that has proved that it knows the secret. The node may run another version of Ronda.
absl::StatusOr<NodeHello> ParseHello(absl::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.front() != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("its rondarun is of another version of Ronda: this one is of ", kVersion));
  }
  NodeHello hello = {.version = lines.front()};
  if (lines.size() != 3 || !absl::SimpleAtoi(lines[2], &hello.slots) || hello.slots < 1 || hello.slots > kMaxSlots) {
    return absl::InvalidArgumentError("its hello makes no sense");
  }
  hello.name = lines[1];
  if (!IsHostName(hello.name)) return absl::InvalidArgumentError("the name of its host is none");
  return hello;
}

}  // namespace

std::optional<size_t> NodeMessageLength(absl::string_view bytes) {
  const size_t length = static_cast<size_t>(static_cast<uint8_t>(bytes[0])) << 8 | static_cast<uint8_t>(bytes[1]);
  return length <= kMaxNodeMessageBytes ? std::optional<size_t>(length) : std::nullopt;
}

absl::StatusOr<NodeCallee> NodeCallee::Create(std::string secret) {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return NodeCallee(std::move(secret), std::move(nonce));
}

std::string NodeCallee::challenge() const { return absl::StrCat(kNodeGreeting, nonce_); }

absl::StatusOr<NodeHello> NodeCallee::Check(absl::string_view hello) {
  const absl::Status denied = absl::PermissionDeniedError("it has not proved that it knows RONDA_JOB_SECRET");
  if (hello.size() < kNonceBytes + kProofBytes) return denied;
  caller_nonce_ = std::string(hello.substr(0, kNonceBytes));
  const absl::string_view proof = hello.substr(kNonceBytes, kProofBytes);
  const absl::string_view text = hello.substr(kNonceBytes + kProofBytes);
  if (!IsSameProof(proof, SecretProof(KeyOf(secret_), {kHello, nonce_, caller_nonce_, text}))) return denied;
  return ParseHello(text);
}

std::string NodeCallee::Answer(const NodeWelcome& welcome) const {
  const char verdict = static_cast<char>(welcome.verdict);
  const std::string text = absl::StrCat(absl::string_view(&verdict, 1), welcome.text);
  // A caller without a valid proof must not receive any data that could help it guess the secret.
  const std::string proof = welcome.verdict == NodeWelcome::Verdict::kNotProved
                                ? std::string(kProofBytes, '\0')
                                : SecretProof(KeyOf(secret_), {kWelcome, nonce_, caller_nonce_, text});
  return WithLength(absl::StrCat(proof, text));
}

absl::StatusOr<NodeCaller> NodeCaller::Create(std::string secret) {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return NodeCaller(std::move(secret), std::move(nonce));
}

absl::StatusOr<std::string> NodeCaller::Answer(absl::string_view challenge, const NodeHello& hello) {
  if (challenge.size() != kNodeChallengeBytes || !absl::StartsWith(challenge, kNodeGreeting)) {
    return absl::InvalidArgumentError("what answers there is no rondarun of this version");
  }
  callee_nonce_ = std::string(challenge.substr(kNodeGreeting.size()));
  const std::string text = absl::StrCat(hello.version, "\n", hello.name, "\n", hello.slots);
  const std::string proof = SecretProof(KeyOf(secret_), {kHello, callee_nonce_, nonce_, text});
  return WithLength(absl::StrCat(nonce_, proof, text));
}

absl::StatusOr<NodeWelcome> NodeCaller::Check(absl::string_view welcome) const {
  const absl::Status denied = absl::PermissionDeniedError(
      "the rondarun there has another RONDA_JOB_SECRET: set it to the same value on every node");
  if (welcome.size() <= kProofBytes) return denied;
  const absl::string_view proof = welcome.substr(0, kProofBytes);
  const absl::string_view text = welcome.substr(kProofBytes);
  if (!IsSameProof(proof, SecretProof(KeyOf(secret_), {kWelcome, callee_nonce_, nonce_, text}))) return denied;
  if (!IsVerdict(text.front())) return absl::InvalidArgumentError("the answer of the rondarun there makes no sense");
  return NodeWelcome{.verdict = static_cast<NodeWelcome::Verdict>(text.front()), .text = std::string(text.substr(1))};
}

}  // namespace ronda
