// SPDX-License-Identifier: Apache-2.0

#include "runtime/tcp/tcp_handshake.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::string_view kHello = "ronda.v1.Data.Hello";
constexpr absl::string_view kWelcome = "ronda.v1.Data.Welcome";
// The key of the proofs in a job without a secret. Such proofs keep different jobs on one host apart, but do not
// protect against other callers.
constexpr absl::string_view kNoSecret = "no secret";

struct Nonces {
  absl::string_view callee;
  absl::string_view caller;
};

std::string Proof(const TcpJob& job, absl::string_view purpose, const Nonces& nonces, const TcpConnectionId& id) {
  const std::string numbers = absl::StrCat(id.level, ",", id.caller, ",", id.callee);
  const absl::string_view key = job.secret.empty() ? kNoSecret : absl::string_view(job.secret);
  return SecretProof(key, {purpose, nonces.callee, nonces.caller, job.job_id, numbers});
}

// Encodes in host byte order, which is the same on all ranks of a job.
std::string Encode(const TcpConnectionId& id) {
  const uint32_t words[] = {id.level, static_cast<uint32_t>(id.caller), static_cast<uint32_t>(id.callee)};
  std::string text(sizeof(words), '\0');
  std::memcpy(text.data(), words, sizeof(words));
  return text;
}

TcpConnectionId DecodeId(absl::string_view text) {
  uint32_t words[3];
  std::memcpy(words, text.data(), sizeof(words));
  return {.level = words[0], .caller = static_cast<RankId>(words[1]), .callee = static_cast<RankId>(words[2])};
}

}  // namespace

absl::StatusOr<TcpCallee> TcpCallee::Create(const TcpJob* job, RankId self) {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return TcpCallee(job, self, std::move(nonce));
}

absl::StatusOr<TcpCallee::Welcome> TcpCallee::Check(absl::string_view hello) const {
  const TcpConnectionId id = DecodeId(hello);
  const absl::string_view proof = hello.substr(hello.size() - kProofBytes);
  const Nonces nonces = {.callee = nonce_,
                         .caller = hello.substr(hello.size() - kProofBytes - kNonceBytes, kNonceBytes)};
  if (!IsSameProof(proof, Proof(*job_, kHello, nonces, id))) {
    return absl::PermissionDeniedError("the caller has not proved that it belongs to the job");
  }
  if (id.callee != self_) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", id.caller, " takes rank ", self_, " for rank ", id.callee));
  }
  return Welcome{.id = id, .text = Proof(*job_, kWelcome, nonces, id)};
}

absl::StatusOr<TcpCaller> TcpCaller::Create(const TcpJob* job, const TcpConnectionId& id) {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return TcpCaller(job, id, std::move(nonce));
}

std::string TcpCaller::Answer(absl::string_view challenge) {
  callee_nonce_ = std::string(challenge);
  const Nonces nonces = {.callee = callee_nonce_, .caller = nonce_};
  return absl::StrCat(Encode(id_), nonce_, Proof(*job_, kHello, nonces, id_));
}

absl::Status TcpCaller::Check(absl::string_view welcome) const {
  const Nonces nonces = {.callee = callee_nonce_, .caller = nonce_};
  if (IsSameProof(welcome, Proof(*job_, kWelcome, nonces, id_))) return absl::OkStatus();
  return absl::PermissionDeniedError("the listener there has not proved that it belongs to the job");
}

}  // namespace ronda
