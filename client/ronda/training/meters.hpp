// SPDX-License-Identifier: Apache-2.0

// Averages training metrics, such as the loss, over all samples of all ranks.
#ifndef RONDA_CLIENT_RONDA_TRAINING_METERS_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_METERS_HPP_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "../options.hpp"
#include "../reductions.hpp"
#include "../status.hpp"
#include "../tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace training {

// Computes a weighted average of numbers, on this rank alone. Thread-compatible.
class Average {
 public:
  // `value` is the mean of a metric, such as the loss, over `weight` samples. `weight` must not be negative.
  void add(double value, double weight = 1) noexcept {
    sum_ += value * weight;
    weight_ += weight;
  }

  // Returns the average, which is NaN before the first add().
  double value() const noexcept { return weight_ > 0 ? sum_ / weight_ : std::numeric_limits<double>::quiet_NaN(); }
  double sum() const noexcept { return sum_; }
  double weight() const noexcept { return weight_; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

// Computes the fraction of correct predictions, on this rank alone. Thread-compatible.
class Accuracy {
 public:
  explicit Accuracy(Average& average) noexcept : average_(average) {}

  void add(bool is_right) noexcept { average_.add(is_right ? 1 : 0); }
  // Adds `all` predictions, of which `right` are correct.
  void add(std::int64_t right, std::int64_t all) noexcept {
    if (all > 0) average_.add(static_cast<double>(right) / static_cast<double>(all), static_cast<double>(all));
  }

 private:
  Average& average_;
};

// Keeps named averages. reduce() combines them over all ranks in one small allreduce.
//
//   ronda::training::Meters meters;
//   ... in each step
//   meters.average("loss").add(loss, batch_size);
//   meters.accuracy("accuracy").add(right, batch_size);
//   ... at the epoch's end, on every rank
//   for (const auto& [name, value] : meters.reduce()) ...
//
// Thread-compatible.
class Meters {
 public:
  // Returns the average named `name`, which the first call creates. The reference is valid as long as the Meters
  // object.
  Average& average(const std::string& name) { return averages_[name]; }
  Accuracy accuracy(const std::string& name) { return Accuracy(average(name)); }

  // Returns, by name, the averages over the values that all ranks have added since the last call. An average is NaN if
  // no rank has added a value. Every rank that has not joined must call the function, with averages of the same names.
  // Errors: the errors of an allreduce; RONDA_ERROR_MISMATCH if a rank has averages with different names. After an
  // error, all values are kept and included in the next reduce().
  Result<std::map<std::string, double>> try_reduce(const CallOptions& call = {}) {
    std::vector<double> sums;
    for (const auto& [name, average] : averages_) {
      sums.push_back(average.sum());
      sums.push_back(average.weight());
    }
    sums.push_back(1);  // the sum is the number of ranks that take part: the others have joined
    sums.push_back(hash_of_names());
    ReduceOptions sum;
    sum.op = Op::Sum;
    Status status = try_allreduce(tensor("ronda.training.meters", sums), sum, call);
    if (!status.ok()) return status;
    const double ranks = sums[sums.size() - 2];
    if (sums.back() != ranks * hash_of_names()) return different_names();
    std::map<std::string, double> reduced;
    std::size_t at = 0;
    for (auto& [name, average] : averages_) {
      Average over_all;
      if (sums[at + 1] > 0) over_all.add(sums[at] / sums[at + 1], sums[at + 1]);
      reduced[name] = over_all.value();
      average = Average();
      at += 2;
    }
    return reduced;
  }
  std::map<std::string, double> reduce(const CallOptions& call = {}) { return try_reduce(call).value(); }

 private:
  // The hash is 32-bit FNV-1a, so a double can hold the sum of all ranks' hashes exactly.
  double hash_of_names() const {
    std::uint32_t hash = 2166136261;
    for (const auto& [name, average] : averages_) {
      for (const char c : name + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    }
    return hash;
  }

  Status different_names() const {
    std::string names;
    for (const auto& [name, average] : averages_) names += (names.empty() ? "'" : ", '") + name + "'";
    return Status(RONDA_ERROR_MISMATCH, "Meters: not all ranks have the averages of this rank, " +
                                            (names.empty() ? std::string("none") : names) +
                                            ": use the same names on every rank");
  }

  std::map<std::string, Average> averages_;  // sorted, and so in the same order on every rank
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_METERS_HPP_
