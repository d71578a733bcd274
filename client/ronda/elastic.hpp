// SPDX-License-Identifier: Apache-2.0

// Elastic training: ranks may die, join and leave, while the other ranks continue with the state in their memory
// (docs/elastic.md).
//
//   #include <ronda/elastic.hpp>
//
//   struct Progress { double loss = 0; } progress;
//   ronda::elastic::Sampler sampler(60000, /*global_batch=*/256);
//   ronda::elastic::State state(model.tensors(), sgd, sampler, &progress);
//   ronda::elastic::run(state, [&](const ronda::elastic::Membership&) {
//     ronda::DistributedOptimizer optimizer(sgd, model.gradients(), {ronda::Op::Sum});
//     while (sampler.epoch() < 10) {
//       const auto batch = sampler.next();                       // this rank's share of 256 samples
//       progress.loss = model.backward(batch.samples, batch.global_size);  // the loss divided by the global batch
//       for (...) optimizer.gradient_ready(...);
//       optimizer.step();
//       state.step_done();
//     }
//   });
//   ronda::shutdown();
//
// Start the program as `rondarun -np 4 --min-np 2 ./trainer`. Without an elastic launcher, the program trains in a job
// whose membership is fixed.
#ifndef RONDA_CLIENT_RONDA_ELASTIC_HPP_
#define RONDA_CLIENT_RONDA_ELASTIC_HPP_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "job.hpp"
#include "optimizer.hpp"
#include "status.hpp"
#include "synchronization.hpp"
#include "tensor.hpp"
#include "training/random.hpp"

