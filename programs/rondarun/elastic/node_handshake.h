// SPDX-License-Identifier: Apache-2.0

// The first messages between a node and the leader of its job, in which both prove that they know the job's secret.
//
//   leader                               node
//     | challenge: greeting, nonce         |
//     |----------------------------------->|
//     | hello: nonce, proof, the node      |
//     |<-----------------------------------|
//     | welcome: proof, verdict, text      |
//     |----------------------------------->|
//
// Both proofs cover both nonces, so no proof can be replayed. Each proof names its purpose, so an attacker cannot send
// it back to its author. The challenge has a fixed length. Every other message is preceded by its length, in two bytes.
// If the length exceeds kMaxNodeMessageBytes, the message is rejected before any more bytes are read.
#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_HANDSHAKE_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_HANDSHAKE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/net/proof.h"

namespace ronda {

// The greeting by which a node recognises that rondarun is listening.
inline constexpr absl::string_view kNodeGreeting = "ronda-node-1\n";

inline constexpr size_t kNodeChallengeBytes = kNodeGreeting.size() + kNonceBytes;
inline constexpr size_t kNodeLengthBytes = 2;
inline constexpr size_t kMaxNodeMessageBytes = 1024;

// Returns the length of the message that follows `bytes`, or nullopt if the message would be too long. REQUIRES:
// `bytes` holds kNodeLengthBytes bytes.
std::optional<size_t> NodeMessageLength(absl::string_view bytes);

// How a node describes itself to the leader.
struct NodeHello {
  std::string version;  // of Ronda
  std::string name;     // of its host
  int slots = 0;        // members that it takes

  bool operator==(const NodeHello&) const = default;
};

// The leader's reply to a node's hello.
struct NodeWelcome {
  enum class Verdict : char { kAccepted = 'a', kNoRoom = 'n', kNotProved = 'p', kUnfit = 'u' };

  Verdict verdict = Verdict::kAccepted;
  std::string text;  // kAccepted: the node's name in the job; otherwise the reason
};

// The leader's side of the handshake. If the job has no secret, the handshake only protects jobs on a single host from
// callers that connect by mistake.
//
// Thread-compatible.
class NodeCallee {
 public:
  // Errors: INTERNAL if the system provides no random bytes.
  static absl::StatusOr<NodeCallee> Create(std::string secret);

  std::string challenge() const;

  // Checks a node's hello. The caller has already removed the length. Errors: PERMISSION_DENIED if the node has not
  // proved that it knows the secret. INVALID_ARGUMENT if the node knows the secret, but runs another version of Ronda
  // or sends invalid values. The leader may send the text of the error to the node.
  absl::StatusOr<NodeHello> Check(absl::string_view hello);

  // Returns a welcome, preceded by its length. The welcome contains a proof only if the hello contained a valid one.
  std::string Answer(const NodeWelcome& welcome) const;

 private:
  NodeCallee(std::string secret, std::string nonce) : secret_(std::move(secret)), nonce_(std::move(nonce)) {}

  std::string secret_;
  std::string nonce_;
  std::string caller_nonce_;
};

// The node's side of the handshake. Thread-compatible.
class NodeCaller {
 public:
  // Errors: INTERNAL if the system provides no random bytes.
  static absl::StatusOr<NodeCaller> Create(std::string secret);

  // Returns the hello that answers `challenge`, preceded by its length.
  // Errors: INVALID_ARGUMENT if `challenge` does not have the form of a leader's challenge.
  absl::StatusOr<std::string> Answer(absl::string_view challenge, const NodeHello& hello);

  // Checks a leader's welcome. The caller has already removed the length. Errors: PERMISSION_DENIED if the node or the
  // leader has not proved that it knows the secret.
  absl::StatusOr<NodeWelcome> Check(absl::string_view welcome) const;

 private:
  NodeCaller(std::string secret, std::string nonce) : secret_(std::move(secret)), nonce_(std::move(nonce)) {}

  std::string secret_;
  std::string nonce_;
  std::string callee_nonce_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_HANDSHAKE_H_
