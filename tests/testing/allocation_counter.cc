// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/allocation_counter.h"

#include <execinfo.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <sstream>

// The address at which the program was loaded. The linker defines this symbol.
extern "C" const char __executable_start;

// The C library's allocation functions, under names by which programs that replace malloc can still call them.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

constexpr int kDepth = 32;

std::atomic<bool> counting{false};
std::atomic<int64_t> count{0};
// The call stack of the first allocation. Only the thread that made the allocation writes it.
void* first_stack[kDepth];
std::atomic<int> first_depth{0};

void Count() {
  if (!counting.load(std::memory_order_relaxed)) return;
  if (count.fetch_add(1, std::memory_order_relaxed) == 0) {
    first_depth.store(backtrace(first_stack, kDepth), std::memory_order_release);
  }
}

}  // namespace

#define RONDA_REPLACES_LIBC extern "C" __attribute__((visibility("default")))

RONDA_REPLACES_LIBC void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
RONDA_REPLACES_LIBC void* calloc(size_t number, size_t size) {
  Count();
  return __libc_calloc(number, size);
}
RONDA_REPLACES_LIBC void* realloc(void* memory, size_t size) {
  Count();
  return __libc_realloc(memory, size);
}
RONDA_REPLACES_LIBC void* memalign(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
RONDA_REPLACES_LIBC void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
RONDA_REPLACES_LIBC int posix_memalign(void** memory, size_t alignment, size_t size) {
  Count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

namespace ronda::testing {

Allocations CountAllocations(const std::function<void()>& body) {
  // The first call of backtrace() loads a library, which allocates memory, so it must come before counting begins.
  void* unused[1];
  backtrace(unused, 1);
  count.store(0);
  first_depth.store(0);
  counting.store(true);
  body();
  counting.store(false);
  std::ostringstream where;
  for (int i = 0; i < first_depth.load(std::memory_order_acquire); ++i) {
    where << " 0x" << std::hex << static_cast<const char*>(first_stack[i]) - &__executable_start;
  }
  return {.count = count.load(), .first = where.str()};
}

}  // namespace ronda::testing
