// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cc"
#include "hwy/foreach_target.h"
// These must come after foreach_target.h, which sets the SIMD target for which they are compiled.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

// One pass over the data: reduces elements [begin, begin + args.count) of every source, and stores the results from
// args.dst on.
struct Pass {
  const ReduceArgs& args;  // `scale` is ignored
  double factor;           // multiplies floating-point results before they are rounded; other results are not scaled
  size_t begin;
};

// One of these functions is applied to each reduced value before it is stored.
struct Multiply {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> value) const {
    return hn::Mul(value, hn::Set(d, static_cast<hn::TFromD<D>>(factor)));
  }

  double factor;
};

struct Keep {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> value) const {
    return value;
  }
};

struct Normalize {  // to 0 or 1
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> value) const {
    return hn::Min(value, hn::Set(d, hn::TFromD<D>{1}));
  }
};

// Reduces elements of type E in lanes of type Lane. Stores the results as elements of type Out, which is E or float. (A
// separate loop for two sources was no faster.)
template <class E, class Lane, class Op, class Finish, class Out>
class Loop {
 public:
  Loop(const Pass& pass, Finish finish)
      : sources_(pass.args.sources.data()),
        size_(pass.args.sources.size()),
        count_(pass.args.count),
        offset_(pass.begin * sizeof(E)),
        dst_(static_cast<uint8_t*>(pass.args.dst)),
        finish_(finish) {}

  void Run() const {
    const D d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    for (; i + 4 * lanes <= count_; i += 4 * lanes) Vectors<4>(d, i);
    for (; i + lanes <= count_; i += lanes) Vectors<1>(d, i);
    if (i < count_) LessThanOneVector(i);
  }

 private:
  using D = hn::ScalableTag<Lane>;

  HWY_INLINE const uint8_t* Source(size_t index, size_t element) const {
    return static_cast<const uint8_t*>(sources_[index]) + offset_ + element * sizeof(E);
  }

  template <class Tag>
  HWY_INLINE void Store(Tag d, hn::Vec<Tag> value, uint8_t* to) const {
    const hn::Vec<Tag> finished = finish_(d, value);
    if constexpr (std::is_same_v<E, Out>) {
      StoreElements<E>(d, finished, to);
    } else {
      StoreElements<Out>(d, RoundedTo<E>(d, finished), to);
    }
  }

  // Reads all sources before writing anything, because `dst` may be one of the sources. The loop over the sources is
  // short, so it uses several accumulators in registers to keep the loop overhead small.
  template <size_t kVectors, class Tag>
  HWY_INLINE void Vectors(Tag d, size_t begin) const {
    const size_t step = hn::Lanes(d) * sizeof(E);
    const size_t out_step = hn::Lanes(d) * sizeof(Out);
    hn::Vec<Tag> value[kVectors];
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) value[v] = LoadElements<E>(d, Source(0, begin) + v * step);
    for (size_t s = 1; s < size_; ++s) {
      const uint8_t* from = Source(s, begin);
      HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) {
        value[v] = Op::Apply(d, value[v], LoadElements<E>(d, from + v * step));
      }
    }
    uint8_t* const to = dst_ + begin * sizeof(Out);
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) Store(d, value[v], to + v * out_step);
  }

  void LessThanOneVector(size_t begin) const {
    if constexpr (sizeof(Lane) >= sizeof(float)) {
      ShorterVectors<std::max<size_t>(1, HWY_MAX_BYTES / sizeof(Lane) / 2)>(begin);
    } else {
      PaddedVector(begin);
    }
  }

  // Reduces the last elements, which fill no vector, in vectors of half the length, a quarter, and so on. Small
  // reductions consist almost only of such elements. Does not copy them through a buffer, because loads from the buffer
  // would have to wait for the preceding shorter stores, which takes longer than the arithmetic.
  template <size_t kLanes>
  HWY_INLINE void ShorterVectors(size_t begin) const {
    const hn::CappedTag<Lane, kLanes> d;
    for (; begin + hn::Lanes(d) <= count_; begin += hn::Lanes(d)) Vectors<1>(d, begin);
    if constexpr (kLanes > 1) ShorterVectors<kLanes / 2>(begin);
  }

  // Reduces the last elements in one vector, padded with zeros.
  void PaddedVector(size_t begin) const {
    const D d;
    const size_t bytes = (count_ - begin) * sizeof(E);
    uint8_t buffer[HWY_MAX_BYTES] = {};
    std::memcpy(buffer, Source(0, begin), bytes);
    hn::Vec<D> a = LoadElements<E>(d, buffer);
    for (size_t s = 1; s < size_; ++s) {
      std::memcpy(buffer, Source(s, begin), bytes);
      a = Op::Apply(d, a, LoadElements<E>(d, buffer));
    }
    Store(d, a, buffer);
    std::memcpy(dst_ + begin * sizeof(Out), buffer, (count_ - begin) * sizeof(Out));
  }

  const void* const* const sources_;
  const size_t size_;
  const size_t count_;
  const size_t offset_;
  uint8_t* const dst_;
  const Finish finish_;
};

