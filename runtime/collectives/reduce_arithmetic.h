// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_
#define RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// Whether `call` reduces one tensor to all ranks and contributes the tensor's own memory, as most small calls do.
// ReduceArithmetic handles these calls too; ReducePlain takes a third of its time, which matters for small tensors.
bool IsPlain(const ReduceCall& call);

// Reduces the members' contributions, in the order of the group, into the output.
// REQUIRES: IsPlain(call).
void ReducePlain(const ReduceCall& call, absl::Span<const void* const> sources);

// The arithmetic of one ReduceCall on one rank. All backends share it, so that their results agree bit for bit. It
// makes the rank's contribution, reduces contributions to the result, and delivers the rank's part of the result.
//
// Vocabulary: the *contribution* is the rank's scaled input in the wire's format. To *pack* is to write it. *Sources*
// are the members' contributions to the same granules. To *deliver* is to write a result to the outputs. Positions and
// numbers are in granules of the wire (reduce_layout.h) unless a comment says elements.
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

  // True if the contribution is the input itself. It can then be reduced in place of a packed copy.
  bool ContributesInputItself() const { return contributes_input_itself_; }
  const void* InputOf(const Run& run) const {
    return static_cast<const char*>(buffer_.segments()[run.segment].input) + run.begin * element_bytes_;
  }

  // True if the result travels in the format of the outputs. It can then be sent from the outputs and received into
  // them.
  bool DeliversWireItself() const { return layout_.dtype == call_.dtype && !layout_.fp8.has_value(); }
  // Returns the address to which the run's result is delivered. REQUIRES: the call delivers all to all.
  void* OutputOf(const Run& run) const { return OutputAt(run.segment, run.begin); }

  // Writes the contribution of granules [begin, begin + n) to `wire`.
  void Pack(size_t begin, size_t n, void* wire) const;

  // Reduces `count` elements, the first of which begins a granule, to granules.
  void ReduceToWire(Sources sources, size_t count, void* wire) const;

  // Reduces `count` elements to the values that the granules would hold, as elements. If a granule has several
  // elements, `count` must not end inside a granule unless the segment ends there.
  void ReduceToElements(Sources sources, size_t count, void* elements) const;

  // Widens this rank's part of granules [begin, begin + n) of the result, which lie at `wire`, into the outputs. The
  // conversion is exact.
  void Unpack(size_t begin, size_t n, const void* wire) const;

  // Elements [begin, end) of a segment.
  struct Part {
    size_t begin;
    size_t end;
    bool empty() const { return begin >= end; }
  };
  // The elements of the run's result that this rank receives.
  Part WantedOf(const Run& run) const;

  // Reduces this rank's part of `run` into the output. `sources` point to the beginning of the run.
  void Deliver(const Run& run, Sources sources) const;

  // Copies this rank's part of `run` from `elements`, the elements of the run's result.
  void DeliverFrom(const Run& run, const void* elements) const;

 private:
  void PackRun(const Run& run, void* wire) const;
  void ReduceBlocks(Sources sources, size_t count, void* dst, std::optional<DType> dst_dtype) const;
  void ReduceElements(Sources sources, size_t count, void* dst, DType dst_dtype) const;
  // Calls visit(granules, piece, skipped) in order for the pieces of this rank's part of the run. `piece` has elements
  // of the part. `granules` has all elements of the granules that hold the piece. `skipped` is the number of bytes on
  // the wire from the beginning of the run to these granules.
  template <typename Visit>
  void ForEachWantedPiece(const Run& run, const Visit& visit) const;
  // Returns the next granules to visit for `wanted`, as elements of the segment.
  Part NextGranules(const Run& run, Part wanted) const;
  // Converts `count` elements of a result from the wire's format to the call's type.
  void Widen(const void* wire, size_t count, void* elements) const;
  // Reduces `granules`, to which `sources` point, and delivers `piece` of them.
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