namespace ronda {
inline namespace abi1 {
namespace elastic {

// Describes the epoch in which run() calls the body.
struct Membership {
  int rank = 0;
  int size = 1;
  std::int64_t step = 0;    // steps applied to the state
  std::int64_t resets = 0;  // epochs that this process has left so far
};

struct SamplerOptions {
  bool shuffle = true;     // a new order in each epoch, the same on every rank; false: the order of the dataset
  std::uint64_t seed = 0;  // the same on every rank
};

// A rank's share of one global batch.
struct Batch {
  std::vector<std::int64_t> samples;  // this rank's samples; empty if the batch has too few samples for this rank
  std::int64_t global_size = 0;       // samples of all ranks: divide the loss by this number, and sum the gradients
  std::int64_t epoch = 0;             // of the dataset
};

// Distributes global batches of a fixed size over any number of ranks. The order of the samples in an epoch depends
// only on the seed and the epoch number. Each epoch contains every sample once, so its last batch may be smaller. If a
// batch cannot be divided evenly, the first ranks get one sample more.
//
// A Sampler that is part of the State is reset together with it, so the ranks distribute the samples of an incomplete
// step again.
//
// Thread-compatible.
class Sampler {
 public:
  struct Cursor {
    std::int64_t epoch = 0;
    std::int64_t taken = 0;  // samples of the epoch that the ranks have taken together; fewer than all samples
  };

  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) unless both numbers are positive.
  Sampler(std::int64_t size, std::int64_t global_batch, const SamplerOptions& options = {})
      : size_(size), global_batch_(global_batch), options_(options) {
    if (size < 1 || global_batch < 1) {
      throw Error(RONDA_ERROR_INVALID_ARGUMENT, "elastic::Sampler: there cannot be batches of " +
                                                    std::to_string(global_batch) + " of " + std::to_string(size) +
                                                    " samples");
    }
  }

  // Returns this rank's share of the next global batch. At the end of an epoch, the next call begins a new epoch.
  // Throws Error (RONDA_ERROR_NOT_INITIALIZED).
  Batch next() { return next(ronda::rank(), ronda::size()); }

  // Returns the share that rank `rank` gets if there are `ranks` ranks.
  Batch next(int rank, int ranks) {
    if (ordered_epoch_ != cursor_.epoch) {
      const auto kind = options_.shuffle ? detail::EpochOrder::shuffled : detail::EpochOrder::ascending;
      order_ = detail::order_of_epoch(size_, cursor_.epoch, kind, options_.seed);
      ordered_epoch_ = cursor_.epoch;
    }
    Batch batch;
    batch.epoch = cursor_.epoch;
    batch.global_size = std::min(global_batch_, size_ - cursor_.taken);
    const std::int64_t each = batch.global_size / ranks, more = batch.global_size % ranks;
    const auto first = order_.begin() + (cursor_.taken + rank * each + std::min<std::int64_t>(rank, more));
    batch.samples.assign(first, first + each + (rank < more ? 1 : 0));
    cursor_.taken += batch.global_size;
    if (cursor_.taken == size_) cursor_ = {cursor_.epoch + 1, 0};
    return batch;
  }

  // The epoch of the next batch.
  std::int64_t epoch() const noexcept { return cursor_.epoch; }

  // The position in the dataset, which all ranks share. A program may set it from a checkpoint before run().
  Cursor& cursor() noexcept { return cursor_; }

 private:
  const std::int64_t size_;
  const std::int64_t global_batch_;
  const SamplerOptions options_;
  Cursor cursor_;
  std::vector<std::int64_t> order_;  // of ordered_epoch_
  std::int64_t ordered_epoch_ = -1;
};

class State;

struct RunOptions {
  using Seconds = std::chrono::duration<double>;

  Options init;  // of the job in each epoch, without a place and an epoch

  // run() calls this function in each epoch except this process's first, before the body, once the rank has the state.
  // The program can use it to adapt to the new number of ranks.
  std::function<void(const Membership&)> on_reset;

  // Every `snapshot_every` steps, each rank copies its state within its own memory; 0 disables these snapshots. The
  // ranks go back to the snapshot if the state of every rank is incomplete. Requires all tensors to be in host memory.
  std::int64_t snapshot_every = 0;

  // The longest time that a process waits for the launcher to give it a rank in the next epoch. If unset, the process
  // waits as long as the launcher runs.
  std::optional<Seconds> place_timeout;
};

enum class End {
  finished,  // the body has returned on all ranks, which are still in the job
  left,      // SIGTERM, the launcher or a planned change of the members has made this process leave the job
};

template <class Body>
End run(State& state, Body&& body, const RunOptions& options = {});

// The state that all ranks share. Between steps, the state is bitwise equal on all ranks. It consists of tensors, which
// only the optimizer's step() changes, and of small plain values, which the body may change at any time. Only the plain
// values are copied in every step.
//
// The state is incomplete from DistributedOptimizer::step() or begin_update() until step_done(), which counts the step.
// Run no operation while the state is incomplete, because a failure of the operation would leave the state of every
// rank incomplete.
//
// Ronda has one step counter per process, so a process can train only one State, in a single run().
//
// Thread-compatible. The tensors and values must outlive the State.
class State {
 public:
  // Each of `parts` is one of
  // - a pointer to a value of a trivially copyable type, which holds no pointers;
  // - a Sampler;
  // - an optimizer with a member state(), as for broadcast_optimizer_state().
  template <class... Parts>
  explicit State(std::vector<Tensor> tensors, Parts&&... parts) : tensors_(std::move(tensors)) {
    (add(parts), ...);
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].name = "elastic/" + std::to_string(i);
    save_values(&values_now_);
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Must be called before the tensors change. DistributedOptimizer::step() calls begin_update() itself.
  void begin_update() noexcept { ronda_elastic_begin_update(); }

  // Must be called on all ranks when the step is complete. If the membership changes, step_done() throws an exception
  // that leaves the body of run(). The body must not catch this exception, which does not derive from std::exception.
  // Throws Error: the errors of an operation, or RONDA_ERROR_MEMBERSHIP if the launcher has ended.
  void step_done() {
    save_values(&values_now_);
    ronda_elastic_end_update();
    ++step_;
    if (snapshot_every_ > 0 && step_ % snapshot_every_ == 0) take_snapshot();
    ronda_elastic_change change = RONDA_ELASTIC_GO_ON;
    detail::to_status(ronda_elastic_poll(&change)).throw_if_error();
    if (change != RONDA_ELASTIC_GO_ON) throw EpochEnds{change};
  }

  // Returns the number of steps applied to the state.
  std::int64_t step() const noexcept { return std::max<std::int64_t>(step_, 0); }

 private:
  template <class Body>
  friend End run(State& state, Body&& body, const RunOptions& options);

  using Bytes = std::vector<unsigned char>;

  // Thrown by step_done() to leave the body of run().
  struct EpochEnds {
    ronda_elastic_change change;
  };

  struct Value {
    void* data;
    std::size_t bytes;
  };

  struct Snapshot {
    std::int64_t step = -1;
    std::vector<Bytes> tensors;
    Bytes values;
  };

  template <class T>
  void add(T* value) {
    static_assert(std::is_trivially_copyable_v<T>, "a value travels as its bytes: it must be trivially copyable");
    values_.push_back({value, sizeof(T)});
  }
  void add(Sampler& sampler) { add(&sampler.cursor()); }
  template <class Optimizer>
  auto add(Optimizer& optimizer) -> decltype(optimizer.state(), void()) {
    for (Tensor& tensor : optimizer.state()) tensors_.push_back(std::move(tensor));
  }

  void save_values(Bytes* to) const {
    to->clear();
    for (const Value& value : values_) {
      const auto* bytes = static_cast<const unsigned char*>(value.data);
      to->insert(to->end(), bytes, bytes + value.bytes);
    }
  }
  void restore_values() const {
    const unsigned char* from = values_now_.data();
    for (const Value& value : values_) {
      std::memcpy(value.data, from, value.bytes);
      from += value.bytes;
    }
  }

  void set_snapshot_every(std::int64_t steps) {
    for (const Tensor& tensor : tensors_) {
      if (steps > 0 && tensor.memory != RONDA_MEMORY_HOST) {
        throw Error(RONDA_ERROR_INVALID_ARGUMENT,
                    "elastic::run: snapshot_every is for tensors in the host's memory: set it to 0");
      }
    }
    snapshot_every_ = steps;
  }

  void take_snapshot() {
    snapshot_.tensors.resize(tensors_.size());
    snapshot_.step = -1;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto* data = static_cast<const unsigned char*>(tensors_[i].data);
      snapshot_.tensors[i].assign(data, data + tensors_[i].bytes());
    }
    snapshot_.values = values_now_;
    snapshot_.step = step_;
  }

  void copy_from(const std::vector<Bytes>& tensors) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].empty()) std::memcpy(tensors_[i].data, tensors[i].data(), tensors[i].size());
    }
  }

  // Leaves the epoch and joins the next one. `failure`, if set, is the reason why this rank leaves the epoch. Retries
  // if joining fails. Returns false if the launcher has removed this process from the job in a planned change.
  static bool reform(const std::optional<Error>& failure, const RunOptions& options) {
    const detail::OptionsView init = detail::to_c(options.init);
    ronda_elastic_reform_options reform = RONDA_ELASTIC_REFORM_OPTIONS_INIT;
    reform.timeout_s = options.place_timeout ? options.place_timeout->count() : 0;
    reform.options = &init.c;
    std::string reason = failure ? failure->what() : "";
    for (;;) {
      reform.reason = reason.empty() ? nullptr : reason.c_str();
      const Status status = detail::to_status(ronda_elastic_reform(&reform));
      if (status.ok()) return true;
      if (status.recoverable()) {
        reason = status.message();
        continue;
      }
      const bool has_no_place = status.code() == RONDA_ERROR_MEMBERSHIP;
      if (has_no_place && reason.empty()) return false;
      if (!failure || has_no_place) status.throw_if_error();
      // The process cannot join another epoch, for instance because its job is not elastic, so the failure goes to the
      // caller of run().
      const ronda_status code = status.code() == RONDA_ERROR_INVALID_ARGUMENT ? failure->code() : status.code();
      throw Error(code, std::string(failure->what()) + "; this process cannot go on: " + status.message());
    }
  }

  // Gives all ranks the newest state that any rank has. run() calls this function once the ranks have joined the epoch.
  void synchronize() {
    ronda_elastic_source source = RONDA_ELASTIC_SOURCE_INIT;
    detail::to_status(ronda_elastic_sync(snapshot_.step, &source)).throw_if_error();
    if (source.is_snapshot != 0 && source.rank == ronda::rank()) {
      ronda_elastic_begin_update();
      copy_from(snapshot_.tensors);
      values_now_ = snapshot_.values;
    }
    if (source.any_behind != 0) take_over(source);
    if (source.is_behind != 0) ronda_elastic_end_update();
    step_ = source.step;
    restore_values();
    if (snapshot_every_ > 0) take_snapshot();
  }

  // A rank keeps its old state until it has received the whole new state, because the source may die during the
  // transfer. GPU memory is seldom large enough for both states. On a GPU, the new state therefore overwrites the old
  // one, and a rank whose source dies during the transfer has no complete state.
  void take_over(const ronda_elastic_source& source) {
    const bool is_on_host = std::all_of(tensors_.begin(), tensors_.end(),
                                        [](const Tensor& tensor) { return tensor.memory == RONDA_MEMORY_HOST; });
    const bool keeps = source.is_behind != 0 && source.rank != ronda::rank() && step_ >= 0 && is_on_host;
    std::vector<Tensor> into = tensors_;
    std::vector<Bytes> received(keeps ? tensors_.size() : 0);
    for (std::size_t i = 0; i < received.size(); ++i) {
      received[i].resize(into[i].bytes());
      into[i].data = received[i].data();
    }
    Bytes values = values_now_;
    into.push_back(ronda::tensor("elastic/values", values));
    if (source.is_behind != 0 && !keeps) ronda_elastic_begin_update();
    try_broadcast_parameters(into, source.rank).throw_if_error();
    if (keeps) ronda_elastic_begin_update();
    copy_from(received);
    values_now_ = std::move(values);
  }

  std::vector<Tensor> tensors_;
  std::vector<Value> values_;
  Bytes values_now_;        // of the last complete step
  std::int64_t step_ = -1;  // -1: no state yet
  std::int64_t snapshot_every_ = 0;
  Snapshot snapshot_;
};

