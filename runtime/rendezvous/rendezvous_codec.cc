// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rendezvous_codec.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/config.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/proof.h"

namespace ronda {
namespace {

constexpr size_t kMaxTextBytes = 255;
constexpr int kMaxFacts = 64;

// Checks that a text is printable, because it appears in errors and on terminals of other ranks.
absl::Status CheckText(absl::string_view field, absl::string_view text) {
  if (text.empty() || text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous: ", field, " has ", text.size(), " bytes; should be 1 to ", kMaxTextBytes));
  }
  if (!std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isprint(c); })) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: ", field, " has unprintable characters"));
  }
  return absl::OkStatus();
}

v1::Member EncodeMember(const Member& member) {
  v1::Member message;
  message.set_rank(member.peer.rank);
  message.set_hostname(member.peer.host);
  message.set_pid(member.peer.pid);
  message.set_host_id(member.host_id);
  message.set_version(member.version);
  message.set_tcp_address(member.tcp_address);
  message.set_tcp_port(member.tcp_port);
  return message;
}

using FactMessages = google::protobuf::RepeatedPtrField<v1::Fact>;

void EncodeFacts(const std::vector<Fact>& facts, FactMessages* messages) {
  for (const Fact& fact : facts) {
    v1::Fact* const message = messages->Add();
    message->set_name(fact.name);
    message->set_value(fact.value);
  }
}

absl::StatusOr<std::vector<Fact>> DecodeFacts(const FactMessages& messages) {
  if (messages.size() > kMaxFacts) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous: a rank has ", messages.size(), " facts; should be at most ", kMaxFacts));
  }
  std::vector<Fact> facts;
  for (const v1::Fact& message : messages) {
    RONDA_RETURN_IF_ERROR(CheckText("the name of a fact", message.name()));
    RONDA_RETURN_IF_ERROR(CheckText("the value of a fact", message.value()));
    facts.push_back({.name = message.name(), .value = message.value()});
  }
  return facts;
}

absl::Status CheckPlace(absl::string_view field, absl::string_view address, int port) {
  if (port < 0 || port > 65535) return absl::InvalidArgumentError(absl::StrCat("rendezvous: there is no port ", port));
  if (port != 0) return CheckText(field, address);
  if (address.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rendezvous: a ", field, " without a port"));
}

absl::StatusOr<Member> DecodeMember(const v1::Member& message) {
  RONDA_RETURN_IF_ERROR(CheckText("hostname", message.hostname()));
  RONDA_RETURN_IF_ERROR(CheckText("host_id", message.host_id()));
  RONDA_RETURN_IF_ERROR(CheckText("version", message.version()));
  RONDA_RETURN_IF_ERROR(CheckPlace("tcp_address", message.tcp_address(), message.tcp_port()));
  if (message.pid() <= 0 || message.pid() > std::numeric_limits<pid_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: there is no pid ", message.pid()));
  }
  return Member{.peer = {.rank = message.rank(), .host = message.hostname(), .pid = static_cast<pid_t>(message.pid())},
                .host_id = message.host_id(),
                .version = message.version(),
                .tcp_address = message.tcp_address(),
                .tcp_port = message.tcp_port()};
}

bool SameProcess(const Member& a, const Member& b) {
  return a.peer.host == b.peer.host && a.peer.pid == b.peer.pid && a.host_id == b.host_id;
}

// Each text is prefixed with its length, so that different lists of facts never yield the same result.
std::string SignedFacts(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    absl::StrAppend(&text, fact.name.size(), ":", fact.name, fact.value.size(), ":", fact.value);
  }
  return text;
}

}  // namespace

v1::JoinRequest EncodeClaim(const JoinClaim& claim) {
  v1::JoinRequest request;
  *request.mutable_member() = EncodeMember(claim.member);
  request.set_size(claim.size);
  request.set_epoch(claim.epoch);
  EncodeFacts(claim.member.facts, request.mutable_facts());
  return request;
}

v1::JoinResponse EncodeMemberList(const MemberList& member_list) {
  v1::JoinResponse response;
  response.set_job_id(member_list.job_id);
  for (const Member& member : member_list.members) *response.add_members() = EncodeMember(member);
  // Sends only rank 0's facts: those of all ranks would make the answers of a large job many times longer.
  EncodeFacts(member_list.members.front().facts, response.mutable_facts());
  return response;
}

absl::StatusOr<JoinClaim> DecodeClaim(const v1::JoinRequest& request) {
  JoinClaim claim;
  RONDA_ASSIGN_OR_RETURN(claim.member, DecodeMember(request.member()));
  RONDA_ASSIGN_OR_RETURN(claim.member.facts, DecodeFacts(request.facts()));
  claim.size = request.size();
  claim.epoch = request.epoch();
  if (claim.epoch < 0 || claim.epoch > kMaxEpoch) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: there is no epoch ", claim.epoch));
  }
  if (claim.member.peer.rank < 0 || claim.member.peer.rank >= claim.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous: there is no rank ", claim.member.peer.rank, " in a job of ", claim.size));
  }
  return claim;
}

absl::StatusOr<MemberList> DecodeMemberList(const v1::JoinResponse& response, const JoinClaim& claim) {
  if (!IsValidJobId(response.job_id())) return absl::InvalidArgumentError("rendezvous: rank 0 sent no valid job id");
  if (response.members_size() != claim.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous: rank 0 sent ", response.members_size(), " members, should be ", claim.size));
  }
  MemberList member_list{.job_id = response.job_id()};
  for (RankId rank = 0; rank < claim.size; ++rank) {
    RONDA_ASSIGN_OR_RETURN(Member member, DecodeMember(response.members(rank)));
    if (member.peer.rank != rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("rendezvous: rank 0 sent rank ", member.peer.rank, " in the place of rank ", rank));
    }
    member_list.members.push_back(std::move(member));
  }
  RONDA_ASSIGN_OR_RETURN(member_list.members.front().facts, DecodeFacts(response.facts()));
  const RankId own = claim.member.peer.rank;
  if (!SameProcess(member_list.members[own], claim.member)) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: rank 0 takes another process for rank ", own));
  }
  return member_list;
}

std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  const Peer& peer = claim.member.peer;
  const Member& member = claim.member;
  const std::string numbers =
      absl::StrCat(peer.rank, ",", claim.size, ",", claim.epoch, ",", peer.pid, ",", member.tcp_port);
  return SecretProof(secret, {"ronda.v1.Rendezvous.Join", nonce, numbers, peer.host, member.host_id, member.version,
                              member.tcp_address, SignedFacts(member.facts)});
}

bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  return IsSameProof(proof, JoinProof(secret, nonce, claim));
}

}  // namespace ronda
