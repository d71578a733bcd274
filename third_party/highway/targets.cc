// SPDX-License-Identifier: Apache-2.0

// The part of Highway that is not in its headers: the choice among the CPU's instruction sets. Debian has this part
// only as a shared library, which would have to be installed wherever libronda.so is loaded.
#include "hwy/targets.h"

#include <cpuid.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace hwy {
namespace {

// The targets that a test uses instead of the CPU's targets; 0: there is no such test.
std::atomic<int64_t> targets_for_test{0};

bool HasF16c() {
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Returns the CPU's targets. hwy/ops/set_macros-inl.h names the instructions that each target needs. The compiler's
// functions also check whether the operating system saves the registers.
int64_t TargetsOfCpu() {
  int64_t targets = HWY_EMU128;
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  const bool has_sse4 = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
                        __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
  if (!has_sse4) return targets;
  targets |= HWY_SSE4;
  const bool has_avx2 = __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                        __builtin_cpu_supports("fma") && HasF16c();
  if (!has_avx2) return targets;
  targets |= HWY_AVX2;
  const bool has_avx3 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return has_avx3 ? targets | HWY_AVX3 : targets;
}

}  // namespace

int64_t SupportedTargets() {
  const int64_t for_test = targets_for_test.load();
  return for_test != 0 ? for_test : TargetsOfCpu();
}

void SetSupportedTargetsForTest(int64_t targets) { targets_for_test.store(targets); }

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

void Abort(const char* file, int line, const char* format, ...) {
  char text[800];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "%s:%d: %s\n", file, line, text);
  std::abort();
}

}  // namespace hwy
