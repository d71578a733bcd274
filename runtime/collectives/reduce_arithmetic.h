// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_
#define RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// Returns whether `call` is plain: it reduces a single tensor to all ranks, and the tensor's own memory is the
// contribution. Most small calls are plain. ReduceArithmetic can execute them too, but ReducePlain() takes a third of
// the time.
bool IsPlain(const ReduceCall& call);

// Reduces the members' contributions in group order, and writes the result to the output.
// REQUIRES: IsPlain(call).
void ReducePlain(const ReduceCall& call, absl::Span<const void* const> sources);

// Does the arithmetic of one ReduceCall on one rank: computes the rank's contribution, reduces all contributions to the
// result, and delivers the rank's part of it. Every backend uses this class, so that all give the same bits.
//
// Terms: a rank's *contribution* is its scaled input in the wire format. To *pack* is to write the contribution.
// *Sources* are all members' contributions to the same granules. To *deliver* is to write a result to the outputs.
// Positions and counts are in granules (reduce_layout.h), unless a comment says elements.
//
// Packing updates the segments' residuals, so each granule must be packed exactly once. Otherwise the object is
// immutable. The call must outlive it.
class ReduceArithmetic {
 public:
  using Run = LogicalBuffer::Run;
  // The addresses of the members' contributions, in group order.
  using Sources = absl::Span<const void* const>;

  // `memory` is passed on to the LogicalBuffer.
  ReduceArithmetic(const ReduceCall& call, LogicalBuffer::Memory* memory);

  const ReduceCall& call() const { return call_; }
  const WireLayout& layout() const { return layout_; }
  const LogicalBuffer& buffer() const { return buffer_; }
  size_t granules() const { return buffer_.granules(); }
  size_t wire_bytes() const { return buffer_.granules() * layout_.granule_bytes; }
  size_t input_bytes() const { return buffer_.elements() * element_bytes_; }

  // Returns whether this rank's contribution has the same bytes as its input, which can then be reduced without
  // packing.
  bool ContributesInputItself() const { return contributes_input_itself_; }
  const void* InputOf(const Run& run) const {
    return static_cast<const char*>(buffer_.segments()[run.segment].input) + run.begin * element_bytes_;
  }

  // Returns whether the outputs have the wire format, so that results can be sent from them and received into them.
  bool DeliversWireItself() const { return layout_.dtype == call_.dtype && !layout_.fp8.has_value(); }
  // Returns the output address of the run's result. REQUIRES: the call delivers everything to all ranks.
  void* OutputOf(const Run& run) const { return OutputAt(run.segment, run.begin); }

  // Writes the contribution of granules [begin, begin + n) to `wire`.
  void Pack(size_t begin, size_t n, void* wire) const;

  // Reduces `count` elements, and writes the result to `wire` as granules. The first element must begin a granule.
  void ReduceToWire(Sources sources, size_t count, void* wire) const;

  // Reduces `count` elements, and writes the result to `elements`, with the same values as if it were converted to
  // granules and back. If granules have several elements, the last element must end a granule or the segment.
  void ReduceToElements(Sources sources, size_t count, void* elements) const;

  // Writes this rank's part of granules [begin, begin + n) of the result, which are at `wire`, to the outputs. The
  // conversion is exact.
  void Unpack(size_t begin, size_t n, const void* wire) const;

  // Elements [begin, end) of a segment.
  struct Part {
    size_t begin;
    size_t end;
    bool empty() const { return begin >= end; }
  };
  // Returns the elements of the run's result that this rank receives.
  Part WantedOf(const Run& run) const;

  // Reduces this rank's part of `run`, and writes it to the output. Each of `sources` points to the start of the run.
  void Deliver(const Run& run, Sources sources) const;

  // Copies this rank's part of `run` to the output. `elements` points to all elements of the run's result.
  void DeliverFrom(const Run& run, const void* elements) const;

 private:
  void PackRun(const Run& run, void* wire) const;
  void ReduceBlocks(Sources sources, size_t count, void* dst, std::optional<DType> dst_dtype) const;
  void ReduceElements(Sources sources, size_t count, void* dst, DType dst_dtype) const;
  // Divides this rank's part of the run into pieces, and calls visit(granules, piece, skipped) for each, in order.
  // `piece` is the range of the piece's elements, and `granules` the range of all elements in the piece's granules.
  // `skipped` is the number of bytes on the wire from the start of the run to these granules.
  template <typename Visit>
  void ForEachWantedPiece(const Run& run, const Visit& visit) const;
  // Returns the range of the next granules to visit for `wanted`, in elements of the segment.
  Part NextGranules(const Run& run, Part wanted) const;
  // Converts `count` elements of a result from the wire format to the call's dtype.
  void Widen(const void* wire, size_t count, void* elements) const;
  // Reduces `granules`, and delivers only the elements of `piece`. `sources` are the members' contributions to
  // `granules`.
  void DeliverGranules(const Run& run, Part granules, Part piece, Sources sources) const;
  void* OutputAt(size_t segment, size_t element) const;

  const ReduceCall& call_;
  const WireLayout layout_;
  const size_t element_bytes_;
  const bool contributes_input_itself_;
  const LogicalBuffer buffer_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_
