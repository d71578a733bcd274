#ifndef RONDA_KERNELS_CUDA_BALLOT_H_
#define RONDA_KERNELS_CUDA_BALLOT_H_

#include <cstdint>
#include <optional>

#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/host_device.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// A VoteCount as the device counts it: by bits, whatever the type of the votes.
struct Ballot {
  const uint8_t* votes = nullptr;
  int count = 0;  // 0: no vote
  int bytes = 0;  // of one vote
  uint64_t mask = 0;
  uint64_t stay = 0;  // the bits under the mask of a vote to stay; not under it: nobody stays
};

RONDA_HOST_DEVICE inline bool Stays(const Ballot& ballot, int index) {
  uint64_t bits = 0;
  for (int i = 0; i < ballot.bytes; ++i) {
    bits |= static_cast<uint64_t>(ballot.votes[static_cast<int64_t>(index) * ballot.bytes + i]) << (8 * i);
  }
  return (bits & ballot.mask) == ballot.stay;
}

// Whether any vote is not to stay. All threads of the block take part.
template <class Block>
RONDA_HOST_DEVICE inline bool IsLost(const Block& block, const Ballot& ballot) {
  if (ballot.count == 0) return false;
  return block.Any([&](int thread) {
    bool lost = false;
    for (int i = thread; i < ballot.count; i += kThreads) lost |= !Stays(ballot, i);
    return lost;
  });
}

// Writes the decision. A launch of its own, after all others of the call: so their effects come before.
struct DecideBody {
  Ballot ballot;
  uint32_t* decision;

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    const bool lost = IsLost(block, ballot);
    block.ForEachThread([&](int thread) {
      if (thread == 0) block.Publish(decision, lost ? 2 : 1);
    });
  }
};

// The bits of `value` as an element of `dtype`; nullopt if it is not one exactly.
std::optional<uint64_t> BitsOf(double value, DType dtype);

// What counts these votes, which are elements of `dtype`.
Ballot BallotOf(const VoteCount& vote, DType dtype);

// What one vote is, on this wire.
constexpr DType VoteDType(const Wire& wire) { return wire.blocks == Wire::Blocks::kNone ? wire.dtype : DType::kUint8; }

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_BALLOT_H_
