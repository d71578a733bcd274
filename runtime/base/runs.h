// Ascending numbers as (first, length) pairs: how the wire says ranks and cache ids.
#ifndef RONDA_RUNTIME_BASE_RUNS_H_
#define RONDA_RUNTIME_BASE_RUNS_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace ronda {

// 7, 8, 9, 3 is 7, 3, 3, 1. Any sequence can be said; consecutive numbers cost nothing.
template <typename T>
class RunWriter {
 public:
  void Add(T value) {
    if (length_ > 0 && value == first_ + length_) {
      ++length_;
      return;
    }
    Flush();
    first_ = value;
    length_ = 1;
  }

  std::vector<T> Take() {
    Flush();
    return std::move(runs_);
  }

 private:
  void Flush() {
    if (length_ == 0) return;
    runs_.push_back(first_);
    runs_.push_back(length_);
  }

  std::vector<T> runs_;
  T first_ = 0;
  T length_ = 0;
};

template <typename T>
std::vector<T> ToRuns(const std::vector<T>& values) {
  RunWriter<T> writer;
  for (T value : values) writer.Add(value);
  return writer.Take();
}

// nullopt if `runs` has an odd length, an empty run, a number that overflows or is negative, or more than `limit`
// numbers in all: a few damaged bytes must not ask for all memory.
template <typename T, typename Runs>
std::optional<std::vector<T>> FromRuns(const Runs& runs, size_t limit) {
  std::vector<T> values;
  if (runs.size() % 2 != 0) return std::nullopt;
  for (int i = 0; i < static_cast<int>(runs.size()); i += 2) {
    const T first = runs[i], length = runs[i + 1];
    if (first < 0 || length <= 0 || static_cast<size_t>(length) > limit - values.size()) return std::nullopt;
    if (first > std::numeric_limits<T>::max() - length) return std::nullopt;
    for (T value = first; value < first + length; ++value) values.push_back(value);
  }
  return values;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_RUNS_H_
