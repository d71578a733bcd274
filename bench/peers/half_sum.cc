#include "bench/peers/half_sum.h"

#include <immintrin.h>

#include <cstring>

namespace {

constexpr size_t kLanes = 8;

__attribute__((target("avx,f16c"))) void AddEight(const uint16_t* input, uint16_t* output) {
  const __m256 left = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(input)));
  const __m256 right = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(output)));
  const __m128i sum = _mm256_cvtps_ph(_mm256_add_ps(left, right), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(output), sum);
}

}  // namespace

bool CanAddHalves() { return __builtin_cpu_supports("f16c") != 0; }

__attribute__((target("avx,f16c"))) void AddHalves(const uint16_t* input, uint16_t* output, size_t count) {
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) AddEight(input + i, output + i);
  const size_t rest = count - whole;
  if (rest == 0) return;
  uint16_t left[kLanes] = {};
  uint16_t right[kLanes] = {};
  std::memcpy(left, input + whole, rest * sizeof(uint16_t));
  std::memcpy(right, output + whole, rest * sizeof(uint16_t));
  AddEight(left, right);
  std::memcpy(output + whole, right, rest * sizeof(uint16_t));
}
