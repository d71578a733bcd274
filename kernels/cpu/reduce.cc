#include "kernels/cpu/reduce.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce_vectors.h"

namespace ronda::kernels {
namespace {

// What is reduced, then converted, at a time: small enough to stay in the L1 cache next to the sources.
constexpr size_t kBlockBytes = 4096;

// Reduces block by block to `args.dtype`, and converts each block to its destination while it is in the cache.
void ReduceThenConvert(const ReduceArgs& args, double factor, const Scale& then_scale) {
  alignas(64) uint8_t block[kBlockBytes];
  auto* dst = static_cast<uint8_t*>(args.dst);
  const size_t step = kBlockBytes / SizeOf(args.dtype);
  for (size_t begin = 0; begin < args.count; begin += step) {
    const size_t end = std::min(args.count, begin + step);
    ReduceVectors({.sources = args.sources,
                   .dtype = args.dtype,
                   .op = args.op,
                   .factor = factor,
                   .begin = begin,
                   .end = end,
                   .dst_dtype = args.dtype,
                   .dst = block});
    Convert(block, args.dtype, dst + begin * SizeOf(args.dst_dtype), args.dst_dtype, end - begin, then_scale);
  }
}

}  // namespace

void Reduce(const ReduceArgs& args) {
  const bool widens_in_registers =
      (args.dtype == DType::kFloat16 || args.dtype == DType::kBfloat16) && args.dst_dtype == DType::kFloat32;
  if (args.dtype != args.dst_dtype && !widens_in_registers) {
    return ReduceThenConvert(args, args.scale.Factor(), Scale{});
  }
  const bool scales_integers = !IsFloatingPoint(args.dtype) && args.dtype != DType::kBool && !args.scale.IsIdentity();
  if (scales_integers) return ReduceThenConvert(args, 1.0, args.scale);
  ReduceVectors({.sources = args.sources,
                 .dtype = args.dtype,
                 .op = args.op,
                 .factor = args.scale.Factor(),
                 .begin = 0,
                 .end = args.count,
                 .dst_dtype = args.dst_dtype,
                 .dst = args.dst});
}

}  // namespace ronda::kernels
