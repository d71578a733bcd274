#include "runtime/control/rendezvous/join_proof.h"

#include "absl/strings/str_cat.h"

namespace ronda {

std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  const Peer& peer = claim.member.peer;
  const std::string numbers = absl::StrCat(peer.rank, ",", claim.size, ",", peer.pid);
  return SecretProof(
      secret, {"ronda.v1.Rendezvous.Join", nonce, numbers, peer.host, claim.member.host_id, claim.member.version});
}

bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  return IsSameProof(proof, JoinProof(secret, nonce, claim));
}

}  // namespace ronda
