// SPDX-License-Identifier: Apache-2.0

// Implements Deep Gradient Compression for slow links: ranks send only the largest elements of gradients. The
// compression changes the results of training.
#ifndef RONDA_CLIENT_RONDA_TRAINING_TOP_K_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_TOP_K_HPP_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../exchanges.hpp"
#include "../handle.hpp"
#include "../options.hpp"
#include "../reductions.hpp"
#include "../status.hpp"
#include "../tensor.hpp"
#include "gradients.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// The values that momentum correction keeps for a gradient from one step to the next. Implements algorithm 4 of Lin et
// al., "Deep gradient compression", 2018, in the notation of that paper. There, u is the velocity, and v is the sum of
// the values that have not been sent yet.
template <class T>
class SparseGradient {
 public:
  // If `is_whole` is set, all elements are sent in every step, and v is empty.
  SparseGradient(const Tensor& gradient, bool is_whole)
      : gradient_(gradient), count_(gradient.count()), is_whole_(is_whole), u_(count_), v_(is_whole ? 0 : count_) {}

  const Tensor& gradient() const { return gradient_; }
  std::size_t count() const { return count_; }
  bool is_whole() const { return is_whole_; }

  void add_state(std::vector<Tensor>* state) {
    state->push_back(tensor("ronda.training.top_k.u." + gradient_.name, u_));
    if (!is_whole()) state->push_back(tensor("ronda.training.top_k.v." + gradient_.name, v_));
  }

  // Adds momentum to a reduced gradient, so that the gradient becomes the velocity u.
  void apply_momentum(double momentum) {
    accelerate(momentum);
    std::copy(u_.begin(), u_.end(), elements());
  }

  // Computes u = momentum u + gradient, and then v = v + u.
  void accumulate(double momentum) {
    accelerate(momentum);
    for (std::size_t i = 0; i < count_; ++i) v_[i] += u_[i];
  }

  // Chooses the `k` elements of v with the largest magnitudes. Among elements of equal magnitude, chooses the first
  // ones.
  void choose(std::size_t k) {
    magnitudes_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) magnitudes_[i] = magnitude(v_[i]);
    const auto least = magnitudes_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(magnitudes_.begin(), least, magnitudes_.end(), [](T a, T b) { return a > b; });
    const T threshold = *least;
    std::size_t equal = k;
    for (const T value : v_) equal -= magnitude(value) > threshold ? 1 : 0;
    chosen_.clear();
    for (std::size_t i = 0; i < count_; ++i) {
      const T size = magnitude(v_[i]);
      if (size < threshold || (size == threshold && equal == 0)) continue;
      equal -= size == threshold ? 1 : 0;
      chosen_.push_back(static_cast<std::uint32_t>(i));
    }
  }

  // Returns whether one of the values added up in v has become infinite or not a number. Such a value is always among
  // the chosen elements.
  bool overflowed() const {
    return !std::all_of(chosen_.begin(), chosen_.end(), [this](auto index) { return std::isfinite(v_[index]); });
  }

  // Sets the elements of u and v that are infinite or not a number to zero.
  void drop_overflowed() {
    const auto is_not_finite = [](T value) { return !std::isfinite(value); };
    std::replace_if(u_.begin(), u_.end(), is_not_finite, T{0});
    std::replace_if(v_.begin(), v_.end(), is_not_finite, T{0});
  }

  static std::size_t message_bytes(std::size_t k) { return k * (sizeof(std::uint32_t) + sizeof(T)); }

  // Writes the indices and then the values of the chosen elements. Returns the address after the last value.
  std::uint8_t* write(std::uint8_t* to) const {
    std::memcpy(to, chosen_.data(), chosen_.size() * sizeof(std::uint32_t));
    to += chosen_.size() * sizeof(std::uint32_t);
    for (const std::uint32_t index : chosen_) {
      std::memcpy(to, &v_[index], sizeof(T));
      to += sizeof(T);
    }
    return to;
  }

  // Sets the chosen elements of v to zero, because they have been sent. With `masking`, their velocity also becomes
  // zero (momentum factor masking).
  void forget_chosen(bool masking) {
    for (const std::uint32_t index : chosen_) {
      v_[index] = 0;
      if (masking) u_[index] = 0;
    }
  }

  void clear_gradient() { std::fill(elements(), elements() + count_, T{0}); }

  // Adds the `k` elements in a rank's message, times `scale`, to the gradient. Returns the address after the last
  // element. With the scale 1 / ranks, a sum of finite elements cannot overflow.
  const std::uint8_t* add(const std::uint8_t* from, std::size_t k, T scale) {
    const std::uint8_t* const values = from + k * sizeof(std::uint32_t);
    for (std::size_t i = 0; i < k; ++i) {
      std::uint32_t index = 0;
      T value = 0;
      std::memcpy(&index, from + i * sizeof(index), sizeof(index));
      std::memcpy(&value, values + i * sizeof(value), sizeof(value));
      elements()[index] += scale * value;
    }
    return from + message_bytes(k);
  }

 private:
  T* elements() const { return static_cast<T*>(gradient_.data); }

  void accelerate(double momentum) {
    const T factor = static_cast<T>(momentum);
    for (std::size_t i = 0; i < count_; ++i) u_[i] = factor * u_[i] + elements()[i];
  }

  // Treats an element that is not a number as the largest, so that it is always chosen.
  static T magnitude(T value) {
    const T size = std::abs(value);
    return size >= 0 ? size : std::numeric_limits<T>::infinity();
  }

  const Tensor gradient_;
  const std::size_t count_;
  const bool is_whole_;
  std::vector<T> u_, v_;
  std::vector<T> magnitudes_;
  std::vector<std::uint32_t> chosen_;  // indices, in ascending order
};