template <class E, class Lane, class Op, class Out = E, class Finish>
void ReduceLanes(const Pass& pass, Finish finish) {
  Loop<E, Lane, Op, Finish, Out>(pass, finish).Run();
}

template <class E, class Out = E>
void ReduceFloats(const Pass& pass) {
  using Lane = std::conditional_t<std::is_same_v<E, double>, double, float>;
  const Multiply finish{pass.factor};
  switch (pass.args.op) {
    case ReduceOp::kSum:
      return ReduceLanes<E, Lane, Sum, Out>(pass, finish);
    case ReduceOp::kMin:
      return ReduceLanes<E, Lane, Min, Out>(pass, finish);
    case ReduceOp::kMax:
      return ReduceLanes<E, Lane, Max, Out>(pass, finish);
    case ReduceOp::kProduct:
      return ReduceLanes<E, Lane, Product, Out>(pass, finish);
    default:
      HWY_ABORT("%s is not defined on %s", Name(pass.args.op), Name(pass.args.dtype));
  }
}

// Reduces elements of a 16-bit floating-point type.
template <class E>
void ReduceHalves(const Pass& pass) {
  if (pass.args.dst_dtype == DType::kFloat32) return ReduceFloats<E, float>(pass);
  ReduceFloats<E>(pass);
}

template <class E>
void ReduceIntegers(const Pass& pass) {
  // Sums and products wrap around, so they are the same for signed and unsigned integers. No target has instructions to
  // multiply bytes.
  using Wrapping = std::make_unsigned_t<E>;
  using Factor = std::conditional_t<sizeof(E) == 1, uint16_t, Wrapping>;
  switch (pass.args.op) {
    case ReduceOp::kSum:
      return ReduceLanes<Wrapping, Wrapping, Sum>(pass, Keep());
    case ReduceOp::kMin:
      return ReduceLanes<E, E, Min>(pass, Keep());
    case ReduceOp::kMax:
      return ReduceLanes<E, E, Max>(pass, Keep());
    case ReduceOp::kProduct:
      return ReduceLanes<Wrapping, Factor, Product>(pass, Keep());
    case ReduceOp::kBitAnd:
      return ReduceLanes<Wrapping, Wrapping, BitAnd>(pass, Keep());
    case ReduceOp::kBitOr:
      return ReduceLanes<Wrapping, Wrapping, BitOr>(pass, Keep());
    case ReduceOp::kBitXor:
      return ReduceLanes<Wrapping, Wrapping, BitXor>(pass, Keep());
  }
}

// The maximum of the bytes is nonzero if any source is true, and the minimum if all sources are.
void ReduceBools(const Pass& pass) {
  switch (pass.args.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return ReduceLanes<uint8_t, uint8_t, Max>(pass, Normalize());
    case ReduceOp::kMin:
    case ReduceOp::kProduct:
    case ReduceOp::kBitAnd:
      return ReduceLanes<uint8_t, uint8_t, Min>(pass, Normalize());
    case ReduceOp::kBitXor:
      return ReduceLanes<uint8_t, uint8_t, BoolXor>(pass, Normalize());
  }
}

