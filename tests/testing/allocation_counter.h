// Counts what this process allocates. Linking this library replaces malloc and what is like it, which sanitizers do
// too: tests that use it are tagged "nosan".
#ifndef RONDA_TESTS_TESTING_ALLOCATION_COUNTER_H_
#define RONDA_TESTS_TESTING_ALLOCATION_COUNTER_H_

#include <cstdint>
#include <functional>
#include <string>

namespace ronda::testing {

struct Allocations {
  int64_t count = 0;
  std::string first;  // where the first of them was made: return addresses from the program's beginning, for
                      // addr2line
};

// Counts the allocations of all threads of the process while `body` runs; `body` is called once. Not reentrant.
Allocations CountAllocations(const std::function<void()>& body);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_ALLOCATION_COUNTER_H_