using AnySparseGradient = std::variant<SparseGradient<float>, SparseGradient<double>>;

}  // namespace detail

namespace training {

struct TopKOptions {
  double density = 0.001;         // the fraction of a gradient's elements that is sent in a step; above 0, at most 1
  double initial_density = 0.25;  // the fraction in the first step of a warm-up, in which it falls exponentially
  std::int64_t warm_up_steps = 0;
  std::int64_t start_step = 0;  // of the warm-up; before this step, gradients are averaged uncompressed

  double momentum = 0.9;            // of SGD: TopK applies it, so the optimizer must not; at least 0, below 1
  bool factor_masking = true;       // elements that are sent get a velocity of zero
  double clip_norm = 0;             // on each rank, gradients are clipped to this norm / sqrt(ranks); 0: not at all.
                                    // This counts all ranks of the process set, also those that have joined
  std::size_t min_elements = 1024;  // gradients with fewer elements are sent uncompressed
  CallOptions call = {};
};

// Averages gradients over the ranks by sending only the largest elements of each gradient. Each rank accumulates the
// other elements until they are among the largest. The method is algorithm 4 of Lin et al., "Deep gradient
// compression", 2018, with momentum correction, momentum factor masking, local gradient clipping and warm-up (section
// 3).
//
//   ronda::training::TopK top_k({ronda::tensor("fc1", fc1_gradient), ...}, {0.01});
//   for (...) {
//     ... backward
//     top_k.reduce();
//     sgd.step();                        without momentum: value -= learning_rate * gradient
//   }
//
// Use TopK instead of DistributedOptimizer. Each rank receives the indices and values of the chosen elements of all
// ranks. For 4-byte elements and density * ranks below 1, a rank receives less data than in an allreduce. Every rank
// must make the same calls, with gradients of the same names, shapes and dtypes in the same order, float32 or float64
// in host memory. The gradients must outlive the TopK object. The results are bitwise equal on all ranks. Like other
// averages, they do not count ranks that have joined, unless Absent says otherwise. Thread-compatible.
class TopK {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if an option is out of range, or a gradient is not float32 or float64
  // in host memory.
  explicit TopK(std::vector<Tensor> gradients, const TopKOptions& options = {})
      : gradients_(std::move(gradients)), options_(options) {
    check(options.density > 0 && options.density <= 1, "density must be above 0, and 1 at most");
    check(options.warm_up_steps >= 0 && options.start_step >= 0, "a number of steps must not be negative");
    check(options.warm_up_steps == 0 || (options.initial_density >= options.density && options.initial_density <= 1),
          "initial_density must be between density and 1");
    check(options.momentum >= 0 && options.momentum < 1, "momentum must be between 0 and 1");
    check(options.clip_norm >= 0 && std::isfinite(options.clip_norm), "clip_norm must be finite, and not negative");
    for (const Tensor& gradient : gradients_) {
      detail::visit_elements(gradient, [](auto&) {}).throw_if_error();
      check(gradient.count() <= std::numeric_limits<std::uint32_t>::max(),
            "gradient '" + gradient.name + "' has more elements than an index of 32 bits tells apart");
      dense_bytes_ += gradient.bytes();
      add(gradient, options.density == 1 || gradient.count() < std::max<std::size_t>(options.min_elements, 1));
    }
  }

