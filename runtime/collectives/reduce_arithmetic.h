#ifndef RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_
#define RONDA_RUNTIME_COLLECTIVES_REDUCE_ARITHMETIC_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// Whether `call` is of the kind that most small ones are: all of one tensor, to all, and a contribution is the memory
// of the tensor itself. ReduceArithmetic is for these too; ReducePlain is the same in a third of the time, where that
// counts.
bool IsPlain(const ReduceCall& call);

// Reduces the members' contributions, in the order of the group, into the output.
// REQUIRES: IsPlain(call).
void ReducePlain(const ReduceCall& call, absl::Span<const void* const> sources);

// The arithmetic of one ReduceCall on one rank, shared by all backends so that their results agree bit for bit: what
// the rank contributes, how contributions become the result, and which of it the rank receives. Positions and numbers
// are in granules of the call's wire (wire_layout.h) unless they are said to be elements.
//
// Packing updates the segments' residuals: each granule is to be packed once. Otherwise immutable. The call must
// outlive it.
class ReduceArithmetic {
 public:
  using Run = LogicalBuffer::Run;
  // Where the members' contributions lie, in the order of the group.
  using Sources = absl::Span<const void* const>;

  // `memory`: as LogicalBuffer's.
  ReduceArithmetic(const ReduceCall& call, LogicalBuffer::Memory* memory);

  const ReduceCall& call() const { return call_; }
  const WireLayout& layout() const { return layout_; }
  const LogicalBuffer& buffer() const { return buffer_; }
  size_t granules() const { return buffer_.granules(); }
  size_t wire_bytes() const { return buffer_.granules() * layout_.granule_bytes; }
  size_t input_bytes() const { return buffer_.elements() * element_bytes_; }

  // True if the contribution is the input itself, so that it can be reduced where it lies.
  bool ContributesInputItself() const { return contributes_input_itself_; }
  const void* InputOf(const Run& run) const {
    return static_cast<const char*>(buffer_.segments()[run.segment].input) + run.begin * element_bytes_;
  }

  // True if the result travels as the elements of the outputs, so that it can be sent from there and received there.
  bool DeliversWireItself() const { return layout_.dtype == call_.dtype && !layout_.fp8.has_value(); }
  // Where the run's result goes. REQUIRES: the call delivers all to all.
  void* OutputOf(const Run& run) const { return OutputAt(run.segment, run.begin); }

  // Writes the contribution of granules [begin, begin + n) to `wire`.
  void Pack(size_t begin, size_t n, void* wire) const;

  // Reduces `count` elements that begin a granule, into granules again.
  void ReduceToWire(Sources sources, size_t count, void* wire) const;

  // The same into elements, the values that the granules hold. If a granule is more than an element, `count` must not
  // end within one, unless its segment ends there.
  void ReduceToElements(Sources sources, size_t count, void* elements) const;

  // Widens what this rank wants of granules [begin, begin + n) of the result, which lie at `wire`, into the outputs.
  // Exact.
  void Unpack(size_t begin, size_t n, const void* wire) const;

  // Elements [begin, end) of a segment.
  struct Part {
    size_t begin;
    size_t end;
    bool empty() const { return begin >= end; }
  };
  // What of a run's result this rank receives.
  Part WantedOf(const Run& run) const;

  // Reduces what this rank wants of `run` into the output. `sources` lie where the run begins.
  void Deliver(const Run& run, Sources sources) const;

  // Copies what this rank wants of `run` from the elements of the run's result.
  void DeliverFrom(const Run& run, const void* elements) const;

 private:
  void PackRun(const Run& run, void* wire) const;
  void ReduceBlocks(Sources sources, size_t count, void* dst, std::optional<DType> dst_dtype) const;
  void ReduceElements(Sources sources, size_t count, void* dst, DType dst_dtype) const;
  // Calls visit(granules, piece, skipped) for the pieces of what this rank wants of the run, in order: the elements of
  // the granules that hold it, its own, and the bytes on the wire from the beginning of the run to these granules.
  template <typename Visit>
  void ForEachWantedPiece(const Run& run, const Visit& visit) const;
  // The granules to take next, in elements of the segment, for what is wanted of the run.
  Part NextGranules(const Run& run, Part wanted) const;
  // The elements of a result at `wire`.
  void Widen(const void* wire, size_t count, void* elements) const;
  // Reduces `granules`, at which `sources` lie, and delivers `piece` of them.
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
