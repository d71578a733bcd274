#include "runtime/control/rendezvous/join_proof.h"

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// Each text with its length before it, so that no two lists read the same.
std::string SignedFacts(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    absl::StrAppend(&text, fact.name.size(), ":", fact.name, fact.value.size(), ":", fact.value);
  }
  return text;
}

}  // namespace

std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  const Peer& peer = claim.member.peer;
  const Member& member = claim.member;
  const std::string numbers =
      absl::StrCat(peer.rank, ",", claim.size, ",", peer.pid, ",", member.control_port, ",", member.data_port);
  return SecretProof(secret, {"ronda.v1.Rendezvous.Join", nonce, numbers, peer.host, member.host_id, member.version,
                              member.control_address, member.data_address, SignedFacts(member.facts)});
}

bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  return IsSameProof(proof, JoinProof(secret, nonce, claim));
}

}  // namespace ronda
