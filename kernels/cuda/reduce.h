// SPDX-License-Identifier: Apache-2.0

// Kernels that reduce the data of several wires: operators, bodies and launches.
#ifndef RONDA_KERNELS_CUDA_REDUCE_H_
#define RONDA_KERNELS_CUDA_REDUCE_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/map_launches.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// Return the minimum and the maximum of a and b, or NaN if either number is NaN.
RONDA_HOST_DEVICE inline float Least(float a, float b) { return a != a || a <= b ? a : b; }
RONDA_HOST_DEVICE inline float Greatest(float a, float b) { return a != a || a >= b ? a : b; }
RONDA_HOST_DEVICE inline double Least(double a, double b) { return a != a || a <= b ? a : b; }
RONDA_HOST_DEVICE inline double Greatest(double a, double b) { return a != a || a >= b ? a : b; }

// Call `visit` with the operator as a function of two numbers, so that a thread chooses the operator once instead of
// once per element.
template <class Float, class Visitor>
RONDA_HOST_DEVICE inline void VisitFloatOperator(ReduceOp op, const Visitor& visit) {
  switch (op) {
    case ReduceOp::kSum:
      return visit([](Float a, Float b) { return a + b; });
    case ReduceOp::kMin:
      return visit([](Float a, Float b) { return Least(a, b); });
    case ReduceOp::kMax:
      return visit([](Float a, Float b) { return Greatest(a, b); });
    default:
      return visit([](Float a, Float b) { return a * b; });
  }
}

template <class Integer, class Visitor>
RONDA_HOST_DEVICE inline void VisitIntegerOperator(ReduceOp op, const Visitor& visit) {
  // Sums and products wrap around. This needs unsigned types of sufficient width: a type narrower than int would be
  // promoted to int and not wrap around, and signed overflow is undefined.
  using Wrapping = std::conditional_t<sizeof(Integer) < sizeof(uint32_t), uint32_t, std::make_unsigned_t<Integer>>;
  switch (op) {
    case ReduceOp::kSum:
      return visit([](Integer a, Integer b) {
        return static_cast<Integer>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
      });
    case ReduceOp::kMin:
      return visit([](Integer a, Integer b) { return a < b ? a : b; });
    case ReduceOp::kMax:
      return visit([](Integer a, Integer b) { return a > b ? a : b; });
    case ReduceOp::kProduct:
      return visit([](Integer a, Integer b) {
        return static_cast<Integer>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
      });
    case ReduceOp::kBitAnd:
      return visit([](Integer a, Integer b) { return static_cast<Integer>(a & b); });
    case ReduceOp::kBitOr:
      return visit([](Integer a, Integer b) { return static_cast<Integer>(a | b); });
    default:
      return visit([](Integer a, Integer b) { return static_cast<Integer>(a ^ b); });
  }
}

template <class Visitor>
RONDA_HOST_DEVICE inline void VisitBoolOperator(ReduceOp op, const Visitor& visit) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return visit([](bool a, bool b) { return a || b; });
    case ReduceOp::kBitXor:
      return visit([](bool a, bool b) { return a != b; });
    default:
      return visit([](bool a, bool b) { return a && b; });
  }
}

// Each of the following structs defines how to reduce elements of a type. First() converts an element to an
// accumulator, the operator combines two accumulators, and Last() converts an accumulator to the result.
template <class E>
struct FloatArithmetic {
  using Element = E;
  using Accumulator = LaneOf<E, E>;

  FloatArithmetic(ReduceOp reduce_op, const Scale& scale)
      : op(reduce_op), factor(static_cast<Accumulator>(scale.Factor())) {}

  RONDA_HOST_DEVICE Accumulator First(E element) const { return Widen<Accumulator>(element); }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    VisitFloatOperator<Accumulator>(op, visit);
  }
  RONDA_HOST_DEVICE E Last(Accumulator sum) const { return RoundTo<E>(sum * factor); }

  ReduceOp op;
  Accumulator factor;
};

