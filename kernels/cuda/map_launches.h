// SPDX-License-Identifier: Apache-2.0

// Launches the kernels that pack and unpack a bucket. The functions are templates over `launch`, which has an
// implementation for GPUs (device_launch.h) and one for the CPU (host_kernels.cc). `launch(body, blocks)` runs a body
// in `blocks` blocks, after all earlier launches, and returns 0 or an error.
#ifndef RONDA_KERNELS_CUDA_MAP_LAUNCHES_H_
#define RONDA_KERNELS_CUDA_MAP_LAUNCHES_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/map.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// Calls `visit` with E4M3 or E5M2.
template <class Visitor>
int VisitFp8(Wire::Blocks blocks, const Visitor& visit) {
  if (blocks == Wire::Blocks::kE4M3) return visit(E4M3());
  if (blocks == Wire::Blocks::kE5M2) return visit(E5M2());
  return kInvalidCall;
}

// Returns the address of `offset` in a wire buffer.
inline const uint8_t* WireAt(const void* buffer, uint64_t offset) {
  return static_cast<const uint8_t*>(buffer) + offset;
}
inline uint8_t* WireAt(void* buffer, uint64_t offset) { return static_cast<uint8_t*>(buffer) + offset; }

// Converts a call's segment to a body's segment.
inline MapSegment ToWire(const PackCall& call, int index) {
  const PackSegment& segment = call.segments[index];
  return {segment.input, WireAt(call.buffer, segment.offset), segment.residual, segment.count};
}

inline MapSegment FromWire(const UnpackCall& call, int index) {
  const UnpackSegment& segment = call.segments[index];
  const uint64_t skipped = segment.skip * SizeOf(call.wire.dtype);
  return {WireAt(call.buffer, segment.offset + skipped), segment.output, nullptr, segment.count};
}

// Returns whether the elements are typical of gradients: each has at most 32 bits, and is a floating-point number or is
// copied unchanged. Kernels for these elements are compiled for both numbers of segments, kFewSegments and
// kMaxSegments. For other elements, a second kernel would not be worth compiling and loading.
template <class Function>
constexpr bool IsOfGradients() {
  using From = typename Function::From;
  return !std::is_same_v<Function, ToBool> && !std::is_same_v<Function, ScaleIntegers<From>> &&
         sizeof(From) <= sizeof(float) && sizeof(typename Function::To) <= sizeof(float);
}

// Applies `function` to all elements of the segments that `describe(index)` returns.
template <class Function, class Describe, class Launch>
int LaunchMap(int count, const Function& function, const Describe& describe, const Launch& launch) {
  const auto fill_in = [&](int index, MapSegment& segment) {
    segment = describe(index);
    return TileCount(segment.count, MapTileElements<Function>());
  };
  const auto run = [&]<int kCapacity>(const Tiling<MapSegment, kCapacity>& tiling) {
    return launch(MapBody<Function, kCapacity>(tiling, function), tiling.tiles());
  };
  if (IsOfGradients<Function>() && count <= kFewSegments) {
    return ForTilings < MapSegment, IsOfGradients<Function>() ? kFewSegments : kMaxSegments > (count, fill_in, run);
  }
  return ForTilings<MapSegment>(count, fill_in, run);
}

// A conversion of elements to or from the wire.
struct MapCall {
  DType from;
  DType to;
  Scale scale;
  int segment_count;
  bool has_feedback;
};

template <class Describe, class Launch>
int MapFloats(const MapCall& call, const Describe& describe, const Launch& launch) {
  return VisitFloat(call.from, [&]<class From>(ElementType<From>) {
    return VisitFloat(call.to, [&]<class To>(ElementType<To>) {
      return LaunchMap(call.segment_count, ScaleFloats<From, To>(call.scale), describe, launch);
    });
  });
}

template <class Describe, class Launch>
int MapWithFeedback(const MapCall& call, const Describe& describe, const Launch& launch) {
  const auto narrow = [&](const auto& function) { return LaunchMap(call.segment_count, function, describe, launch); };
  return VisitFloat(call.from, [&]<class From>(ElementType<From>) {
    if (call.to == DType::kFloat16) return narrow(NarrowFloats<From, Float16>(call.scale));
    if (call.to == DType::kBfloat16) return narrow(NarrowFloats<From, Bfloat16>(call.scale));
    return kInvalidCall;
  });
}

// Copies elements of any type.
template <class Describe, class Launch>
int MapCopies(const MapCall& call, const Describe& describe, const Launch& launch) {
  return VisitBits(SizeOf(call.from),
                   [&]<class E>(ElementType<E>) { return LaunchMap(call.segment_count, Keep<E>(), describe, launch); });
}

template <class Describe, class Launch>
int MapIntegers(const MapCall& call, const Describe& describe, const Launch& launch) {
  if (call.from == DType::kBool) return LaunchMap(call.segment_count, ToBool(), describe, launch);
  return VisitInteger(call.from, [&]<class E>(ElementType<E>) {
    return LaunchMap(call.segment_count, ScaleIntegers<E>{call.scale}, describe, launch);
  });
}

