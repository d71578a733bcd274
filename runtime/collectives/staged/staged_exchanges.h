// The collectives that move bytes without looking at them, of a device's memory, by a communicator of the host.
#ifndef RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_EXCHANGES_H_
#define RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_EXCHANGES_H_

#include <cstddef>
#include <vector>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/staged/staging.h"

namespace ronda {

// The calls, and everything they refer to, must outlive these objects.

class StagedBroadcast : public StagedCall {
 public:
  StagedBroadcast(const BroadcastCall& call, const Members& members, Communicator* host, Staging* staging)
      : call_(call), is_root_(members.IncludeSelf() && members.self() == call.root), host_(host), staging_(staging) {}

  size_t rounds() const override;
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  size_t BytesOf(size_t round) const;
  std::byte* DataOf(size_t round) const;

  const BroadcastCall& call_;
  const bool is_root_;
  Communicator* const host_;
  Staging* const staging_;
};

// In each round every member gives the next bytes of its input, up to as many as all of which have room in a slot.
class StagedAllgather : public StagedCall {
 public:
  StagedAllgather(const AllgatherCall& call, const Members& members, Communicator* host, Staging* staging);

  size_t rounds() const override { return rounds_; }
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  const AllgatherCall& call_;
  const Members& members_;
  Communicator* const host_;
  Staging* const staging_;
  const size_t share_;  // a member's bytes in a round, at most
  const size_t rounds_;
};

// In each round every member gives every member the next bytes of its piece.
class StagedAlltoall : public StagedCall {
 public:
  StagedAlltoall(const AlltoallCall& call, const Members& members, Communicator* host, Staging* staging);

  size_t rounds() const override { return rounds_; }
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  size_t PieceBytes(int sender, int receiver) const { return call_.bytes[sender * members_.size() + receiver]; }
  // Where in a slot the pieces begin that this rank receives.
  size_t ReceivedAt() const { return share_ * members_.size(); }

  const AlltoallCall& call_;
  const Members& members_;
  Communicator* const host_;
  Staging* const staging_;
  const size_t share_;  // a piece's bytes in a round, at most
  const size_t rounds_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_EXCHANGES_H_
