// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_PEER_EXCHANGE_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_PEER_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/peer/peer_group.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Executes the collectives of one group of a PeerCommunicator that only move bytes. They proceed in rounds: each member
// copies the next bytes of its input into its slot, the members meet, and each copies the bytes meant for it from the
// others' slots. A member's bytes for itself bypass the slots.
//
// Thread-compatible.
class PeerExchange {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
  };

  // `group` must outlive the object.
  PeerExchange(Options options, PeerGroup* group) : options_(std::move(options)), group_(group) {}

  absl::Status Broadcast(const BroadcastCall& call);
  absl::Status Allgather(const AllgatherCall& call);
  absl::Status Alltoall(const AlltoallCall& call);

 private:
  // Runs rounds of up to `share` bytes until `most` bytes of every piece have been moved. Each round calls put(begin,
  // slot) with this member's slot, lets the members meet, and calls get(begin, slot) with the first member's slot.
  // `begin` is the offset in each piece.
  using Put = absl::FunctionRef<absl::Status(size_t begin, std::byte* slot)>;
  using Get = absl::FunctionRef<absl::Status(size_t begin, const PeerGroup::Slot& slot)>;
  absl::Status RunRounds(const CallInfo& info, size_t most, size_t share, Put put, Get get);
  absl::Status Copy(void* to, const void* from, size_t bytes);

  const Options options_;
  PeerGroup* const group_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_EXCHANGE_H_
