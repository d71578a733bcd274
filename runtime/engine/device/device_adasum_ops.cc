// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_adasum_ops.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

// The maximum number of pairs per kernel launch. More pairs would only enlarge the scratch memory.
constexpr int kPairsAtOnce = 448;

// Returns the part of `call` that begins with pair `begin` and fits into one launch.
cuda::DotsCall Part(const cuda::DotsCall& call, int begin, double* scratch) {
  return {.a = call.a + begin,
          .b = call.b + begin,
          .pair_count = std::min(call.pair_count - begin, kPairsAtOnce),
          .dtype = call.dtype,
          .dots = call.dots + 3 * int64_t{begin},
          .scratch = scratch};
}

}  // namespace

absl::StatusOr<std::byte*> DeviceAdasumOps::Allocate(const Need& need) {
  constexpr size_t kScratchOfPair = 3 * cuda::kDotsMaxParts * sizeof(double);
  const size_t at_once = std::min(need.pairs, size_t{kPairsAtOnce});
  RONDA_RETURN_IF_ERROR(Grow(memory_, need.bytes, absl::StrCat("the Adasum of '", need.label, "'")));
  RONDA_RETURN_IF_ERROR(
      Grow(scratch_, at_once * kScratchOfPair, absl::StrCat("dot products of the Adasum of '", need.label, "'")));
  return memory_.get();
}

absl::Status DeviceAdasumOps::Grow(ResultData& block, size_t bytes, absl::string_view purpose) {
  if (block != nullptr && block.get_deleter().bytes >= bytes) return absl::OkStatus();
  block.reset();
  RONDA_ASSIGN_OR_RETURN(block, options_.blocks->Acquire(bytes, purpose));
  return absl::OkStatus();
}

// Nothing marks the end of an exchange between ranks when the exchange is enqueued. An unpack always follows an
// exchange, so an unpack first marks the end of that exchange.
template <typename Function>
absl::Status DeviceAdasumOps::Launch(StreamPhase phase, absl::string_view what, const Function& function) {
  const bool follows_exchange = phase == StreamPhase::kUnpack;
  if (follows_exchange && options_.marks != nullptr) options_.marks->Mark(StreamPhase::kTransfer);
  return Marked(options_.marks, phase, options_.device->Call(what, function));
}

absl::Status DeviceAdasumOps::Pack(const cuda::PackCall& call) {
  return Launch(StreamPhase::kPack, "packing for Adasum",
                [&](const ronda_cuda_plugin& kernels) { return kernels.pack(&call, options_.stream); });
}

absl::Status DeviceAdasumOps::Unpack(const cuda::UnpackCall& call) {
  return Launch(StreamPhase::kUnpack, "unpacking for Adasum",
                [&](const ronda_cuda_plugin& kernels) { return kernels.unpack(&call, options_.stream); });
}

absl::Status DeviceAdasumOps::Dots(const cuda::DotsCall& call) {
  return Launch(StreamPhase::kReduce, "Adasum's dot products", [&](const ronda_cuda_plugin& kernels) {
    int error = 0;
    for (int begin = 0; begin < call.pair_count && error == 0; begin += kPairsAtOnce) {
      const cuda::DotsCall part = Part(call, begin, reinterpret_cast<double*>(scratch_.get()));
      error = kernels.adasum_dots(&part, options_.stream);
    }
    return error;
  });
}

absl::Status DeviceAdasumOps::Combine(const cuda::CombineCall& call) {
  return Launch(StreamPhase::kReduce, "Adasum",
                [&](const ronda_cuda_plugin& kernels) { return kernels.adasum_combine(&call, options_.stream); });
}

}  // namespace ronda
