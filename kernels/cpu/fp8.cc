#include "kernels/cpu/fp8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which decides what these mean.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/feedback-inl.h"
#include "kernels/cpu/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

// Loads and scales `count` elements, at most a block of them; zeros follow.
template <class E>
void LoadBlock(const uint8_t* src, size_t count, double factor, Fp8Values& values) {
  uint8_t padded[kFp8BlockElements * sizeof(E)];
  if (count < kFp8BlockElements) {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, src, count * sizeof(E));
    src = padded;
  }
  const FloatsFor<E> d;
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    hn::Store(LoadScaledFloats<E>(d, src + i * sizeof(E), factor), d, values.at + i);
  }
  std::fill(values.at + count, std::end(values.at), 0.0f);  // not the zeros of before: a factor gives zeros a sign
}

// Encodes the sum of `values` and `residual`, a block of both, and keeps there what was lost.
template <class F>
void EncodeWithFeedback(Fp8Values& values, float* residual, uint8_t* block) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    hn::Store(hn::Add(hn::Load(d, values.at + i), hn::LoadU(d, residual + i)), d, values.at + i);
  }
  EncodeBlock<F>(values, block);
  const BlockReader<F> reader(block);
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    hn::StoreU(Lost(d, hn::Load(d, values.at + i), reader.Load(d, i)), d, residual + i);
  }
}

// Encodes `values`, of which only the first `count` are not zero, with the residual of as many if there is one.
template <class F>
void EncodeValues(Fp8Values& values, size_t count, float* residual, uint8_t* block) {
  if (residual == nullptr) return EncodeBlock<F>(values, block);
  if (count == kFp8BlockElements) return EncodeWithFeedback<F>(values, residual, block);
  float padded[kFp8BlockElements] = {};
  std::memcpy(padded, residual, count * sizeof(float));
  EncodeWithFeedback<F>(values, padded, block);
  std::memcpy(residual, padded, count * sizeof(float));
}

template <class F, class E>
void EncodeBlocks(const EncodeFp8Args& args) {
  const auto* src = static_cast<const uint8_t*>(args.src);
  auto* block = static_cast<uint8_t*>(args.blocks);
  for (size_t begin = 0; begin < args.count; begin += kFp8BlockElements, block += kFp8BlockBytes) {
    const size_t count = std::min(args.count - begin, kFp8BlockElements);
    Fp8Values values;
    LoadBlock<E>(src + begin * sizeof(E), count, args.scale.Factor(), values);
    float* residual = args.residual == nullptr ? nullptr : args.residual + begin;
    EncodeValues<F>(values, count, residual, block);
  }
}

template <class F, class E>
void DecodeBlock(const uint8_t* block, uint8_t* dst) {
  const FloatsFor<E> d;
  const BlockReader<F> reader(block);
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d))
    StoreFloats<E>(d, reader.Load(d, i), dst + i * sizeof(E));
}

template <class F, class E>
void DecodeBlocks(const uint8_t* block, uint8_t* dst, size_t count) {
  constexpr size_t kDecodedBytes = kFp8BlockElements * sizeof(E);
  for (; count >= kFp8BlockElements; count -= kFp8BlockElements, block += kFp8BlockBytes, dst += kDecodedBytes) {
    DecodeBlock<F, E>(block, dst);
  }
  if (count == 0) return;
  uint8_t last[kDecodedBytes];
  DecodeBlock<F, E>(block, last);
  std::memcpy(dst, last, count * sizeof(E));
}

void EncodeFp8OnTarget(const EncodeFp8Args& args) {
  VisitFp8Format(args.format, [&]<class F>(F) {
    VisitFloatType(args.src_dtype, [&]<class E>(ElementType<E>) { EncodeBlocks<F, E>(args); });
  });
}

void DecodeFp8OnTarget(const uint8_t* blocks, Fp8Format format, uint8_t* dst, DType dst_dtype, size_t count) {
  VisitFp8Format(format, [&]<class F>(F) {
    VisitFloatType(dst_dtype, [&]<class E>(ElementType<E>) { DecodeBlocks<F, E>(blocks, dst, count); });
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(EncodeFp8OnTarget);
HWY_EXPORT(DecodeFp8OnTarget);

void EncodeFp8(const EncodeFp8Args& args) { HWY_DYNAMIC_DISPATCH(EncodeFp8OnTarget)(args); }

void DecodeFp8(const void* blocks, Fp8Format format, void* dst, DType dst_dtype, size_t count) {
  HWY_DYNAMIC_DISPATCH(DecodeFp8OnTarget)
  (static_cast<const uint8_t*>(blocks), format, static_cast<uint8_t*>(dst), dst_dtype, count);
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
