#include "runtime/collectives/host_adasum_place.h"

#include <cstdint>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/gradients.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

template <typename T>
absl::Span<const T> SpanOf(const T* first, int count) {
  return {first, static_cast<size_t>(count)};
}

}  // namespace

absl::StatusOr<std::byte*> HostAdasumPlace::Allocate(const Need& need) {
  memory_.reset(new (std::nothrow) std::byte[need.bytes]);
  if (memory_ != nullptr) return memory_.get();
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for the ", need.bytes, " bytes that the Adasum of '", need.label, "' needs"));
}

absl::Status HostAdasumPlace::Pack(const cuda::PackCall& call) {
  for (const cuda::PackSegment& segment : SpanOf(call.segments, call.segment_count)) {
    std::byte* const to = static_cast<std::byte*>(call.buffer) + segment.offset;
    if (segment.residual != nullptr) {
      kernels::ConvertWithFeedback({.src = segment.input,
                                    .src_dtype = call.dtype,
                                    .dst = to,
                                    .dst_dtype = call.wire.dtype,
                                    .count = segment.count,
                                    .scale = call.scale,
                                    .residual = segment.residual});
    } else {
      kernels::Convert(segment.input, call.dtype, to, call.wire.dtype, segment.count, call.scale);
    }
  }
  return absl::OkStatus();
}

absl::Status HostAdasumPlace::Unpack(const cuda::UnpackCall& call) {
  for (const cuda::UnpackSegment& segment : SpanOf(call.segments, call.segment_count)) {
    const std::byte* const from = static_cast<const std::byte*>(call.buffer) + segment.offset;
    kernels::Convert(from, call.wire.dtype, segment.output, call.dtype, segment.count, call.scale);
  }
  return absl::OkStatus();
}

absl::Status HostAdasumPlace::Dots(const cuda::DotsCall& call) {
  for (int pair = 0; pair < call.pair_count; ++pair) {
    const cuda::Extent& a = call.a[pair];
    const kernels::AdasumDots dots = kernels::Dots(a.data, call.b[pair].data, call.dtype, a.count);
    double* const to = call.dots + 3 * int64_t{pair};
    to[0] = dots.ab;
    to[1] = dots.aa;
    to[2] = dots.bb;
  }
  return absl::OkStatus();
}

absl::Status HostAdasumPlace::Combine(const cuda::CombineCall& call) {
  for (int pair = 0; pair < call.pair_count; ++pair) {
    const cuda::Extent& a = call.a[pair];
    const double* const dots = call.dots + 3 * int64_t{pair};
    kernels::Combine({.a = a.data,
                      .b = call.b[pair].data,
                      .weights = kernels::WeightsOf({.ab = dots[0], .aa = dots[1], .bb = dots[2]}),
                      .dst = const_cast<void*>(a.data),
                      .dtype = call.dtype,
                      .count = a.count});
  }
  return absl::OkStatus();
}

}  // namespace ronda