template <class E>
struct IntegerArithmetic {
  using Element = E;
  using Accumulator = E;

  IntegerArithmetic(ReduceOp reduce_op, const Scale& result_scale)
      : op(reduce_op), is_scaled(!result_scale.IsIdentity()), scale(result_scale) {}

  RONDA_HOST_DEVICE E First(E element) const { return element; }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    VisitIntegerOperator<E>(op, visit);
  }
  RONDA_HOST_DEVICE E Last(E sum) const { return is_scaled ? ScaleInteger<E>(sum, scale) : sum; }

  ReduceOp op;
  bool is_scaled;
  Scale scale;
};

// Adds integers in a wider type, and then scales the sum (see AddsWide).
template <class E>
struct WideArithmetic {
  using Element = E;
  using Accumulator = typename WideInteger<E>::Type;

  explicit WideArithmetic(const Scale& result_scale) : scale(result_scale) {}

  RONDA_HOST_DEVICE Accumulator First(E element) const { return element; }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    visit([](Accumulator a, Accumulator b) { return a + b; });
  }
  RONDA_HOST_DEVICE E Last(Accumulator sum) const { return ScaleInteger<E>(sum, scale); }

  Scale scale;
};

// Reduces truth values. Every nonzero byte is true; results are 0 or 1.
struct BoolArithmetic {
  using Element = uint8_t;
  using Accumulator = bool;

  BoolArithmetic(ReduceOp reduce_op, const Scale& /*scale: bool ignores it*/) : op(reduce_op) {}

  RONDA_HOST_DEVICE bool First(uint8_t element) const { return element != 0; }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    VisitBoolOperator(op, visit);
  }
  RONDA_HOST_DEVICE uint8_t Last(bool sum) const { return sum; }

  ReduceOp op;
};

// Bodies of the kernels that reduce the contributions of several ranks, which are consecutive in memory, each in the
// wire format: elements, or blocks of 8-bit codes.

// The sources and the destination of a reduction. The destination may be a source, because the thread that writes an
// element has read it from all sources, and no other thread reads it.
struct Sources {
  const uint8_t* first;
  uint64_t stride;
  int count;
  uint8_t* dst;
  uint64_t granules;
};

template <class Arithmetic>
class ReduceBody {
 public:
  using E = typename Arithmetic::Element;
  static constexpr uint32_t kTileElements = TileElements(sizeof(E));
  // A thread that adds bytes holds 64 sums of 64 bits each.
  static constexpr int kBlocksAtOnce = sizeof(typename Arithmetic::Accumulator) > 2 * sizeof(E) ? 1
                                                                                                : kBlocksAtOnceIfSmall;

  ReduceBody(const Sources& sources, const Arithmetic& arithmetic) : sources_(sources), arithmetic_(arithmetic) {}

