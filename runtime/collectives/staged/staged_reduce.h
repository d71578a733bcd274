#ifndef RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_REDUCE_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"
#include "runtime/collectives/staged/staging.h"

namespace ronda {

// A reduction of tensors of a device, by a communicator of the host.
//
// Elements leave the device scaled, and in the wire's format if that is 16 bits wide: half as many bytes are copied,
// and the host reduces what is on the wire anyway. Blocks of 8 bits are made on the host, from the tensors as they are,
// and residuals go with them.
//
// Which elements make a round follows from what all ranks know of the call, so that all have the same rounds.
class StagedReduce : public StagedCall {
 public:
  // The call and everything it refers to must outlive it.
  // REQUIRES: the call has no ballot; kMinSlotBytes.
  StagedReduce(const ReduceCall& call, Communicator* host, Staging* staging);

  // A slot has room for a block of any type, with its residuals and its result.
  static constexpr size_t kMinSlotBytes = 8192;

  size_t rounds() const override { return round_begins_.size() - 1; }
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  // Elements of one segment in one round. Offsets are bytes in the slot, multiples of 16.
  struct Piece {
    const Segment* segment;
    size_t begin;  // element of the segment
    size_t count;
    size_t input;
    size_t residual;
    size_t output;  // equals `input` if everybody receives all
  };

  // Those of a piece's elements that this rank receives.
  struct Part {
    size_t begin;  // element of the segment
    size_t count;
  };

  void Plan();
  // How many of `left` elements go into what is left of a slot; 0: a new one is needed.
  size_t CountThatFits(size_t left, size_t used) const;
  Piece PieceAt(const Segment& segment, size_t begin, size_t count, size_t offset) const;
  size_t EndOf(const Piece& piece) const;
  absl::Span<const Piece> PiecesOf(size_t round) const;
  Part PartOf(const Piece& piece) const;

  absl::Status CopyResidualsOut(absl::Span<const Piece> pieces, std::byte* slot);
  absl::Status CopyResidualsBack(absl::Span<const Piece> pieces, std::byte* slot);

  const ReduceCall& call_;
  Communicator* const host_;
  Staging* const staging_;
  const WireLayout layout_;
  const DType staged_;  // as what elements are in the slots
  const bool has_residuals_;
  const bool has_parts_;
  std::vector<Piece> pieces_;
  std::vector<size_t> round_begins_;  // index of each round's first piece; and the number of pieces
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_REDUCE_H_
