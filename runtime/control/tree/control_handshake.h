// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_HANDSHAKE_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_HANDSHAKE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/peer.h"
#include "runtime/control/tree/control_frame.h"
#include "runtime/control/tree/control_node.h"

namespace ronda {

// The facts of the job with which a rank authenticates its neighbours.
struct ControlJob {
  RankId rank = 0;
  std::vector<Peer> peers;  // by rank
  ControlTree tree;
  std::string job_id;
  std::string secret;  // empty: no proof is requested or given
};

// The first frames of a stream. Child and parent prove to each other that they know the job's secret.
//
//   parent                        child
//     | challenge: a nonce          |
//     |---------------------------->|
//     |   hello: rank, nonce, proof |
//     |<----------------------------|
//     | welcome: proof              |
//     |---------------------------->|
//
// Both proofs cover both nonces, so that neither can be used again. They name their purpose, so that neither can be
// sent back to its sender.
//
// One handshake serves one end of one stream. Thread-compatible. `job` must outlive it.
class ControlHandshake {
 public:
  // Errors: INTERNAL if the system gives no random bytes.
  static absl::StatusOr<ControlHandshake> Create(const ControlJob* job);

  // The first frame, from the parent.
  ChallengeFrame Challenge() const { return {.nonce = own_nonce_}; }

  // The child's answer.
  // Errors: INVALID_ARGUMENT if the parent's nonce is not valid.
  absl::StatusOr<HelloFrame> Answer(const ChallengeFrame& challenge);

  // The parent's last frame; `hello` is from a rank of the job.
  // Errors: PERMISSION_DENIED if the secret differs; INVALID_ARGUMENT if `hello` is from another job, or from a rank
  // that is no child of this rank.
  absl::StatusOr<WelcomeFrame> Welcome(const HelloFrame& hello) const;

  // Checks that `welcome` is from this rank's parent.
  // Errors: PERMISSION_DENIED if the sender does not know the secret.
  absl::Status CheckWelcome(const WelcomeFrame& welcome) const;

 private:
  ControlHandshake(const ControlJob* job, std::string nonce) : job_(job), own_nonce_(std::move(nonce)) {}

  // A proof that a holder of the secret has seen both nonces, of parent and child.
  struct Nonces {
    absl::string_view parent;
    absl::string_view child;
  };
  std::string Proof(absl::string_view purpose, const Nonces& nonces, RankId child) const;
  absl::Status CheckProof(absl::string_view proof, absl::string_view expected, RankId other) const;

  const ControlJob* job_;
  std::string own_nonce_;
  std::string parent_nonce_;  // of the child's handshake, once it has been challenged
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_HANDSHAKE_H_
