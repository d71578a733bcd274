#include <algorithm>
#include <cstdint>

#include "kernels/cpu/fp8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8_reduce.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which decides what these mean.
#include "hwy/highway.h"
#include "kernels/cpu/fp8-inl.h"
#include "kernels/cpu/operators-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

// Reduces the blocks that are `at` bytes into each source.
template <class F, class Op>
void ReduceBlock(const ReduceFp8Args& args, size_t at, Fp8Values& values) {
  constexpr size_t kVectors = 4;
  const hn::ScalableTag<float> d;
  const void* const* const sources = args.sources.data();
  const auto block = [=](size_t source) { return BlockReader<F>(static_cast<const uint8_t*>(sources[source]) + at); };
  const auto factor = hn::Set(d, static_cast<float>(args.scale.Factor()));
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < kFp8BlockElements; i += kVectors * lanes) {
    hn::Vec<decltype(d)> value[kVectors];
    const BlockReader<F> first = block(0);
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) value[v] = first.Load(d, i + v * lanes);
    for (size_t s = 1; s < args.sources.size(); ++s) {
      const BlockReader<F> next = block(s);
      HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) {
        value[v] = Op::Apply(d, value[v], next.Load(d, i + v * lanes));
      }
    }
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(hn::Mul(value[v], factor), d, values.at + i + v * lanes);
    }
  }
}

// Reduces `count` elements, from the blocks `at` bytes into each source on.
template <class F, class Op>
void ReduceBlocks(const ReduceFp8Args& args, size_t at, size_t count, uint8_t* dst) {
  for (size_t begin = 0; begin < count; begin += kFp8BlockElements, at += kFp8BlockBytes, dst += kFp8BlockBytes) {
    Fp8Values values;
    ReduceBlock<F, Op>(args, at, values);
    const size_t used = std::min(count - begin, kFp8BlockElements);
    std::fill(values.at + used, std::end(values.at), 0.0f);  // a factor may have given unused zeros a sign
    EncodeBlock<F>(values, dst);
  }
}

template <class F>
void ReduceFormat(const ReduceFp8Args& args, size_t at, size_t count, uint8_t* dst) {
  switch (args.op) {
    case ReduceOp::kSum:
      return ReduceBlocks<F, Sum>(args, at, count, dst);
    case ReduceOp::kMin:
      return ReduceBlocks<F, Min>(args, at, count, dst);
    case ReduceOp::kMax:
      return ReduceBlocks<F, Max>(args, at, count, dst);
    case ReduceOp::kProduct:
      return ReduceBlocks<F, Product>(args, at, count, dst);
    default:
      HWY_ABORT("%s is not defined on fp8", Name(args.op));
  }
}

void ReduceFp8OnTarget(const ReduceFp8Args& args, size_t at, size_t count, uint8_t* dst) {
  VisitFp8Format(args.format, [&]<class F>(F) { ReduceFormat<F>(args, at, count, dst); });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {
namespace {

// What is reduced, then decoded, at a time: small enough to stay in the L1 cache next to the sources.
constexpr size_t kStepBlocks = 8;

}  // namespace

HWY_EXPORT(ReduceFp8OnTarget);

void ReduceFp8(const ReduceFp8Args& args) {
  auto* dst = static_cast<uint8_t*>(args.dst);
  if (!args.dst_dtype.has_value()) return HWY_DYNAMIC_DISPATCH(ReduceFp8OnTarget)(args, 0, args.count, dst);
  uint8_t blocks[kStepBlocks * kFp8BlockBytes];
  for (size_t begin = 0, at = 0; begin < args.count; begin += kStepBlocks * kFp8BlockElements, at += sizeof(blocks)) {
    const size_t count = std::min(args.count - begin, kStepBlocks * kFp8BlockElements);
    HWY_DYNAMIC_DISPATCH(ReduceFp8OnTarget)(args, at, count, blocks);
    DecodeFp8(blocks, args.format, dst + begin * SizeOf(*args.dst_dtype), *args.dst_dtype, count);
  }
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
