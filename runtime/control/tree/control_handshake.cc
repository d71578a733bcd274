// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/control_handshake.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/proof.h"

namespace ronda {
namespace {

constexpr absl::string_view kChildsPurpose = "ronda.v1.Control.Hello";
constexpr absl::string_view kParentsPurpose = "ronda.v1.Control.Welcome";

}  // namespace

absl::StatusOr<ControlHandshake> ControlHandshake::Create(const ControlJob* job) {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  return ControlHandshake(job, std::move(nonce));
}

std::string ControlHandshake::Proof(absl::string_view purpose, const Nonces& nonces, RankId child) const {
  if (job_->secret.empty()) return "";
  const std::string numbers = absl::StrCat(child, ",", job_->tree.size, ",", job_->tree.fan_out);
  return SecretProof(job_->secret, {purpose, nonces.parent, nonces.child, job_->job_id, numbers});
}

absl::Status ControlHandshake::CheckProof(absl::string_view proof, absl::string_view expected, RankId other) const {
  if (IsSameProof(proof, expected)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(ToString(job_->peers[other]), " has another job secret than ",
                                                  ToString(job_->peers[job_->rank]),
                                                  ": set RONDA_JOB_SECRET to the same value on every rank"));
}

absl::StatusOr<HelloFrame> ControlHandshake::Answer(const ChallengeFrame& challenge) {
  if (challenge.nonce.size() != kNonceBytes) return absl::InvalidArgumentError("control: challenge.nonce is too short");
  parent_nonce_ = challenge.nonce;
  const Nonces nonces = {.parent = parent_nonce_, .child = own_nonce_};
  return HelloFrame{.rank = job_->rank,
                    .size = job_->tree.size,
                    .job_id = job_->job_id,
                    .nonce = own_nonce_,
                    .proof = Proof(kChildsPurpose, nonces, job_->rank)};
}

absl::StatusOr<WelcomeFrame> ControlHandshake::Welcome(const HelloFrame& hello) const {
  if (hello.nonce.size() != kNonceBytes) return absl::InvalidArgumentError("control: hello.nonce is too short");
  if (hello.job_id != job_->job_id || hello.size != job_->tree.size) {
    return absl::InvalidArgumentError("control: a rank of another job has come");
  }
  const bool is_child = hello.rank > 0 && hello.rank < hello.size && job_->tree.Parent(hello.rank) == job_->rank;
  if (!is_child) {
    return absl::InvalidArgumentError(
        absl::StrCat("control: rank ", hello.rank, " has come to rank ", job_->rank, ", which is not its parent"));
  }
  const Nonces nonces = {.parent = own_nonce_, .child = hello.nonce};
  RONDA_RETURN_IF_ERROR(CheckProof(hello.proof, Proof(kChildsPurpose, nonces, hello.rank), hello.rank));
  return WelcomeFrame{.proof = Proof(kParentsPurpose, nonces, hello.rank)};
}

absl::Status ControlHandshake::CheckWelcome(const WelcomeFrame& welcome) const {
  const Nonces nonces = {.parent = parent_nonce_, .child = own_nonce_};
  if (parent_nonce_.empty()) return absl::InvalidArgumentError("control: a welcome without a challenge");
  return CheckProof(welcome.proof, Proof(kParentsPurpose, nonces, job_->rank), job_->tree.Parent(job_->rank));
}

}  // namespace ronda