  // Returns the fraction of elements sent in step `step`; the first step is step 0.
  double density_at(std::int64_t step) const {
    step -= options_.start_step;
    if (step < 0) return 1;
    if (step >= options_.warm_up_steps) return options_.density;
    const double done = static_cast<double>(step) / static_cast<double>(options_.warm_up_steps);
    return options_.initial_density * std::pow(options_.density / options_.initial_density, done);
  }

  // Replaces the gradients by the values that SGD must multiply by the learning rate and subtract from the parameters:
  // the sent elements, averaged over the ranks, with momentum. Errors: RONDA_ERROR_MISMATCH if a rank has different
  // gradients or options; the errors of an allreduce and of an allgather. After an error the gradients are undefined.
  Status try_reduce() {
    const std::int64_t step = steps_++;
    if (options_.clip_norm > 0) {
      const double limit = options_.clip_norm / std::sqrt(static_cast<double>(options_.call.process_set.size()));
      Result<double> norm = try_clip_by_global_norm(gradients_, limit);
      if (!norm.ok()) return norm.status();
    }
    return step < options_.start_step ? reduce_whole() : reduce_chosen(density_at(step));
  }
  void reduce() { try_reduce().throw_if_error(); }

  // Returns whether a gradient in the last reduce(), on any rank, had an element that is infinite or not a number.
  // overflowed() returns the same on every rank. If overflowed() is true, the gradients are undefined, and the program
  // must skip the step. Then no momentum has been applied, and every rank still has the values that it has not sent. On
  // a rank whose own gradients were finite, these values include the gradients of this step. Only values that are
  // infinite or not a number are dropped.
  bool overflowed() const noexcept { return overflowed_; }

  // bytes_sent() is the number of bytes that this rank passed to collectives in the last reduce(). dense_bytes() is the
  // number of bytes that it would pass without compression.
  std::size_t bytes_sent() const noexcept { return bytes_sent_; }
  std::size_t dense_bytes() const noexcept { return dense_bytes_; }

  // Returns all values on which the next step depends. Each rank has its own state. If every rank calls
  // average_state(), each rank's state is replaced by the mean over the ranks. This does not change the sum of the
  // values that later steps send. Checkpoints can therefore save rank 0's state after average_state(), and a job of any
  // number of ranks can resume from it.
  std::vector<Tensor> state() {
    std::vector<Tensor> state = {tensor("ronda.training.top_k.steps", &steps_)};
    for_each([&](auto& gradient) { gradient.add_state(&state); });
    return state;
  }
  // Errors: the errors of an allreduce; the state is then undefined.
  Status try_average_state() { return try_grouped_allreduce("ronda.training.top_k.state", state(), {}, options_.call); }
  void average_state() { try_average_state().throw_if_error(); }

