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

// Sends open files between the ranks of one host, which are processes or threads of one process.
//
// Each rank has a datagram socket with an abstract name (unix(7)), and sends the others its files in ancillary data
// (SCM_RIGHTS). It is the only way to send CUDA's files: /proc/PID/fd would open the driver's device once more, without
// the memory. Other users of the machine can see the name and send datagrams. So each rank makes a secret, which it
// sends to the other ranks over the authenticated connections of the job. A rank drops datagrams without its secret.
//
// Thread-compatible.
class FileExchange {
 public:
  // Where a rank receives files. It is a plain struct, so that it can be sent to the other ranks.
  struct Address {
    std::array<char, 64> name = {};  // of the socket, without the zero in front; ends with a zero
    std::array<uint8_t, 16> secret = {};
  };

  // Errors: the errors of the system, with the call's name.
  static absl::StatusOr<FileExchange> Open();

  const Address& address() const { return address_; }

  // The limits of an exchange.
  struct Wait {
    absl::Duration deadline;
    std::function<absl::Status()> job_failure;  // the job's first failure; called during the wait
  };

  // Sends `files` to all other ranks, and returns the files of all ranks, by position; the own ones are copies.
  // `addresses` are the addresses of all ranks, in the order in which `ranks` numbers them for messages. All of these
  // ranks must make this call. A rank sends one or two files.
  // Errors: DEADLINE_EXCEEDED that names a rank whose files have not come; the job's failure; the errors of the system.
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
