// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/reduce_arithmetic.h"

#include <algorithm>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/reduce.h"

namespace ronda {
namespace {

char* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }
const char* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }

// Returns whether a rank contributes the memory of its tensors unchanged.
bool ContributesInput(const ReduceCall& call) {
  return WireDType(call.dtype, call.wire) == call.dtype && !Fp8FormatOf(call.dtype, call.wire).has_value() &&
         call.prescale.IsIdentity();
}

void ReduceInto(const ReduceCall& call, absl::Span<const void* const> sources, DType dtype, size_t count, void* dst,
                DType dst_dtype) {
  kernels::Reduce({.sources = sources,
                   .dtype = dtype,
                   .op = call.op,
                   .scale = call.postscale,
                   .dst = dst,
                   .dst_dtype = dst_dtype,
                   .count = count});
}

}  // namespace

bool IsPlain(const ReduceCall& call) {
  return call.segments.size() == 1 && call.delivery == ReduceCall::Delivery::kAll && ContributesInput(call);
}

void ReducePlain(const ReduceCall& call, absl::Span<const void* const> sources) {
  const Segment& tensor = call.segments.front();
  if (tensor.count > 0) ReduceInto(call, sources, call.dtype, tensor.count, tensor.output, call.dtype);
}

ReduceArithmetic::ReduceArithmetic(const ReduceCall& call, LogicalBuffer::Memory* memory)
    : call_(call),
      layout_(LayoutOf(call.dtype, call.wire)),
      element_bytes_(SizeOf(call.dtype)),
      contributes_input_itself_(ContributesInput(call)),
      buffer_(call.segments, layout_.granule_elements, memory) {}

void ReduceArithmetic::Pack(size_t begin, size_t n, void* wire) const {
  buffer_.ForEachRun(begin, n, [&](const Run& run) { PackRun(run, At(wire, run.offset * layout_.granule_bytes)); });
}

void ReduceArithmetic::PackRun(const Run& run, void* wire) const {
  float* const residuals = buffer_.segments()[run.segment].residual;
  float* const residual = residuals == nullptr ? nullptr : residuals + run.begin;
  if (layout_.fp8.has_value()) {
    kernels::EncodeFp8({.src = InputOf(run),
                        .src_dtype = call_.dtype,
                        .count = run.count,
                        .scale = call_.prescale,
                        .format = *layout_.fp8,
                        .blocks = wire,
                        .residual = residual});
  } else if (residual != nullptr && layout_.dtype != call_.dtype) {
    kernels::ConvertWithFeedback({.src = InputOf(run),
                                  .src_dtype = call_.dtype,
                                  .dst = wire,
                                  .dst_dtype = layout_.dtype,
                                  .count = run.count,
                                  .scale = call_.prescale,
                                  .residual = residual});
  } else {
    kernels::Convert(InputOf(run), call_.dtype, wire, layout_.dtype, run.count, call_.prescale);
  }
}

void ReduceArithmetic::ReduceToWire(Sources sources, size_t count, void* wire) const {
  if (layout_.fp8.has_value()) return ReduceBlocks(sources, count, wire, std::nullopt);
  ReduceElements(sources, count, wire, layout_.dtype);
}

void ReduceArithmetic::ReduceToElements(Sources sources, size_t count, void* elements) const {
  if (layout_.fp8.has_value()) return ReduceBlocks(sources, count, elements, call_.dtype);
  ReduceElements(sources, count, elements, call_.dtype);
}

void ReduceArithmetic::ReduceBlocks(Sources sources, size_t count, void* dst, std::optional<DType> dst_dtype) const {
  kernels::ReduceFp8({.sources = sources,
                      .format = *layout_.fp8,
                      .op = call_.op,
                      .scale = call_.postscale,
                      .count = count,
                      .dst = dst,
                      .dst_dtype = dst_dtype});
}

void ReduceArithmetic::ReduceElements(Sources sources, size_t count, void* dst, DType dst_dtype) const {
  ReduceInto(call_, sources, layout_.dtype, count, dst, dst_dtype);
}

