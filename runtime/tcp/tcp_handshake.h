// SPDX-License-Identifier: Apache-2.0

// The handshake on a connection for data or control messages, in which both ends prove that they know the job's secret.
//
//   callee                              caller
//     | challenge: a nonce                |
//     |---------------------------------->|
//     |   hello: id, nonce, proof         |
//     |<----------------------------------|
//     | welcome: proof                    |
//     |---------------------------------->|
//
// Each proof covers both nonces, so it cannot be replayed in another handshake. Each proof names its purpose, so it
// cannot be reflected to its author as the other end's proof. Messages have fixed lengths, so that no size comes from
// an unauthenticated caller.
#ifndef RONDA_RUNTIME_TCP_TCP_HANDSHAKE_H_
#define RONDA_RUNTIME_TCP_TCP_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/net/proof.h"

namespace ronda {

// What the ranks of a job know, and other callers do not.
struct TcpJob {
  std::string job_id;
  std::string secret;  // may be empty if all ranks are on loopback: then only the job id is proved
};

// Identifies a connection of the job.
struct TcpConnectionId {
  uint32_t level = 0;  // distinguishes several connections of the same pair of ranks
  RankId caller = 0;
  RankId callee = 0;

  bool operator==(const TcpConnectionId&) const = default;
};

inline constexpr size_t kTcpChallengeBytes = kNonceBytes;
inline constexpr size_t kTcpHelloBytes = 3 * sizeof(uint32_t) + kNonceBytes + kProofBytes;
inline constexpr size_t kTcpWelcomeBytes = kProofBytes;

// The called end of a connection. Thread-compatible; `job` must outlive it.
class TcpCallee {
 public:
  // Errors: INTERNAL if the system cannot provide random bytes.
  static absl::StatusOr<TcpCallee> Create(const TcpJob* job, RankId self);

  const std::string& challenge() const { return nonce_; }

  struct Welcome {
    TcpConnectionId id;
    std::string text;  // to be sent to the caller
  };
  // Errors: PERMISSION_DENIED if the caller has not proved that it belongs to the job; INVALID_ARGUMENT if the caller
  // meant to call a different rank. REQUIRES: `hello` has kTcpHelloBytes.
  absl::StatusOr<Welcome> Check(absl::string_view hello) const;

 private:
  TcpCallee(const TcpJob* job, RankId self, std::string nonce) : job_(job), self_(self), nonce_(std::move(nonce)) {}

  const TcpJob* job_;
  RankId self_;
  std::string nonce_;
};

// The calling end of a connection. Thread-compatible; `job` must outlive it.
class TcpCaller {
 public:
  // Errors: INTERNAL if the system cannot provide random bytes.
  static absl::StatusOr<TcpCaller> Create(const TcpJob* job, const TcpConnectionId& id);

  // Returns the hello that answers `challenge`.
  // REQUIRES: `challenge` has kTcpChallengeBytes.
  std::string Answer(absl::string_view challenge);

  // Errors: PERMISSION_DENIED if the other end has not proved that it belongs to the job.
  absl::Status Check(absl::string_view welcome) const;

 private:
  TcpCaller(const TcpJob* job, const TcpConnectionId& id, std::string nonce)
      : job_(job), id_(id), nonce_(std::move(nonce)) {}

  const TcpJob* job_;
  TcpConnectionId id_;
  std::string nonce_;
  std::string callee_nonce_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_HANDSHAKE_H_
