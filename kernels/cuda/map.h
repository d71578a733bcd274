// SPDX-License-Identifier: Apache-2.0

// The bodies of kernels that pack and unpack elements, launched by map_launches.h.
#ifndef RONDA_KERNELS_CUDA_MAP_H_
#define RONDA_KERNELS_CUDA_MAP_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// Bodies of the kernels that pack and unpack, except for blocks of 8-bit codes (fp8.h). They convert each source
// element to a destination element.

// A tensor to pack onto the wire or unpack from it.
struct MapSegment {
  const void* src;
  void* dst;
  float* residual;  // nullptr: none
  uint64_t count;
};

// Returns the residual that error feedback keeps for `value` if it is sent as `rounded`, or 0 if either is not finite,
// because infinity and NaN would stay in the residual for ever.
RONDA_HOST_DEVICE inline float Lost(float value, float rounded) {
  const float lost = value - rounded;
  return (BitCast<uint32_t>(lost) & 0x7FFFFFFFu) < kFloatInfinity ? lost : 0.0f;
}

// Each of the following structs is a function from an element of type From to one of type To, and says whether it
// supports error feedback.
template <class E>
struct Keep {
  using From = E;
  using To = E;
  static constexpr bool kHasFeedback = false;
  RONDA_HOST_DEVICE E operator()(E element) const { return element; }
};

struct ToBool {
  using From = uint8_t;
  using To = uint8_t;
  static constexpr bool kHasFeedback = false;
  RONDA_HOST_DEVICE uint8_t operator()(uint8_t element) const { return element != 0; }
};

template <class E>
struct ScaleIntegers {
  using From = E;
  using To = E;
  static constexpr bool kHasFeedback = false;
  static constexpr bool kDivides = true;  // divides integers, which takes registers
  RONDA_HOST_DEVICE E operator()(E element) const { return ScaleInteger<E>(element, scale); }

  Scale scale;
};

template <class F, class T>
struct ScaleFloats {
  using From = F;
  using To = T;
  using Lane = LaneOf<From, To>;
  static constexpr bool kHasFeedback = false;

  explicit ScaleFloats(const Scale& scale) : factor(static_cast<Lane>(scale.Factor())) {}

  RONDA_HOST_DEVICE To operator()(From element) const { return RoundTo<To>(Widen<Lane>(element) * factor); }

  Lane factor;
};

// Converts to 16 bits, with error feedback (kernels/cpu/convert.h) if a segment has a residual. Separate from
// ScaleFloats, whose kernels need fewer registers, and so run more threads at a time.
template <class F, class T>
struct NarrowFloats : ScaleFloats<F, T> {
  static constexpr bool kHasFeedback = true;

  using ScaleFloats<F, T>::ScaleFloats;
  using ScaleFloats<F, T>::operator();

  RONDA_HOST_DEVICE T operator()(F element, float& residual) const {
    using Wide = LaneOf<F, T>;
    const float value = static_cast<float>(Widen<Wide>(element) * this->factor) + residual;
    const T rounded = RoundTo<T>(value);
    residual = Lost(value, Widen<float>(rounded));
    return rounded;
  }
};

// Returns the number of elements per tile for `Function`.
template <class Function>
constexpr uint32_t MapTileElements() {
  return TileElements(std::max(sizeof(typename Function::From), sizeof(typename Function::To)));
}

template <class Function, int kCapacity>
class MapBody {
 public:
  using From = typename Function::From;
  using To = typename Function::To;
  static constexpr size_t kWidest = std::max(sizeof(From), sizeof(To));
  static constexpr uint32_t kTileElements = MapTileElements<Function>();
  static constexpr bool kIsLarge = Function::kHasFeedback || requires { Function::kDivides; };
  static constexpr int kBlocksAtOnce = kIsLarge ? kBlocksAtOnceIfLarge : kBlocksAtOnceIfSmall;

  MapBody(const Tiling<MapSegment, kCapacity>& tiles, const Function& function) : function_(function), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kTileElements);
    }
  }

 private:
  static constexpr int kVector = kAccessBytes / kWidest;
  // Each byte that a thread works on takes a register, so threads load only one vector of bytes at a time.
  static constexpr int kAhead = kWidest == 1 ? 1 : kAccessesInFlight;

  // Works on one tile: the elements of `segment` from `first` on.
  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const MapSegment& segment, uint64_t first) const {
    const uint64_t left = segment.count - first;
    const uint32_t count = left < kTileElements ? static_cast<uint32_t>(left) : kTileElements;
    const MapSegment tile = {At<From>(segment.src, first), At<To>(segment.dst, first),
                             segment.residual == nullptr ? nullptr : segment.residual + first, count};
    const bool vectors = IsAlignedFor<From, kVector>(tile.src) && IsAlignedFor<To, kVector>(tile.dst) &&
                         IsAlignedFor<float, kVector>(tile.residual);
    const uint32_t single = vectors ? count / kVector * kVector : 0;
    Range<kVector>(block, tile, 0, single);
    Range<1>(block, tile, single, count);
  }

  template <int kCount, class Block>
  RONDA_HOST_DEVICE void Range(const Block& block, const MapSegment& tile, uint32_t begin, uint32_t end) const {
    if constexpr (Function::kHasFeedback) {
      if (tile.residual != nullptr) return RangeWithFeedback<kCount>(block, tile, begin, end);
    }
    const auto load = [&](uint32_t at) { return Load<From, kCount>(At<From>(tile.src, at)); };
    const auto store = [&](uint32_t at, const Vector<From, kCount>& in) {
      Vector<To, kCount> out;
      for (int i = 0; i < kCount; ++i) out.at[i] = function_(in.at[i]);
      Store(out, At<To>(tile.dst, at));
    };
    ForBatches<kCount, kAhead>(block, begin, end, load, store);
  }

  template <int kCount>
  struct WithResidual {
    Vector<From, kCount> in;
    Vector<float, kCount> residual;
  };

  template <int kCount, class Block>
  RONDA_HOST_DEVICE void RangeWithFeedback(const Block& block, const MapSegment& tile, uint32_t begin,
                                           uint32_t end) const {
    const auto load = [&](uint32_t at) {
      return WithResidual<kCount>{Load<From, kCount>(At<From>(tile.src, at)),
                                  Load<float, kCount>(At<float>(tile.residual, at))};
    };
    const auto store = [&](uint32_t at, WithResidual<kCount>& loaded) {
      Vector<To, kCount> out;
      for (int i = 0; i < kCount; ++i) out.at[i] = function_(loaded.in.at[i], loaded.residual.at[i]);
      Store(out, At<To>(tile.dst, at));
      Store(loaded.residual, At<float>(static_cast<void*>(tile.residual), at));
    };
    ForBatches<kCount, kAccessesInFlight / 2>(block, begin, end, load, store);
  }

  const Function function_;
  const Tiling<MapSegment, kCapacity> tiles_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_MAP_H_
