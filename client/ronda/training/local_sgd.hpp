// SPDX-License-Identifier: Apache-2.0

// Local SGD: each rank trains alone for some steps, and then the ranks average their parameters. The results differ
// from those of ordinary data-parallel training.
#ifndef RONDA_CLIENT_RONDA_TRAINING_LOCAL_SGD_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_LOCAL_SGD_HPP_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../options.hpp"
#include "../reductions.hpp"
#include "../status.hpp"
#include "../tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace training {

struct LocalSgdOptions {
  int interval = 8;             // steps between two averages; at least 1
  std::int64_t start_step = 0;  // before this step, parameters are averaged after every step
  CallOptions call = {};
};

// Averages the parameters of all ranks every few steps, instead of the gradients in every step, so that the ranks send
// much less data. The method is algorithm 1 of Stich, "Local SGD converges fast and communicates little", 2019. With a
// start step, it is the "post-local SGD" variant of Lin et al., "Don't use large mini-batches, use local SGD", 2020.
//
//   ronda::training::LocalSgd local(parameters, {8});
//   for (...) {
//     ... backward; sgd.step();        on this rank alone
//     local.step();
//   }
//   local.average();                   before the parameters are saved or evaluated
//
// Every rank must make the same calls, with parameters of the same names, shapes and dtypes. Thread-compatible.
class LocalSgd {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if an option is out of range.
  explicit LocalSgd(std::vector<Tensor> parameters, const LocalSgdOptions& options = {})
      : parameters_(std::move(parameters)), options_(options) {
    if (options.interval < 1 || options.start_step < 0) {
      throw Error(RONDA_ERROR_INVALID_ARGUMENT, "LocalSgd: interval is " + std::to_string(options.interval) +
                                                    ", start_step " + std::to_string(options.start_step) +
                                                    ": they must be at least 1 and 0");
    }
  }

  // Must be called after each optimizer step. Averages the parameters after each of the first `start_step` steps, and
  // then after every `interval` steps. Returns whether this call averaged the parameters.
  // Errors: the error of the first tensor whose allreduce failed.
  Result<bool> try_step() {
    ++steps_;
    const bool is_due = steps_ <= options_.start_step || (steps_ - options_.start_step) % options_.interval == 0;
    if (!is_due) return false;
    Status status = try_average();
    if (!status.ok()) return status;
    return true;
  }
  bool step() { return try_step().value(); }

  // Averages the parameters now. Errors: as step().
  Status try_average() { return try_grouped_allreduce("ronda.training.local_sgd", parameters_, {}, options_.call); }
  void average() { try_average().throw_if_error(); }

 private:
  const std::vector<Tensor> parameters_;
  const LocalSgdOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_LOCAL_SGD_HPP_