 private:
  // The header of a rank's message. The chosen elements of each gradient follow it.
  struct Header {
    std::uint32_t is_finite = 0;  // if 0, no rank uses the elements of any rank
    std::uint32_t layout = 0;     // a hash of the facts that must be equal on all ranks
  };

  static void check(bool holds, const std::string& what) {
    if (!holds) throw Error(RONDA_ERROR_INVALID_ARGUMENT, "TopK: " + what);
  }

  void add(const Tensor& gradient, bool is_whole) {
    (is_whole ? whole_ : sparse_).push_back(gradient);
    if (gradient.dtype == RONDA_FLOAT32) {
      kept_.emplace_back(std::in_place_type<detail::SparseGradient<float>>, gradient, is_whole);
    } else {
      kept_.emplace_back(std::in_place_type<detail::SparseGradient<double>>, gradient, is_whole);
    }
  }

  template <class Visit>
  void for_each(const Visit& visit) {
    for (detail::AnySparseGradient& gradient : kept_) std::visit(visit, gradient);
  }
  template <class Visit>
  void for_each_sparse(const Visit& visit) {
    for_each([&](auto& gradient) {
      if (!gradient.is_whole()) visit(gradient);
    });
  }

  static bool are_finite(const std::vector<Tensor>& gradients) {
    bool finite = true;
    for (const Tensor& gradient : gradients) {
      static_cast<void>(
          detail::visit_elements(gradient, [&finite](auto element) { finite = finite && std::isfinite(element); }));
    }
    return finite;
  }

  Status reduce_whole() {
    bytes_sent_ = dense_bytes_;
    Status status;
    if (!gradients_.empty()) status = try_grouped_allreduce("ronda.training.top_k", gradients_, {}, options_.call);
    overflowed_ = status.ok() && !are_finite(gradients_);
    if (status.ok() && !overflowed_) for_each([this](auto& gradient) { gradient.apply_momentum(options_.momentum); });
    return status;
  }

  Status reduce_chosen(double density) {
    write_message(density);
    OutputHandle<std::uint8_t> messages;
    if (!sparse_.empty()) {
      Result<OutputHandle<std::uint8_t>> submitted =
          try_allgather_async<std::uint8_t>(tensor("ronda.training.top_k.chosen", message_), options_.call);
      if (!submitted.ok()) return submitted.status();
      messages = std::move(submitted).value();
    }
    Status status;
    if (!whole_.empty()) status = try_grouped_allreduce("ronda.training.top_k", whole_, {}, options_.call);
    if (status.ok()) status = messages.wait();
    if (status.ok() && !sparse_.empty()) status = check_messages(messages);
    if (status.ok()) overflowed_ = !are_finite(whole_) || !all_ranks_are_finite(messages);
    int ranks = 1;  // the divisor of an average
    if (status.ok() && !sparse_.empty()) status = detail::to_status(ronda_averaged_over(messages.id(), &ranks));
    if (status.ok() && !overflowed_) take(messages, density, 1.0 / ranks);
    return status;
  }

  // Returns how many of a gradient's `count` elements are sent.
  static std::size_t chosen_of(std::size_t count, double density) {
    return std::min(count, std::max<std::size_t>(1, static_cast<std::size_t>(density * static_cast<double>(count))));
  }

  void write_message(double density) {
    Header header;
    header.is_finite = are_finite(sparse_) ? 1 : 0;
    std::size_t bytes = sizeof(header);
    std::string layout;
    for_each_sparse([&](auto& gradient) {
      const std::size_t k = chosen_of(gradient.count(), density);
      bytes += gradient.message_bytes(k);
      layout += gradient.gradient().name + "\n" + std::to_string(gradient.count()) + "\n" + std::to_string(k) + "\n";
    });
    header.layout = 2166136261;  // FNV-1a
    for (const char c : layout) header.layout = (header.layout ^ static_cast<unsigned char>(c)) * 16777619;
    message_.assign(bytes, 0);
    bytes_sent_ = sparse_.empty() ? 0 : bytes;
    for (const Tensor& gradient : whole_) bytes_sent_ += gradient.bytes();
    if (header.is_finite != 0 && !write_chosen(density)) header.is_finite = 0;
    std::memcpy(message_.data(), &header, sizeof(header));
  }

