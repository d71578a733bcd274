// SPDX-License-Identifier: Apache-2.0

// The bodies of kernels that pack and unpack elements, and of the votes on whether they do. map_launches.h launches
// them.
#ifndef RONDA_KERNELS_CUDA_MAP_H_
#define RONDA_KERNELS_CUDA_MAP_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// A VoteCount as the device counts it. The device compares bits, so that votes of any dtype are the same to it.
struct Ballot {
  const uint8_t* votes = nullptr;
  int count = 0;  // 0: no vote
  int bytes = 0;  // of one vote
  uint64_t mask = 0;
  uint64_t stay = 0;  // the masked bits of a vote to stay; a bit outside of the mask: no vote is to stay
};

RONDA_HOST_DEVICE inline bool Stays(const Ballot& ballot, int index) {
  uint64_t bits = 0;
  for (int i = 0; i < ballot.bytes; ++i) {
    bits |= static_cast<uint64_t>(ballot.votes[static_cast<int64_t>(index) * ballot.bytes + i]) << (8 * i);
  }
  return (bits & ballot.mask) == ballot.stay;
}

// Whether any vote is not to stay. All threads of the block take part.
template <class Block>
RONDA_HOST_DEVICE inline bool IsLost(const Block& block, const Ballot& ballot) {
  if (ballot.count == 0) return false;
  return block.Any([&](int thread) {
    bool lost = false;
    for (int i = thread; i < ballot.count; i += kThreads) lost |= !Stays(ballot, i);
    return lost;
  });
}

// Where the result of a ballot goes: the words of a VoteCount.
struct Decision {
  uint32_t* word = nullptr;  // nullptr: nothing is written
  uint32_t* gate = nullptr;  // nullptr: there is no gate
  uint32_t opens_at = 0;
  uint32_t* arrivals = nullptr;
};

// Writes the decision after all blocks have called this. All threads of the block take part.
template <class Block>
RONDA_HOST_DEVICE inline void Decide(const Block& block, const Decision& decision, bool lost) {
  if (decision.word == nullptr) return;
  block.AfterAllBlocks(decision.arrivals, [&] {
    if (!lost && decision.gate != nullptr) block.Publish(decision.gate, decision.opens_at);
    block.Publish(decision.word, lost ? 2 : 1);
  });
}

// A VoteCast as the device writes it, byte by byte.
struct Cast {
  uint8_t* votes = nullptr;
  int count = 0;  // 0: no vote
  int bytes = 0;  // of one vote
  int own = 0;    // negative: all
  uint64_t stride = 0;
  uint64_t bits = 0;
};

// One block writes all votes: there are as many as regions of the wire, mostly one. Their readers run after the launch.
template <class Block>
RONDA_HOST_DEVICE inline void Write(const Block& block, const Cast& cast) {
  if (block.index() != 0) return;
  block.ForEachThread([&](int thread) {
    for (int i = thread; i < cast.count; i += kThreads) {
      const uint64_t bits = cast.own < 0 || i == cast.own ? cast.bits : 0;
      for (int byte = 0; byte < cast.bytes; ++byte) {
        cast.votes[i * cast.stride + byte] = static_cast<uint8_t>(bits >> (8 * byte));
      }
    }
  });
}

// The votes of a launch: it writes some, or obeys and settles some, or neither.
struct Votes {
  Cast cast = {};
  Ballot ballot = {};
  Decision decision = {};
};

// For a call without elements: only its votes. One block.
struct VotesBody {
  Votes votes;

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    Write(block, votes.cast);
    Decide(block, votes.decision, IsLost(block, votes.ballot));
  }
};

// The bits of `value` as an element of each kind of type, if the type can hold it exactly.
template <class E>
std::optional<uint64_t> FloatBits(double value) {
  const E element = RoundTo<E>(value);
  if (Widen<double>(element) != value) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(element));
  return bits;
}

template <class E>
std::optional<uint64_t> IntegerBits(double value) {
  const E element = SaturatingTruncate<E>(value);
  if (static_cast<double>(element) != value) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(element));
  return bits;
}