  uint64_t tiles() const { return TileCount(sources_.granules, kTileElements); }

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    const uint64_t tiles = TileCount(sources_.granules, kTileElements);
    for (uint64_t tile = block.index(); tile < tiles; tile += block.grid()) Tile(block, tile * kTileElements);
  }

 private:
  using Accumulator = typename Arithmetic::Accumulator;
  static constexpr int kVector = kAccessBytes / sizeof(E);
  // The number of sources to load before adding the first of them. An integer narrower than a register takes a whole
  // register while a thread works on it.
  static constexpr int kSourcesAhead = sizeof(Accumulator) < sizeof(float) ? 1 : kAccessesInFlight;

  template <int kCount>
  struct Accumulators {
    Accumulator at[kCount];
  };

  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, uint64_t first) const {
    const uint64_t left = sources_.granules - first;
    const uint32_t count = left < kTileElements ? static_cast<uint32_t>(left) : kTileElements;
    const bool vectors = IsAligned(sources_.first, kAccessBytes) && IsAligned(sources_.dst, kAccessBytes) &&
                         sources_.stride % kAccessBytes == 0;
    const uint32_t single = vectors ? count / kVector * kVector : 0;
    Range<kVector>(block, first, 0, single);
    Range<1>(block, first, single, count);
  }

  template <int kCount, class Block>
  RONDA_HOST_DEVICE void Range(const Block& block, uint64_t first, uint32_t begin, uint32_t end) const {
    const auto reduce = [&](uint32_t at) {
      return Total<kCount>(At<E>(static_cast<const void*>(sources_.first), first + at));
    };
    const auto store = [&](uint32_t at, const Accumulators<kCount>& sum) {
      Vector<E, kCount> out;
      for (int i = 0; i < kCount; ++i) out.at[i] = arithmetic_.Last(sum.at[i]);
      Store(out, At<E>(static_cast<void*>(sources_.dst), first + at));
    };
    // Reduces one vector at a time: the loads from its sources are enough to keep the memory busy.
    ForBatches<kCount, 1>(block, begin, end, reduce, store);
  }

  // Reduces the vector at `from`, which is in the first source, with those at the same position in the other sources.
  template <int kCount>
  RONDA_HOST_DEVICE Accumulators<kCount> Total(const uint8_t* from) const {
    constexpr int kAhead = kCount == 1 ? 1 : kSourcesAhead;
    const Vector<E, kCount> own = Load<E, kCount>(from);
    Accumulators<kCount> sum;
    int source = 1;
    do {
      Vector<E, kCount> next[kAhead] = {};
      for (int i = 0; i < kAhead; ++i) {
        from += sources_.stride;
        if (source + i < sources_.count) next[i] = Load<E, kCount>(from);
      }
      for (int i = 0; i < kCount && source == 1; ++i) sum.at[i] = arithmetic_.First(own.at[i]);
      for (int i = 0; i < kAhead; ++i) {
        if (source + i < sources_.count) Add(next[i], sum);
      }
      source += kAhead;
    } while (source < sources_.count);
    return sum;
  }

  template <int kCount>
  RONDA_HOST_DEVICE void Add(const Vector<E, kCount>& next, Accumulators<kCount>& sum) const {
    arithmetic_.VisitOperator([&](const auto& apply) {
      for (int i = 0; i < kCount; ++i) sum.at[i] = apply(sum.at[i], arithmetic_.First(next.at[i]));
    });
  }

  const Sources sources_;
  const Arithmetic arithmetic_;
};

template <class Format>
class ReduceBlocksBody {
 public:
  ReduceBlocksBody(const Sources& sources, ReduceOp op, const Scale& scale)
      : sources_(sources), op_(op), factor_(static_cast<float>(scale.Factor())) {}

  uint64_t tiles() const { return TileCount(sources_.granules, kTileBlocks); }

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    const uint64_t tiles = TileCount(sources_.granules, kTileBlocks);
    const bool is_aligned = IsAligned(sources_.first, sizeof(Codes)) && sources_.stride % sizeof(Codes) == 0;
    for (uint64_t tile = block.index(); tile < tiles; tile += block.grid()) {
      const uint64_t first = tile * kTileBlocks;
      block.ForEachWarp([&](const auto& warp, uint32_t index) {
        for (uint64_t i = first + index; i < first + kTileBlocks && i < sources_.granules; i += kWarps) {
          is_aligned ? OneBlock<true>(warp, i * kFp8BlockBytes) : OneBlock<false>(warp, i * kFp8BlockBytes);
        }
      });
    }
  }

 private:
  template <bool kAligned, class Warp>
  RONDA_HOST_DEVICE void OneBlock(const Warp& warp, uint64_t at) const {
    typename Warp::template PerLane<LaneNumbers> numbers;
    warp.ForEachLane([&](int lane) {
      numbers[lane] = LoadNumbers<kAligned>(sources_.first + at, lane);
      for (int source = 1; source < sources_.count; ++source) {
        Add(LoadNumbers<kAligned>(sources_.first + at + source * sources_.stride, lane), numbers[lane]);
      }
      for (auto& piece : numbers[lane].at) {
        for (float& number : piece) number *= factor_;
      }
    });
    EncodeBlock<Format>(warp, numbers, sources_.dst + at, [](int, int, const Codes&, float) {});
  }

  RONDA_HOST_DEVICE void Add(const LaneNumbers& next, LaneNumbers& sum) const {
    VisitFloatOperator<float>(op_, [&](const auto& apply) {
      for (int piece = 0; piece < kPieces; ++piece) {
        for (int i = 0; i < kPiece; ++i) sum.at[piece][i] = apply(sum.at[piece][i], next.at[piece][i]);
      }
    });
  }

  template <bool kAligned>
  RONDA_HOST_DEVICE static LaneNumbers LoadNumbers(const uint8_t* block, int lane) {
    const LaneCodes codes = LoadLaneCodes<kAligned>(block, lane);
    LaneNumbers numbers;
    for (int piece = 0; piece < kPieces; ++piece) {
      const Vector<float, kPiece> decoded = DecodePiece<Format>(codes.at[piece], codes.scale);
      for (int i = 0; i < kPiece; ++i) numbers.at[piece][i] = decoded.at[i];
    }
    return numbers;
  }

  const Sources sources_;
  const ReduceOp op_;
  const float factor_;
};

