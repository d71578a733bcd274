// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_
#define RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// Returns whether `call` reduces a single tensor to all ranks, and the contribution is the tensor's own memory. Most
// small calls are plain (IsPlain). ReduceArithmetic could also carry out plain calls, but ReducePlain takes a third of
// its time.
bool IsPlain(const ReduceCall& call);

// Reduces the members' contributions, in the order of the group, and writes the result to the output.
// REQUIRES: IsPlain(call).
void ReducePlain(const ReduceCall& call, absl::Span<const void* const> sources);

// Does the arithmetic of one ReduceCall on one rank. Every backend uses this class, so that the results of all backends
// have the same bits. ReduceArithmetic makes the rank's contribution, reduces all contributions to the result, and
// delivers the rank's part of the result.
//
// Vocabulary: a rank's *contribution* is its scaled input in the wire's format. To *pack* means to write the
// contribution. *Sources* are all members' contributions to the same granules. To *deliver* means to write a result to
// the outputs. Positions and numbers are in granules (reduce_layout.h), unless a comment says that they are in
// elements.
//
// Packing updates the segments' residuals, so each granule must be packed once. Apart from the residuals, nothing
// changes after construction. The call must outlive this object.
class ReduceArithmetic {
 public:
  using Run = LogicalBuffer::Run;
  // The addresses of the members' contributions, in the order of the group.
  using Sources = absl::Span<const void* const>;

  // `memory` is passed on to the LogicalBuffer.
  ReduceArithmetic(const ReduceCall& call, LogicalBuffer::Memory* memory);

  const ReduceCall& call() const { return call_; }
  const WireLayout& layout() const { return layout_; }
  const LogicalBuffer& buffer() const { return buffer_; }
  size_t granules() const { return buffer_.granules(); }
  size_t wire_bytes() const { return buffer_.granules() * layout_.granule_bytes; }
  size_t input_bytes() const { return buffer_.elements() * element_bytes_; }

  // Returns true if this rank's contribution has the same bytes as its input. The input can then be reduced directly,
  // without a packed copy.
  bool ContributesInputItself() const { return contributes_input_itself_; }
  const void* InputOf(const Run& run) const {
    return static_cast<const char*>(buffer_.segments()[run.segment].input) + run.begin * element_bytes_;
  }

  // Returns true if the outputs have the wire's format. If the outputs have the wire's format, results can be sent from
  // the outputs, and received into the outputs.
  bool DeliversWireItself() const { return layout_.dtype == call_.dtype && !layout_.fp8.has_value(); }
  // Returns the address to which the run's result is delivered. REQUIRES: the call delivers everything to all ranks.
  void* OutputOf(const Run& run) const { return OutputAt(run.segment, run.begin); }

  // Writes the contribution of granules [begin, begin + n) to `wire`.
  void Pack(size_t begin, size_t n, void* wire) const;

  // Reduces `count` elements, and writes the result to `wire` in the form of granules. The first element must begin a
  // granule.
  void ReduceToWire(Sources sources, size_t count, void* wire) const;

  // Reduces `count` elements, and writes the result to `elements`. The values are the same as if the result were
  // converted to granules and back. If granules have several elements, `count` must end at the end of a granule or of
  // the segment.
  void ReduceToElements(Sources sources, size_t count, void* elements) const;

  // Writes this rank's part of granules [begin, begin + n) of the result to the outputs. `wire` points to these
  // granules. The conversion is exact.
  void Unpack(size_t begin, size_t n, const void* wire) const;

  // Elements [begin, end) of a segment.
  struct Part {
    size_t begin;
    size_t end;
    bool empty() const { return begin >= end; }
  };
  // Returns the elements of the run's result that this rank receives.
  Part WantedOf(const Run& run) const;

  // Reduces this rank's part of `run`, and writes it to the output. Each of `sources` points to the beginning of the
  // run.
  void Deliver(const Run& run, Sources sources) const;

  // Copies this rank's part of `run` to the output. `elements` are all elements of the run's result.
  void DeliverFrom(const Run& run, const void* elements) const;

 private:
  void PackRun(const Run& run, void* wire) const;
  void ReduceBlocks(Sources sources, size_t count, void* dst, std::optional<DType> dst_dtype) const;
  void ReduceElements(Sources sources, size_t count, void* dst, DType dst_dtype) const;
  // Divides this rank's part of the run into pieces. Calls visit(granules, piece, skipped) for each piece, in order.
  // `piece` is the range of the piece's elements. `granules` is the range of all elements in the piece's granules.
  // `skipped` is the number of bytes on the wire between the beginning of the run and these granules.
  template <typename Visit>
  void ForEachWantedPiece(const Run& run, const Visit& visit) const;
  // Returns the range of the next granules to visit for `wanted`, in elements of the segment.
  Part NextGranules(const Run& run, Part wanted) const;
  // Converts `count` elements of a result from the wire's format to the call's type.
  void Widen(const void* wire, size_t count, void* elements) const;
  // Reduces `granules`, and delivers only the elements of `piece`. `sources` point to the members' contributions to
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
