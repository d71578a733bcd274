// What the operations of a chaos test have in common.
#ifndef RONDA_TESTS_CHAOS_PLANNED_OPERATION_H_
#define RONDA_TESTS_CHAOS_PLANNED_OPERATION_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/chaos/operation.h"
#include "tests/chaos/round_plan.h"

namespace ronda::chaos {

// A small integer that depends on everything: sums and products of a few are exact in every dtype and on every wire.
inline int ValueOf(uint64_t seed, int rank, size_t index) {
  uint64_t bits = seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(rank + 1) + index;
  bits = (bits ^ (bits >> 31)) * 0x7fb5d329728ea185u;
  return static_cast<int>((bits >> 40) % 9) - 4;
}

template <class T>
std::vector<T> Contribution(uint64_t seed, int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(ValueOf(seed, rank, i));
  return values;
}

inline size_t SomeCount(Random& random) {
  constexpr size_t kCounts[] = {0, 1, 7, 127, 1000, 4096, 30000};
  return kCounts[random.Below(std::size(kCounts))];
}

// What all operations know of themselves: decisions are drawn in the same order on every rank.
class PlannedOperation : public Operation {
 public:
  PlannedOperation(const OperationPlan& plan, int rank) : plan_(plan), rank_(rank), random_(plan.seed) {}

 protected:
  bool is_root() const { return rank_ == plan_.root; }
  size_t members() const { return plan_.members.size(); }
  size_t position() const { return PositionOf(rank_); }
  size_t PositionOf(int rank) const {
    const auto it = std::find(plan_.members.begin(), plan_.members.end(), rank);
    return static_cast<size_t>(it - plan_.members.begin());
  }

  // Each member's number of rows, for operations in which they differ.
  std::vector<int64_t> DrawRows() {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < members(); ++i) rows.push_back(random_.OneIn(4) ? 0 : random_.Below(600));
    return rows;
  }

  // `wire_error` is what an 8-bit wire may add to an element.
  template <class T>
  void ExpectEqual(const std::vector<T>& result, const std::vector<T>& expected, double wire_error = 0) const {
    ASSERT_EQ(result.size(), expected.size()) << Where();
    for (size_t i = 0; i < result.size(); ++i) {
      const auto is = static_cast<double>(result[i]);
      const auto should_be = static_cast<double>(expected[i]);
      ASSERT_EQ(std::isfinite(is), std::isfinite(should_be)) << Where() << ", element " << i << " is " << is;
      if (!std::isfinite(is)) continue;
      // Averages are divided in the wire's format.
      const double tolerance = std::is_integral_v<T> ? 0 : 0.02 * std::abs(should_be) + wire_error;
      ASSERT_NEAR(is, should_be, tolerance) << Where() << ", element " << i << " of " << result.size();
    }
  }

  std::string Where() const {
    return plan_.name + " of kind " + std::to_string(static_cast<int>(plan_.kind)) + " on rank " +
           std::to_string(rank_) + ", seed " + std::to_string(plan_.seed);
  }

  const OperationPlan plan_;
  const int rank_;
  Random random_;
};

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_PLANNED_OPERATION_H_
