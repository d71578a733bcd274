// SPDX-License-Identifier: Apache-2.0

// This benchmark measures how fast the CPU kernels move memory, compared with memcpy.
//
// The rate counts both the bytes read and the bytes written, for memcpy too, so that all lines are comparable. The size
// in a benchmark's name is the size of one fp32 buffer. Buffers of other types have the same number of elements.
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce.h"

namespace ronda::kernels {
namespace {

constexpr int64_t kSmall = 256 << 10;
constexpr int64_t kLarge = 64 << 20;

void ReportRate(benchmark::State& state, size_t bytes_per_iteration) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes_per_iteration) * state.iterations());
}

void BM_Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<uint8_t> src(bytes, 1);
  std::vector<uint8_t> dst(bytes);
  while (state.KeepRunning()) {
    std::memcpy(dst.data(), src.data(), bytes);
    benchmark::ClobberMemory();
  }
  ReportRate(state, 2 * bytes);
}

void BM_Convert(benchmark::State& state, DType from, DType to, Scale scale) {
  const size_t count = static_cast<size_t>(state.range(0)) / sizeof(float);
  std::vector<uint8_t> src(count * SizeOf(from), 0x3C);  // an ordinary number in each of the types
  std::vector<uint8_t> dst(count * SizeOf(to));
  while (state.KeepRunning()) {
    Convert(src.data(), from, dst.data(), to, count, scale);
    benchmark::ClobberMemory();
  }
  ReportRate(state, src.size() + dst.size());
}

void BM_Reduce(benchmark::State& state, DType dtype, DType dst_dtype, size_t source_count) {
  const size_t count = static_cast<size_t>(state.range(0)) / sizeof(float);
  std::vector<std::vector<uint8_t>> buffers(source_count, std::vector<uint8_t>(count * SizeOf(dtype), 0x3C));
  std::vector<const void*> sources;
  sources.reserve(source_count);
  for (const auto& buffer : buffers) sources.push_back(buffer.data());
  std::vector<uint8_t> dst(count * SizeOf(dst_dtype));
  while (state.KeepRunning()) {
    Reduce({.sources = sources,
            .dtype = dtype,
            .op = ReduceOp::kSum,
            .scale = {},
            .dst = dst.data(),
            .dst_dtype = dst_dtype,
            .count = count});
    benchmark::ClobberMemory();
  }
  ReportRate(state, source_count * count * SizeOf(dtype) + dst.size());
}

constexpr Scale kHalf = {.multiplier = 0.5};

#define RONDA_SIZES Arg(kSmall)->Arg(kLarge)
BENCHMARK(BM_Memcpy)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Convert, fp32_to_fp32, DType::kFloat32, DType::kFloat32, Scale{})->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Convert, fp32_to_fp32_scaled, DType::kFloat32, DType::kFloat32, kHalf)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Convert, fp32_to_fp16, DType::kFloat32, DType::kFloat16, Scale{})->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Convert, fp32_to_bf16, DType::kFloat32, DType::kBfloat16, Scale{})->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Convert, fp16_to_fp32, DType::kFloat16, DType::kFloat32, Scale{})->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Convert, bf16_to_fp32, DType::kBfloat16, DType::kFloat32, Scale{})->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, fp32_2_sources, DType::kFloat32, DType::kFloat32, 2)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, fp32_4_sources, DType::kFloat32, DType::kFloat32, 4)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, fp32_8_sources, DType::kFloat32, DType::kFloat32, 8)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, fp16_2_sources, DType::kFloat16, DType::kFloat16, 2)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, fp16_4_sources, DType::kFloat16, DType::kFloat16, 4)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, bf16_4_sources, DType::kBfloat16, DType::kBfloat16, 4)->RONDA_SIZES;
BENCHMARK_CAPTURE(BM_Reduce, fp16_2_sources_to_fp32, DType::kFloat16, DType::kFloat32, 2)->RONDA_SIZES;
#undef RONDA_SIZES

}  // namespace
}  // namespace ronda::kernels

BENCHMARK_MAIN();
