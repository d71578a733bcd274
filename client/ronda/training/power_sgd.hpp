// SPDX-License-Identifier: Apache-2.0

// Implements PowerSGD for slow links: ranks exchange low-rank approximations of gradients. The approximation changes
// the results of training.
#ifndef RONDA_CLIENT_RONDA_TRAINING_POWER_SGD_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_POWER_SGD_HPP_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../options.hpp"
#include "../reductions.hpp"
#include "../status.hpp"
#include "../tensor.hpp"
#include "gradients.hpp"
#include "random.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// Holds a gradient as a matrix M of n rows and m columns, and the values that its compression keeps for the next step.
// Implements algorithms 1 and 2 of Vogels, Karimireddy and Jaggi, "PowerSGD", 2019, in the notation of that paper. The
// matrices P (n x r) and Q (m x r) are stored column by column. Values that must be equal on all ranks are computed
// only from reduced values.
template <class T>
class LowRankMatrix {
 public:
  LowRankMatrix(const Tensor& gradient, std::size_t rank, std::uint64_t seed)
      : gradient_(gradient),
        n_(static_cast<std::size_t>(gradient.shape[0])),
        m_(gradient.count() / n_),
        r_(rank),
        seed_(seed),
        p_(r_ * n_),
        q_(r_ * m_),
        error_(n_ * m_) {
    fill_empty_columns(0);
  }

  Tensor p() { return tensor("ronda.training.power_sgd.p." + gradient_.name, p_); }
  Tensor q() { return tensor("ronda.training.power_sgd.q." + gradient_.name, q_); }
  Tensor error() { return tensor("ronda.training.power_sgd.error." + gradient_.name, error_); }

  // Adds the error of the previous step to the gradient, and sets P = M Q.
  void compress() {
    T* const matrix = elements();
    for (std::size_t i = 0; i < error_.size(); ++i) matrix[i] += error_[i];
    for (std::size_t k = 0; k < r_; ++k) {
      for (std::size_t i = 0; i < n_; ++i) p_[k * n_ + i] = dot(matrix + i * m_, q_.data() + k * m_, m_);
    }
  }

  // Must be called once P has been reduced. Makes the columns of P orthonormal, and sets Q = M^T P. Stores the
  // compression error M - P Q^T of this rank's M.
  void compress_again() {
    orthonormalize();
    const T* const matrix = elements();
    std::fill(q_.begin(), q_.end(), T{0});
    for (std::size_t k = 0; k < r_; ++k) {
      for (std::size_t i = 0; i < n_; ++i) add(p_[k * n_ + i], matrix + i * m_, q_.data() + k * m_);
    }
    std::copy(matrix, matrix + error_.size(), error_.begin());
    add_product(T{-1}, error_.data());
  }

  // Must be called once Q has been reduced. Sets the gradient to P Q^T. Step `step` + 1 starts with the reduced Q.
  void decompress(std::int64_t step) {
    std::fill(elements(), elements() + error_.size(), T{0});
    add_product(T{1}, elements());
    fill_empty_columns(step);
  }

 private:
  T* elements() const { return static_cast<T*>(gradient_.data); }

  // Uses several partial sums, so that compilers can vectorize the loop.
  static T dot(const T* a, const T* b, std::size_t count) {
    constexpr std::size_t kSums = 8;
    T sums[kSums] = {};
    std::size_t i = 0;
    for (; i + kSums <= count; i += kSums) {
      for (std::size_t s = 0; s < kSums; ++s) sums[s] += a[i + s] * b[i + s];
    }
    for (; i < count; ++i) sums[0] += a[i] * b[i];
    T sum = 0;
    for (const T part : sums) sum += part;
    return sum;
  }

  // Adds `factor` times the row `from` to the row `to`.
  void add(T factor, const T* from, T* to) const {
    for (std::size_t j = 0; j < m_; ++j) to[j] += factor * from[j];
  }

