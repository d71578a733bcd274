// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_FILE_EXCHANGE_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_FILE_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// Exchanges open files between the ranks of one host. The ranks are processes, or threads of one process.
//
// Each rank has a datagram socket with an abstract name (unix(7)), to which the others send their files as ancillary
// data (SCM_RIGHTS). This is the only way to send CUDA's files: opening them through /proc/PID/fd would open the
// driver's device again, without the memory. Other users of the machine can see the name and send datagrams. So each
// rank generates a secret, sends it to the other ranks over the job's authenticated connections, and drops datagrams
// without it.
//
// Thread-compatible.
class FileExchange {
 public:
  // Where a rank receives files. A plain struct, so that it can be sent to the other ranks.
  struct Address {
    std::array<char, 64> name = {};  // of the socket, without the leading zero; zero-terminated
    std::array<uint8_t, 16> secret = {};
  };

  // Errors: system errors, with the name of the call.
  static absl::StatusOr<FileExchange> Open();

  const Address& address() const { return address_; }

  // The limits of an exchange.
  struct Wait {
    absl::Duration deadline;
    std::function<absl::Status()> job_failure;  // the job's first failure; called during the wait
  };

  // Sends `files`, one or two of them, to all other ranks, and returns the files of all ranks, by position; this rank's
  // own are duplicates. `addresses` and `ranks` have the addresses of all ranks, and their numbers for messages. All of
  // these ranks must make this call.
  // Errors: DEADLINE_EXCEEDED that names a rank whose files have not arrived; the job's failure; system errors.
  absl::StatusOr<std::vector<std::vector<UniqueFd>>> Exchange(absl::Span<const UniqueFd> files,
                                                              absl::Span<const Address> addresses,
                                                              absl::Span<const RankId> ranks, int self,
                                                              const Wait& wait) const;

 private:
  FileExchange(UniqueFd socket, const Address& address) : socket_(std::move(socket)), address_(address) {}

  UniqueFd socket_;
  Address address_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_FILE_EXCHANGE_H_