// The bits of `value` as an element of `dtype`; nullopt if `dtype` cannot hold it exactly.
inline std::optional<uint64_t> BitsOf(double value, DType dtype) {
  std::optional<uint64_t> bits;
  if (IsFloatingPoint(dtype)) {
    VisitFloat(dtype, [&]<class E>(ElementType<E>) {
      bits = FloatBits<E>(value);
      return 0;
    });
  } else {
    VisitInteger(dtype == DType::kBool ? DType::kUint8 : dtype, [&]<class E>(ElementType<E>) {
      bits = IntegerBits<E>(value);
      return 0;
    });
  }
  return bits;
}

// The Ballot that counts these votes, which are elements of `dtype`.
inline Ballot BallotOf(const VoteCount& vote, DType dtype) {
  Ballot ballot;
  if (vote.votes == nullptr) return ballot;
  ballot.votes = static_cast<const uint8_t*>(vote.votes);
  ballot.count = vote.count;
  ballot.bytes = static_cast<int>(SizeOf(dtype));
  const std::optional<uint64_t> stay = BitsOf(vote.stay, dtype);
  if (!stay.has_value()) {
    ballot.stay = 1;  // not under the mask, which is 0: no vote can match
    return ballot;
  }
  ballot.mask = ~uint64_t{0} >> (64 - 8 * ballot.bytes);
  if (IsFloatingPoint(dtype) && vote.stay == 0) ballot.mask >>= 1;  // zeros of either sign are equal
  ballot.stay = *stay & ballot.mask;
  return ballot;
}

// The Cast that writes these votes as elements of `dtype`.
inline Cast CastOf(const VoteCast& vote, DType dtype) {
  if (vote.votes == nullptr) return {};
  return {.votes = static_cast<uint8_t*>(vote.votes),
          .count = vote.count,
          .bytes = static_cast<int>(SizeOf(dtype)),
          .own = vote.own,
          .stride = vote.stride,
          .bits = BitsOf(vote.value, dtype).value_or(0)};
}

// The dtype of a vote on this wire.
constexpr DType VoteDType(const Wire& wire) { return wire.blocks == Wire::Blocks::kNone ? wire.dtype : DType::kUint8; }

// Bodies of kernels that turn each element of a source into an element of a destination: pack and unpack, except for
// blocks of 8-bit codes (fp8.h).

// A tensor on its way to the wire, or from it.
struct MapSegment {
  const void* src;
  void* dst;
  float* residual;  // nullptr: none
  uint64_t count;
};

// The residual that error feedback keeps of `value`, sent as `rounded`. It is 0 if either is not finite, because
// infinity and NaN would stay for ever.
RONDA_HOST_DEVICE inline float Lost(float value, float rounded) {
  const float lost = value - rounded;
  return (BitCast<uint32_t>(lost) & 0x7FFFFFFFu) < kFloatInfinity ? lost : 0.0f;
}

// Functions of an element. Each has the types From and To, and states whether error feedback is possible.
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

// Narrows to 16 bits, with error feedback (kernels/cpu/convert.h) where a segment has a residual. This is a separate
// function because the kernels of ScaleFloats need fewer registers, and so run more threads at a time.
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

// The number of elements in a tile of a function.
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

  MapBody(const Tiling<MapSegment, kCapacity>& tiles, const Function& function, const Votes& votes)
      : function_(function), votes_(votes), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    Write(block, votes_.cast);
    const bool lost = IsLost(block, votes_.ballot);
    for (uint32_t tile = block.index(); !lost && tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kTileElements);
    }
    Decide(block, votes_.decision, lost);
  }

 private:
  static constexpr int kVector = kAccessBytes / kWidest;
  // Each byte takes a register while it is worked on.
  static constexpr int kAhead = kWidest == 1 ? 1 : kAccessesInFlight;

  // The elements of `segment` from `first` on, as many as a tile has.
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
  const Votes votes_;
  const Tiling<MapSegment, kCapacity> tiles_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_MAP_H_