// Calls `body` with a Membership, once in each epoch, until `body` returns. Then waits until `body` has returned on all
// ranks. Calls init() if the program has not done so. Before each call of `body`, all ranks get the newest state that
// any rank has; `body` must continue with the step after state.step(). The body must create its own
// DistributedOptimizer and process sets, because they belong to one epoch.
//
// If a rank dies in the body, or a deadline fails the job, the remaining ranks form a new epoch and repeat at most the
// current step.
//
// Throws every exception that leaves the body, except job failures from which run() recovers. Throws
// RONDA_ERROR_MEMBERSHIP if the launcher has removed this process from the job. In a job that is not elastic, run()
// throws every job failure.
template <class Body>
End run(State& state, Body&& body, const RunOptions& options) {
  state.set_snapshot_every(options.snapshot_every);
  if (state.step_ < 0) state.save_values(&state.values_now_);
  for (std::int64_t resets = 0;; ++resets) {
    std::optional<Error> failure;
    try {
      if (!is_initialized()) init(options.init);
      state.synchronize();
      const Membership membership{ronda::rank(), ronda::size(), state.step(), resets};
      if (resets > 0 && options.on_reset) options.on_reset(membership);
      body(membership);
      // The barrier keeps a rank from leaving while other ranks may still have to repeat the last step.
      barrier();
      return End::finished;
    } catch (const Error& error) {
      if (!error.recoverable()) throw;
      failure = error;
    } catch (const State::EpochEnds& end) {
      if (end.change == RONDA_ELASTIC_LEAVE) {
        (void)try_shutdown();  // if shutdown() fails, the other ranks form the next epoch without this rank anyway
        return End::left;
      }
    }
    if (!State::reform(failure, options)) return End::left;
  }
}

}  // namespace elastic
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_ELASTIC_HPP_
