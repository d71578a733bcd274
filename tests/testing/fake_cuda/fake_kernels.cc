// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cuda/fake_kernels.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/dtype.h"
#include "runtime/base/logging.h"

namespace ronda::testing {
namespace {

using kernels::cuda::AddScaledCall;
using kernels::cuda::CombineCall;
using kernels::cuda::DotsCall;
using kernels::cuda::Extent;
using kernels::cuda::NonFiniteCall;
using kernels::cuda::PackCall;
using kernels::cuda::PackSegment;
using kernels::cuda::ReduceCall;
using kernels::cuda::UnpackCall;
using kernels::cuda::UnpackSegment;
using kernels::cuda::Wire;

// Replaces device addresses by the host's addresses of the same memory, and records whether all of the memory exists.
class Finder {
 public:
  Finder(int device, const FakeMemory& memory) : device_(device), memory_(memory) {}

  template <typename T>
  void Replace(T*& pointer, size_t bytes) {
    if (bytes == 0) return;
    used_.push_back(pointer);
    pointer = static_cast<T*>(memory_.ViewOf(device_, pointer, bytes));
    has_found_all_ = has_found_all_ && pointer != nullptr;
  }

  bool has_found_all() const { return has_found_all_; }
  const std::vector<const void*>& used() const { return used_; }

 private:
  const int device_;
  const FakeMemory& memory_;
  bool has_found_all_ = true;
  std::vector<const void*> used_;
};

// Returns how many bytes `count` elements take on the wire, from the beginning of a granule.
size_t WireBytes(const Wire& wire, size_t count) {
  if (wire.blocks == Wire::Blocks::kNone) return count * SizeOf(wire.dtype);
  return kernels::Fp8Bytes(count);
}

template <typename T>
std::shared_ptr<std::vector<T>> CopyOf(const T* items, int count) {
  return std::make_shared<std::vector<T>>(items, items + count);
}

template <typename Call>
PreparedKernel Kernel(const Finder& find, int (*run)(const Call&), const Call& call,
                      std::vector<std::shared_ptr<const void>> memory) {
  if (!find.has_found_all()) return {};
  return {.run = [run, call, memory = std::move(memory)] { RONDA_CHECK(run(call) == 0); }, .memory = find.used()};
}

void ReplaceAll(Finder& find, std::vector<Extent>& tensors, DType dtype) {
  for (Extent& tensor : tensors) find.Replace(tensor.data, tensor.count * SizeOf(dtype));
}

// Prepares a kernel of Adasum that works on pairs of tensors.
template <typename Call>
PreparedKernel PairsKernel(const Call& call, int (*run)(const Call&), int device, const FakeMemory& memory) {
  Finder find(device, memory);
  Call copy = call;
  const auto a = CopyOf(call.a, call.pair_count);
  const auto b = CopyOf(call.b, call.pair_count);
  ReplaceAll(find, *a, call.dtype);
  ReplaceAll(find, *b, call.dtype);
  find.Replace(copy.dots, 3 * sizeof(double) * call.pair_count);
  if constexpr (std::is_same_v<Call, DotsCall>) {
    find.Replace(copy.scratch, 3 * sizeof(double) * kernels::cuda::kDotsMaxParts * call.pair_count);
  }
  copy.a = a->data();
  copy.b = b->data();
  return Kernel(find, run, copy, {a, b});
}

}  // namespace

PreparedKernel PrepareKernel(const PackCall& call, int device, const FakeMemory& memory) {
  Finder find(device, memory);
  PackCall copy = call;
  const auto segments = CopyOf(call.segments, call.segment_count);
  size_t bytes = 0;
  for (PackSegment& segment : *segments) {
    find.Replace(segment.input, segment.count * SizeOf(call.dtype));
    if (segment.residual != nullptr) find.Replace(segment.residual, segment.count * sizeof(float));
    if (segment.count > 0) bytes = std::max<size_t>(bytes, segment.offset + WireBytes(call.wire, segment.count));
  }
  find.Replace(copy.buffer, bytes);
  copy.segments = segments->data();
  return Kernel(find, kernels::cuda::HostPack, copy, {segments});
}

PreparedKernel PrepareKernel(const UnpackCall& call, int device, const FakeMemory& memory) {
  Finder find(device, memory);
  UnpackCall copy = call;
  const auto segments = CopyOf(call.segments, call.segment_count);
  size_t bytes = 0;
  for (UnpackSegment& segment : *segments) {
    find.Replace(segment.output, segment.count * SizeOf(call.dtype));
    if (segment.count == 0) continue;
    bytes = std::max<size_t>(bytes, segment.offset + WireBytes(call.wire, segment.skip + segment.count));
  }
  find.Replace(copy.buffer, bytes);
  copy.segments = segments->data();
  return Kernel(find, kernels::cuda::HostUnpack, copy, {segments});
}

PreparedKernel PrepareKernel(const ReduceCall& call, int device, const FakeMemory& memory) {
  Finder find(device, memory);
  ReduceCall copy = call;
  const bool is_in_blocks = call.wire.blocks != Wire::Blocks::kNone;
  const size_t bytes = call.granules * (is_in_blocks ? kernels::kFp8BlockBytes : SizeOf(call.wire.dtype));
  find.Replace(copy.sources, bytes == 0 ? 0 : (call.source_count - 1) * call.stride + bytes);
  find.Replace(copy.dst, bytes);
  return Kernel(find, kernels::cuda::HostReduce, copy, {});
}

PreparedKernel PrepareKernel(const NonFiniteCall& call, int device, const FakeMemory& memory) {
  Finder find(device, memory);
  NonFiniteCall copy = call;
  const auto tensors = CopyOf(call.tensors, call.tensor_count);
  ReplaceAll(find, *tensors, call.dtype);
  find.Replace(copy.found, static_cast<size_t>(call.tensor_count));
  copy.tensors = tensors->data();
  return Kernel(find, kernels::cuda::HostFindNonFinite, copy, {tensors});
}

PreparedKernel PrepareKernel(const AddScaledCall& call, int device, const FakeMemory& memory) {
  Finder find(device, memory);
  AddScaledCall copy = call;
  const size_t bytes = call.count * SizeOf(call.dtype);
  find.Replace(copy.a, bytes);
  find.Replace(copy.b, bytes);
  find.Replace(copy.dst, bytes);
  return Kernel(find, kernels::cuda::HostAddScaled, copy, {});
}

PreparedKernel PrepareKernel(const DotsCall& call, int device, const FakeMemory& memory) {
  return PairsKernel(call, kernels::cuda::HostDots, device, memory);
}

PreparedKernel PrepareKernel(const CombineCall& call, int device, const FakeMemory& memory) {
  return PairsKernel(call, kernels::cuda::HostCombine, device, memory);
}

}  // namespace ronda::testing
