// SPDX-License-Identifier: Apache-2.0

// Counts the allocations of this process. Linking this library replaces malloc and similar functions. Sanitizers also
// replace malloc, so tests that use this library are tagged "nosan".
#ifndef RONDA_TESTS_TESTING_ALLOCATION_COUNTER_H_
#define RONDA_TESTS_TESTING_ALLOCATION_COUNTER_H_

#include <cstdint>
#include <functional>
#include <string>

namespace ronda::testing {

struct Allocations {
  int64_t count = 0;
  std::string first;  // call stack of the first: return addresses relative to the program's start, for addr2line
};

// Calls `body` once, and counts the allocations that all threads of the process make meanwhile. Not reentrant.
Allocations CountAllocations(const std::function<void()>& body);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_ALLOCATION_COUNTER_H_