  // Adds this rank's gradients to the kept values, and writes the chosen elements into the message. Returns whether all
  // elements are finite. If not, drops the kept values that are not.
  bool write_chosen(double density) {
    bool finite = true;
    std::uint8_t* to = message_.data() + sizeof(Header);
    for_each_sparse([&](auto& gradient) {
      gradient.accumulate(options_.momentum);
      gradient.choose(chosen_of(gradient.count(), density));
      to = gradient.write(to);
      finite = finite && !gradient.overflowed();
    });
    if (!finite) for_each_sparse([](auto& gradient) { gradient.drop_overflowed(); });
    return finite;
  }

  // Calls `visit` for each rank's message, with the header and a pointer to the bytes after it.
  template <class Visit>
  static void for_each_message(OutputHandle<std::uint8_t>& messages, const Visit& visit) {
    const std::uint8_t* from = messages.data();
    for (const std::int64_t bytes : messages.rows_per_rank()) {
      Header header;
      if (bytes < static_cast<std::int64_t>(sizeof(header))) continue;  // a rank that has joined
      std::memcpy(&header, from, sizeof(header));
      visit(header, from + sizeof(header));
      from += bytes;
    }
  }

  Status check_messages(OutputHandle<std::uint8_t>& messages) const {
    const std::vector<int> members = options_.call.process_set.ranks();
    const std::vector<std::int64_t>& sizes = messages.rows_per_rank();
    Header own;
    std::memcpy(&own, message_.data(), sizeof(own));
    const std::uint8_t* from = messages.data();
    for (std::size_t i = 0; i < sizes.size(); from += sizes[i], ++i) {
      if (sizes[i] == 0) continue;  // the rank has joined
      Header header;
      const bool is_same = sizes[i] == static_cast<std::int64_t>(message_.size());
      if (is_same) std::memcpy(&header, from, sizeof(header));
      if (is_same && header.layout == own.layout) continue;
      return Status(RONDA_ERROR_MISMATCH,
                    "TopK: rank " + std::to_string(members[i]) +
                        " has other gradients, or another density or number of steps, than this "
                        "rank: pass the same to the constructor on every rank, in the same order");
    }
    return {};
  }

  bool all_ranks_are_finite(OutputHandle<std::uint8_t>& messages) const {
    bool finite = true;
    if (sparse_.empty()) return finite;
    for_each_message(messages,
                     [&](const Header& header, const std::uint8_t*) { finite = finite && header.is_finite != 0; });
    return finite;
  }

  // Computes the new gradients from the messages of all ranks, times `scale`, and from the gradients that were reduced
  // uncompressed.
  void take(OutputHandle<std::uint8_t>& messages, double density, double scale) {
    for_each([&](auto& gradient) {
      if (gradient.is_whole()) {
        gradient.apply_momentum(options_.momentum);
      } else {
        gradient.forget_chosen(options_.factor_masking);
        gradient.clear_gradient();
      }
    });
    if (sparse_.empty()) return;
    for_each_message(messages, [&](const Header&, const std::uint8_t* from) {
      for_each_sparse([&](auto& gradient) { from = gradient.add(from, chosen_of(gradient.count(), density), scale); });
    });
  }

  const std::vector<Tensor> gradients_;
  const TopKOptions options_;
  std::vector<Tensor> whole_, sparse_;           // the gradients that are sent uncompressed, and the others
  std::vector<detail::AnySparseGradient> kept_;  // of each gradient
  std::vector<std::uint8_t> message_;            // this rank's
  std::int64_t steps_ = 0;
  bool overflowed_ = false;
  std::size_t bytes_sent_ = 0;
  std::size_t dense_bytes_ = 0;
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_TOP_K_HPP_
