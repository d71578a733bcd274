#include "runtime/collectives/reduce_arithmetic.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce.h"

namespace ronda {
namespace {

char* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }
const char* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }

}  // namespace

ReduceArithmetic::ReduceArithmetic(const ReduceCall& call)
    : call_(call),
      layout_(LayoutOf(call.dtype, call.wire)),
      element_bytes_(SizeOf(call.dtype)),
      contributes_input_itself_(layout_.dtype == call.dtype && layout_.granule_elements == 1 &&
                                call.prescale.IsIdentity()),
      buffer_(call.segments, layout_.granule_elements) {}

void ReduceArithmetic::Pack(size_t begin, size_t n, void* wire) const {
  buffer_.ForEachRun(begin, n, [&](const Run& run) {
    kernels::Convert(InputOf(run), call_.dtype, At(wire, run.offset * layout_.granule_bytes), layout_.dtype, run.count,
                     call_.prescale);
  });
}

void ReduceArithmetic::ReduceToWire(Sources sources, size_t count, void* wire) const {
  kernels::Reduce({.sources = sources,
                   .dtype = layout_.dtype,
                   .op = call_.op,
                   .scale = call_.postscale,
                   .dst = wire,
                   .dst_dtype = layout_.dtype,
                   .count = count});
}

void ReduceArithmetic::ReduceToElements(Sources sources, size_t count, void* elements) const {
  kernels::Reduce({.sources = sources,
                   .dtype = layout_.dtype,
                   .op = call_.op,
                   .scale = call_.postscale,
                   .dst = elements,
                   .dst_dtype = call_.dtype,
                   .count = count});
}

void ReduceArithmetic::Unpack(size_t begin, size_t n, const void* wire) const {
  buffer_.ForEachRun(begin, n, [&](const Run& run) {
    kernels::Convert(At(wire, run.offset * layout_.granule_bytes), layout_.dtype, OutputAt(run, run.begin), call_.dtype,
                     run.count);
  });
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
    return ReduceToElements(sources, run.count, OutputAt(run, run.begin));
  }
  absl::InlinedVector<const void*, 16> shifted(sources.begin(), sources.end());
  for (const void*& source : shifted) source = At(source, (wanted.begin - run.begin) * layout_.granule_bytes);
  ReduceToElements(shifted, wanted.end - wanted.begin, OutputAt(run, wanted.begin));
}

void ReduceArithmetic::DeliverFrom(const Run& run, const void* elements) const {
  const Part wanted = WantedOf(run);
  if (wanted.empty()) return;
  std::memcpy(OutputAt(run, wanted.begin), At(elements, (wanted.begin - run.begin) * element_bytes_),
              (wanted.end - wanted.begin) * element_bytes_);
}

void* ReduceArithmetic::OutputAt(const Run& run, size_t element) const {
  const Segment& segment = buffer_.segments()[run.segment];
  const size_t first = call_.delivery == ReduceCall::Delivery::kAll ? 0 : segment.part_begin;
  return At(segment.output, (element - first) * element_bytes_);
}

}  // namespace ronda