  // Adds `factor` P Q^T to the matrix `to`.
  void add_product(T factor, T* to) const {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t k = 0; k < r_; ++k) add(factor * p_[k * n_ + i], q_.data() + k * m_, to + i * m_);
    }
  }

  // Makes the columns orthonormal with the Gram-Schmidt process. The process runs twice for each column, because after
  // the first run, rounding errors leave too much of the other columns in it. A column that is a linear combination of
  // the previous columns becomes zero.
  void orthonormalize() {
    for (std::size_t k = 0; k < r_; ++k) {
      T* const column = p_.data() + k * n_;
      const double before = norm(column);
      for (int pass = 0; pass < 2; ++pass) {
        for (std::size_t l = 0; l < k; ++l) {
          const T* const other = p_.data() + l * n_;
          double part = 0;
          for (std::size_t i = 0; i < n_; ++i) part += static_cast<double>(column[i]) * static_cast<double>(other[i]);
          for (std::size_t i = 0; i < n_; ++i) column[i] = static_cast<T>(column[i] - part * other[i]);
        }
        const double left = norm(column);
        const bool is_empty = left <= before * static_cast<double>(std::numeric_limits<T>::epsilon());
        for (std::size_t i = 0; i < n_; ++i) column[i] = is_empty ? T{0} : static_cast<T>(column[i] / left);
        if (is_empty) break;
      }
    }
  }

  double norm(const T* column) const {
    double squares = 0;
    for (std::size_t i = 0; i < n_; ++i) squares += static_cast<double>(column[i]) * static_cast<double>(column[i]);
    return std::sqrt(squares);
  }

  // Fills each zero column of Q with new random numbers, because it would otherwise stay zero.
  void fill_empty_columns(std::int64_t step) {
    Random random(seed_, static_cast<std::uint64_t>(step));
    for (std::size_t k = 0; k < r_; ++k) {
      const auto begin = q_.begin() + static_cast<std::ptrdiff_t>(k * m_);
      const auto end = begin + static_cast<std::ptrdiff_t>(m_);
      if (std::any_of(begin, end, [](T element) { return element != 0; })) continue;
      std::generate(begin, end, [&random] { return static_cast<T>(random.symmetric()); });
    }
  }

  const Tensor gradient_;
  const std::size_t n_, m_, r_;
  const std::uint64_t seed_;
  std::vector<T> p_, q_, error_;
};

using AnyLowRankMatrix = std::variant<LowRankMatrix<float>, LowRankMatrix<double>>;

}  // namespace detail

namespace training {

struct PowerSgdOptions {
  int rank = 4;  // of the approximations: a higher rank loses less and sends more; at least 1

  // A gradient is sent uncompressed if it has one dimension, or if compression would shrink it by less than this
  // factor. With 0, all gradients with at least two dimensions are compressed.
  double min_saving = 2;

  std::int64_t start_step = 0;  // before this step, gradients are averaged uncompressed
  std::uint64_t seed = 0;       // of the initial directions; the same on every rank
  CallOptions call = {};
};

// Averages gradients over the ranks by sending two thin matrices per gradient. The method is from Vogels, Karimireddy
// and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization", 2019, algorithms 1 and
// 2. Each rank adds the compression error of a step to its gradients in the next step. A gradient is treated as a
// matrix with one row per index of its first dimension.
//
//   ronda::training::PowerSgd power({ronda::tensor("fc1", fc1_gradient), ...});
//   for (...) {
//     ... backward
//     power.reduce();
//     sgd.step();                        with momentum, if any
//   }
//
// Use PowerSgd instead of DistributedOptimizer. Every rank must make the same calls, with gradients of the same names,
// shapes and dtypes, float32 or float64 in host memory. The gradients must outlive the PowerSgd object. The results are
// bitwise equal on all ranks. Thread-compatible.
class PowerSgd {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if an option is out of range, or a gradient is not float32 or float64
  // in host memory.
  explicit PowerSgd(std::vector<Tensor> gradients, const PowerSgdOptions& options = {})
      : gradients_(std::move(gradients)), options_(options) {
    if (options.rank < 1 || !(options.min_saving >= 0) || options.start_step < 0) {
      throw Error(RONDA_ERROR_INVALID_ARGUMENT, "PowerSgd: rank is " + std::to_string(options.rank) + ", min_saving " +
                                                    std::to_string(options.min_saving) + ", start_step " +
                                                    std::to_string(options.start_step) +
                                                    ": they must be at least 1, 0 and 0");
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      detail::visit_elements(gradients_[i], [](auto&) {}).throw_if_error();
      dense_bytes_ += gradients_[i].bytes();
      if (const std::size_t rank = rank_for(gradients_[i]); rank > 0) {
        add_matrix(gradients_[i], rank, detail::Random(options.seed, i).next());
      } else {
        whole_.push_back(gradients_[i]);
      }
    }
  }