// The functions below launch the kernels that reduce elements in wire formats. map_launches.h describes `launch`.

// Launches a body that has a tiles() function, and works with any number of blocks.
template <class Body, class Launch>
int LaunchTiles(const Body& body, const Launch& launch) {
  const uint64_t tiles = body.tiles();
  return tiles == 0 ? 0 : launch(body, static_cast<uint32_t>(std::min(tiles, kMaxTiles)));
}

inline Sources SourcesOf(const ReduceCall& call) {
  return {static_cast<const uint8_t*>(call.sources), call.stride, call.source_count, static_cast<uint8_t*>(call.dst),
          call.granules};
}

template <class Launch>
int LaunchReduceElements(const ReduceCall& call, const Launch& launch) {
  if (!Supports(call.op, call.wire.dtype)) return kInvalidCall;
  const auto reduce = [&](const auto& arithmetic) {
    return LaunchTiles(ReduceBody(SourcesOf(call), arithmetic), launch);
  };
  if (call.wire.dtype == DType::kBool) return reduce(BoolArithmetic(call.op, call.scale));
  if (!IsFloatingPoint(call.wire.dtype)) {
    return VisitInteger(call.wire.dtype, [&]<class E>(ElementType<E>) {
      if (AddsWide(call.op, call.wire.dtype, call.scale)) return reduce(WideArithmetic<E>(call.scale));
      return reduce(IntegerArithmetic<E>(call.op, call.scale));
    });
  }
  return VisitFloat(call.wire.dtype,
                    [&]<class E>(ElementType<E>) { return reduce(FloatArithmetic<E>(call.op, call.scale)); });
}

template <class Launch>
int LaunchReduceBlocks(const ReduceCall& call, const Launch& launch) {
  if (!Supports(call.op, DType::kFloat32)) return kInvalidCall;
  return VisitFp8(call.wire.blocks, [&]<class Format>(Format) {
    return LaunchTiles(ReduceBlocksBody<Format>(SourcesOf(call), call.op, call.scale), launch);
  });
}

template <class Launch>
int LaunchReduce(const ReduceCall& call, const Launch& launch) {
  const bool in_blocks = call.wire.blocks != Wire::Blocks::kNone;
  return in_blocks ? LaunchReduceBlocks(call, launch) : LaunchReduceElements(call, launch);
}

template <class Launch>
void LaunchEveryReduce(const Launch& launch) {
  ForEveryWire([&](const Wire& wire) {
    for (const Scale& scale : {Scale(), Scale{.multiplier = 2}}) {
      LaunchReduce({.source_count = 1, .wire = wire, .scale = scale, .granules = 1}, launch);
    }
  });
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_REDUCE_H_