void ReduceArithmetic::Unpack(size_t begin, size_t n, const void* wire) const {
  buffer_.ForEachRun(begin, n, [&](const Run& run) {
    const char* const from = At(wire, run.offset * layout_.granule_bytes);
    ForEachWantedPiece(run, [&](Part granules, Part piece, size_t skipped) {
      const size_t count = granules.end - granules.begin;
      void* const output = OutputAt(run.segment, piece.begin);
      if (piece.end - piece.begin == count) return Widen(At(from, skipped), count, output);
      alignas(64) char elements[kernels::kFp8BlockElements * sizeof(double)];
      Widen(At(from, skipped), count, elements);
      std::memcpy(output, At(elements, (piece.begin - granules.begin) * element_bytes_),
                  (piece.end - piece.begin) * element_bytes_);
    });
  });
}

void ReduceArithmetic::Widen(const void* wire, size_t count, void* elements) const {
  if (layout_.fp8.has_value()) return kernels::DecodeFp8(wire, *layout_.fp8, elements, call_.dtype, count);
  kernels::Convert(wire, layout_.dtype, elements, call_.dtype, count);
}

template <typename Visit>
void ReduceArithmetic::ForEachWantedPiece(const Run& run, const Visit& visit) const {
  const Part wanted = WantedOf(run);
  for (size_t at = wanted.begin; at < wanted.end;) {
    const Part granules = NextGranules(run, {.begin = at, .end = wanted.end});
    const Part piece = {.begin = at, .end = std::min(granules.end, wanted.end)};
    visit(granules, piece, (granules.begin - run.begin) / layout_.granule_elements * layout_.granule_bytes);
    at = piece.end;
  }
}

ReduceArithmetic::Part ReduceArithmetic::WantedOf(const Run& run) const {
  const size_t end = run.begin + run.count;
  if (call_.delivery == ReduceCall::Delivery::kAll) return {.begin = run.begin, .end = end};
  const Segment& segment = buffer_.segments()[run.segment];
  return {.begin = std::max(run.begin, segment.part_begin),
          .end = std::min(end, segment.part_begin + segment.part_count)};
}

void ReduceArithmetic::Deliver(const Run& run, Sources sources) const {
  const Part wanted = WantedOf(run);
  if (wanted.empty()) return;
  if (wanted.begin == run.begin && wanted.end == run.begin + run.count) {
    return ReduceToElements(sources, run.count, OutputAt(run.segment, run.begin));
  }
  ForEachWantedPiece(run, [&](Part granules, Part piece, size_t skipped) {
    absl::InlinedVector<const void*, 16> shifted(sources.begin(), sources.end());
    for (const void*& source : shifted) source = At(source, skipped);
    DeliverGranules(run, granules, piece, shifted);
  });
}

ReduceArithmetic::Part ReduceArithmetic::NextGranules(const Run& run, Part wanted) const {
  const size_t granule = layout_.granule_elements;
  const size_t run_end = run.begin + run.count;
  const size_t begin = wanted.begin / granule * granule;
  // If the wanted part begins with whole granules, takes all of these at once. Otherwise takes only the first granule,
  // of which the part has only some elements.
  const size_t whole_end = wanted.end == run_end ? run_end : wanted.end / granule * granule;
  if (begin == wanted.begin && whole_end > begin) return {.begin = begin, .end = whole_end};
  return {.begin = begin, .end = std::min(run_end, begin + granule)};
}

void ReduceArithmetic::DeliverGranules(const Run& run, Part granules, Part piece, Sources sources) const {
  void* const output = OutputAt(run.segment, piece.begin);
  if (piece.begin == granules.begin && piece.end == granules.end) {
    return ReduceToElements(sources, granules.end - granules.begin, output);
  }
  alignas(64) char elements[kernels::kFp8BlockElements * sizeof(double)];
  ReduceToElements(sources, granules.end - granules.begin, elements);
  std::memcpy(output, At(elements, (piece.begin - granules.begin) * element_bytes_),
              (piece.end - piece.begin) * element_bytes_);
}

void ReduceArithmetic::DeliverFrom(const Run& run, const void* elements) const {
  const Part wanted = WantedOf(run);
  if (wanted.empty()) return;
  std::memcpy(OutputAt(run.segment, wanted.begin), At(elements, (wanted.begin - run.begin) * element_bytes_),
              (wanted.end - wanted.begin) * element_bytes_);
}

void* ReduceArithmetic::OutputAt(size_t segment, size_t element) const {
  const Segment& to = buffer_.segments()[segment];
  const size_t first = call_.delivery == ReduceCall::Delivery::kAll ? 0 : to.part_begin;
  return At(to.output, (element - first) * element_bytes_);
}

}  // namespace ronda