  // Replaces the gradients by an approximation of their average over the ranks.
  // Errors: the errors of an allreduce; the gradients are then undefined.
  Status try_reduce() {
    ++steps_;
    overflowed_ = false;
    if (steps_ <= options_.start_step) return average_whole();
    std::vector<Tensor> round = whole_;
    for_each_matrix([&](auto& matrix) {
      matrix.compress();
      round.push_back(matrix.p());
    });
    bytes_sent_ = bytes_of(round);
    Status status = average(round);
    if (!status.ok() || overflowed_) return status;
    std::vector<Tensor> second;
    for_each_matrix([&](auto& matrix) {
      matrix.compress_again();
      second.push_back(matrix.q());
    });
    bytes_sent_ += bytes_of(second);
    if (second.empty()) return {};
    status = try_grouped_allreduce("ronda.training.power_sgd.q", second, {}, options_.call);
    if (status.ok()) for_each_matrix([this](auto& matrix) { matrix.decompress(steps_); });
    return status;
  }
  void reduce() { try_reduce().throw_if_error(); }

  // Returns whether any rank's gradients had an infinite or NaN element in the last reduce(). The result is the same on
  // every rank. If it is true, the gradients are undefined, and the program must skip the step. The compression errors
  // of the previous steps are kept.
  bool overflowed() const noexcept { return overflowed_; }

  // bytes_sent() is the number of bytes that this rank passed to allreduces in the last reduce(). dense_bytes() is the
  // number of bytes that it would pass without compression.
  std::size_t bytes_sent() const noexcept { return bytes_sent_; }
  std::size_t dense_bytes() const noexcept { return dense_bytes_; }

  // Returns all values on which the next step depends. The compression errors differ between ranks. If every rank calls
  // average_state(), each rank's errors are replaced by their mean over the ranks. This does not change the sum over
  // the ranks of the values that later steps send. After average_state(), the state is the same on all ranks, so
  // Checkpoints can save rank 0's state, and a job of any number of ranks can resume from it.
  std::vector<Tensor> state() {
    std::vector<Tensor> state = {tensor("ronda.training.power_sgd.steps", &steps_)};
    for_each_matrix([&](auto& matrix) {
      state.push_back(matrix.error());
      state.push_back(matrix.q());
    });
    return state;
  }
  // Errors: the errors of an allreduce; the state is then undefined.
  Status try_average_state() {
    return try_grouped_allreduce("ronda.training.power_sgd.state", state(), {}, options_.call);
  }
  void average_state() { try_average_state().throw_if_error(); }

 private:
  // Returns the rank of the gradient's approximation, or 0 if the gradient is sent uncompressed.
  std::size_t rank_for(const Tensor& gradient) const {
    if (gradient.shape.size() < 2 || gradient.count() == 0) return 0;
    const auto rows = static_cast<std::size_t>(gradient.shape[0]), columns = gradient.count() / rows;
    const std::size_t rank = std::min({static_cast<std::size_t>(options_.rank), rows, columns});
    const double saving = static_cast<double>(gradient.count()) / static_cast<double>(rank * (rows + columns));
    return saving >= options_.min_saving ? rank : 0;
  }

  void add_matrix(const Tensor& gradient, std::size_t rank, std::uint64_t seed) {
    if (gradient.dtype == RONDA_FLOAT32) {
      matrices_.emplace_back(std::in_place_type<detail::LowRankMatrix<float>>, gradient, rank, seed);
    } else {
      matrices_.emplace_back(std::in_place_type<detail::LowRankMatrix<double>>, gradient, rank, seed);
    }
  }

  template <class Visit>
  void for_each_matrix(const Visit& visit) {
    for (detail::AnyLowRankMatrix& matrix : matrices_) std::visit(visit, matrix);
  }

  Status average_whole() {
    bytes_sent_ = dense_bytes_;
    return average(gradients_);
  }

  // Averages `tensors`, and checks the results for overflow. If M has an infinite or NaN element, so does P, so every
  // rank sees the overflow.
  Status average(const std::vector<Tensor>& tensors) {
    if (tensors.empty()) return {};
    Status status = try_grouped_allreduce("ronda.training.power_sgd", tensors, {}, options_.call);
    for (std::size_t i = 0; i < tensors.size() && status.ok(); ++i) {
      status = detail::visit_elements(tensors[i], [this](auto element) { overflowed_ |= !std::isfinite(element); });
    }
    return status;
  }

  static std::size_t bytes_of(const std::vector<Tensor>& tensors) {
    std::size_t bytes = 0;
    for (const Tensor& tensor : tensors) bytes += tensor.bytes();
    return bytes;
  }

  const std::vector<Tensor> gradients_;
  const PowerSgdOptions options_;
  std::vector<Tensor> whole_;  // the tensors of gradients_ that are sent uncompressed
  std::vector<detail::AnyLowRankMatrix> matrices_;
  std::int64_t steps_ = 0;
  bool overflowed_ = false;
  std::size_t bytes_sent_ = 0;
  std::size_t dense_bytes_ = 0;
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_POWER_SGD_HPP_
