// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_REDUCE_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"
#include "runtime/collectives/staged/staging.h"

namespace ronda {

// Executes a reduction of a device's tensors through a host communicator.
//
// The device scales the elements before it copies them to the host. For a 16-bit wire format, it also converts them:
// this halves the bytes to copy, and the host reduces this format anyway. 8-bit blocks are encoded on the host from the
// unchanged tensors, so the tensors' residuals are also copied to the host.
//
// The division of a call into rounds depends only on facts that are the same on all ranks, so all ranks have the same
// rounds.
class StagedReduce : public StagedCall {
 public:
  // `call`, and all objects that it refers to, must outlive this object. REQUIRES: slots have at least kMinSlotBytes
  // bytes.
  StagedReduce(const ReduceCall& call, Communicator* host, Staging* staging);

  // Enough for a block of any type with its residuals and its result.
  static constexpr size_t kMinSlotBytes = 8192;

  size_t rounds() const override { return round_begins_.size() - 1; }
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  // Elements of one segment in one round. Offsets are in bytes from the start of the slot, and multiples of 16.
  struct Piece {
    const Segment* segment;
    size_t begin;  // element of the segment
    size_t count;
    size_t input;
    size_t residual;
    size_t output;  // equals `input` if all ranks receive the whole result
  };

  // The elements of a piece that this rank receives.
  struct Part {
    size_t begin;  // element of the segment
    size_t count;
  };

  void Plan();
  // Returns how many of the `left` elements fit into the rest of a slot; if 0, a new round must start.
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
  const DType staged_;  // the type of elements in the slots
  const bool has_residuals_;
  const bool has_parts_;
  std::vector<Piece> pieces_;
  std::vector<size_t> round_begins_;  // index of each round's first piece; the last entry is the number of pieces
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_STAGED_STAGED_REDUCE_H_