template <class Describe, class Launch>
int Map(const MapCall& call, const Describe& describe, const Launch& launch) {
  if (call.from != call.to && !(IsFloatingPoint(call.from) && IsFloatingPoint(call.to))) return kInvalidCall;
  if (call.has_feedback) return MapWithFeedback(call, describe, launch);
  const bool keeps = call.from == call.to && call.from != DType::kBool && call.scale.IsIdentity();
  if (keeps) return MapCopies(call, describe, launch);
  if (IsFloatingPoint(call.from)) return MapFloats(call, describe, launch);
  return MapIntegers(call, describe, launch);
}

inline bool HasFeedback(const PackCall& call) {
  for (int i = 0; i < call.segment_count; ++i) {
    if (call.segments[i].residual != nullptr) return true;
  }
  return false;
}

template <class Launch>
int LaunchPackElements(const PackCall& call, const Launch& launch) {
  const MapCall map = {call.dtype, call.wire.dtype, call.scale, call.segment_count, HasFeedback(call)};
  return Map(
      map, [&](int index) { return ToWire(call, index); }, launch);
}

template <class Launch>
int LaunchPackBlocks(const PackCall& call, const Launch& launch) {
  const auto fill_in = [&](int index, MapSegment& segment) {
    segment = ToWire(call, index);
    return TileCount(Fp8BlockCount(segment.count), kTileBlocks);
  };
  return VisitFp8(call.wire.blocks, [&]<class Format>(Format) {
    return VisitFloat(call.dtype, [&]<class E>(ElementType<E>) {
      return ForTilings<MapSegment>(call.segment_count, fill_in, [&](const Tiling<MapSegment>& tiling) {
        return launch(EncodeBody<Format, E>(tiling, call.scale), tiling.tiles());
      });
    });
  });
}

template <class Launch>
int LaunchUnpackElements(const UnpackCall& call, const Launch& launch) {
  const MapCall map = {call.wire.dtype, call.dtype, call.scale, call.segment_count, false};
  return Map(
      map, [&](int index) { return FromWire(call, index); }, launch);
}

template <class Launch>
int LaunchUnpackBlocks(const UnpackCall& call, const Launch& launch) {
  const auto fill_in = [&](int index, DecodeSegment& segment) {
    const UnpackSegment& from = call.segments[index];
    segment = {WireAt(call.buffer, from.offset), from.output, from.skip, from.count};
    return TileCount(BlocksWanted(segment), kTileBlocks);
  };
  return VisitFp8(call.wire.blocks, [&]<class Format>(Format) {
    return VisitFloat(call.dtype, [&]<class E>(ElementType<E>) {
      return ForTilings<DecodeSegment>(call.segment_count, fill_in, [&](const Tiling<DecodeSegment>& tiling) {
        return launch(DecodeBody<Format, E>(tiling, call.scale), tiling.tiles());
      });
    });
  });
}

template <class Launch>
int LaunchPack(const PackCall& call, const Launch& launch) {
  return call.wire.blocks != Wire::Blocks::kNone ? LaunchPackBlocks(call, launch) : LaunchPackElements(call, launch);
}

template <class Launch>
int LaunchUnpack(const UnpackCall& call, const Launch& launch) {
  return call.wire.blocks != Wire::Blocks::kNone ? LaunchUnpackBlocks(call, launch)
                                                 : LaunchUnpackElements(call, launch);
}

// The following functions call `launch` once for every kernel, for a DeviceLoad (device_launch.h) or a test. `launch`
// must not run the bodies, because the pointers in the calls are invalid.

template <class Visitor>
void ForEveryDType(const Visitor& visit) {
  for (int i = 0; i < kDTypeCount; ++i) visit(static_cast<DType>(i));
}

template <class Visitor>
void ForEveryWire(const Visitor& visit) {
  ForEveryDType([&](DType dtype) { visit(Wire{.dtype = dtype}); });
  visit(Wire{.blocks = Wire::Blocks::kE4M3});
  visit(Wire{.blocks = Wire::Blocks::kE5M2});
}

// Calls LaunchPack() and LaunchUnpack() for all combinations of types. They reject unsupported combinations without a
// launch.
template <class Launch>
void LaunchEveryMapOf(int segments, const Launch& launch) {
  float lost = 0;
  const std::vector<PackSegment> plain(segments, {.count = 1});
  const std::vector<PackSegment> with_feedback(segments, {.residual = &lost, .count = 1});
  const std::vector<UnpackSegment> unpacked(segments, {.count = 1});
  ForEveryDType([&](DType dtype) {
    ForEveryWire([&](const Wire& wire) {
      for (const Scale& scale : {Scale(), Scale{.multiplier = 2}}) {
        for (const std::vector<PackSegment>* packed : {&plain, &with_feedback}) {
          LaunchPack({packed->data(), segments, dtype, wire, scale}, launch);
        }
        LaunchUnpack({unpacked.data(), segments, dtype, wire, scale}, launch);
      }
    });
  });
}

// In both sizes.
template <class Launch>
void LaunchEveryMap(const Launch& launch) {
  for (const int segments : {kFewSegments, kMaxSegments}) LaunchEveryMapOf(segments, launch);
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_MAP_LAUNCHES_H_