void ReduceOnTarget(const ReduceArgs& args, double factor, size_t begin) {
  const Pass pass = {.args = args, .factor = factor, .begin = begin};
  VisitDType(args.dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kBool) {
      ReduceBools(pass);
    } else if constexpr (kKindOf<E> != DTypeKind::kFloating) {
      ReduceIntegers<E>(pass);
    } else if constexpr (sizeof(E) < sizeof(float)) {
      ReduceHalves<E>(pass);
    } else {
      ReduceFloats<E>(pass);
    }
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(ReduceOnTarget);

namespace {

// The number of bytes to reduce before converting them: few enough to stay in the L1 cache together with the sources.
constexpr size_t kBlockBytes = 4096;

// Reduces the elements block by block to `args.dtype`, and converts each block to the destination while it is in the
// cache.
void ReduceThenConvert(const ReduceArgs& args, double factor, const Scale& then_scale) {
  alignas(64) uint8_t block[kBlockBytes];
  auto* dst = static_cast<uint8_t*>(args.dst);
  const size_t step = kBlockBytes / SizeOf(args.dtype);
  ReduceArgs part = args;
  part.dst = block;
  part.dst_dtype = args.dtype;
  for (size_t begin = 0; begin < args.count; begin += step) {
    part.count = std::min(step, args.count - begin);
    HWY_DYNAMIC_DISPATCH(ReduceOnTarget)(part, factor, begin);
    Convert(block, args.dtype, dst + begin * SizeOf(args.dst_dtype), args.dst_dtype, part.count, then_scale);
  }
}

// The number of elements that AddWide() processes at once, one source after the other: few enough that their sums stay
// in the L1 cache.
constexpr size_t kWideElements = 512;

// Adds elements in their WideInteger type (see AddsWide). `dst` may be a source, because each block is read from all
// sources before it is written.
template <class E>
void AddWide(const ReduceArgs& args) {
  using Wide = typename WideInteger<E>::Type;
  std::array<Wide, kWideElements> sums;
  auto* dst = static_cast<uint8_t*>(args.dst);
  for (size_t begin = 0; begin < args.count; begin += kWideElements) {
    const size_t count = std::min(kWideElements, args.count - begin);
    sums.fill(0);
    for (const void* source : args.sources) {
      const uint8_t* const from = static_cast<const uint8_t*>(source) + begin * sizeof(E);
      for (size_t i = 0; i < count; ++i) {
        E element;
        std::memcpy(&element, from + i * sizeof(E), sizeof(E));
        sums[i] += element;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const E result = ScaleInteger<E>(sums[i], args.scale);
      std::memcpy(dst + (begin + i) * sizeof(E), &result, sizeof(E));
    }
  }
}

}  // namespace

void Reduce(const ReduceArgs& args) {
  const bool is_floating = IsFloatingPoint(args.dtype);
  const bool widens_in_registers =
      is_floating && SizeOf(args.dtype) < sizeof(float) && args.dst_dtype == DType::kFloat32;
  if (args.dtype != args.dst_dtype && !widens_in_registers) {
    return ReduceThenConvert(args, args.scale.Factor(), Scale{});
  }
  if (AddsWide(args.op, args.dtype, args.scale)) {
    return VisitDType(args.dtype, [&]<class E>(ElementType<E>) {
      if constexpr (kKindOf<E> == DTypeKind::kSigned || kKindOf<E> == DTypeKind::kUnsigned) AddWide<E>(args);
    });
  }
  const bool scales_integers = !is_floating && args.dtype != DType::kBool && !args.scale.IsIdentity();
  if (scales_integers) return ReduceThenConvert(args, 1.0, args.scale);
  HWY_DYNAMIC_DISPATCH(ReduceOnTarget)(args, args.scale.Factor(), 0);
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
