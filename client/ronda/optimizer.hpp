// SPDX-License-Identifier: Apache-2.0

// Functions for data-parallel training: they give every rank the same initial parameters, and average the gradients in
// every step.
#ifndef RONDA_CLIENT_RONDA_OPTIMIZER_HPP_
#define RONDA_CLIENT_RONDA_OPTIMIZER_HPP_

#include <utility>
#include <vector>

#include "exchanges.hpp"
#include "gradient_reducer.hpp"
#include "handle.hpp"
#include "options.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {

// Copies `parameters` from rank `root` to all ranks. Starts all broadcasts and then waits for them, even for parameters
// in GPU memory. Every rank must pass tensors with the same names, shapes and dtypes, in any order.
// Errors: the errors of broadcast(), for the first tensor that failed. When the function returns, no operation is in
// flight.
inline Status try_broadcast_parameters(const std::vector<Tensor>& parameters, int root, const CallOptions& call = {}) {
  Status first_error;
  std::vector<Handle> handles;
  handles.reserve(parameters.size());
  for (const Tensor& parameter : parameters) {
    Result<Handle> handle = try_broadcast_async(parameter, root, call);
    if (!handle.ok()) {
      first_error = handle.status();
      break;
    }
    handles.push_back(std::move(handle).value());
  }
  Status status = wait_for_all(handles);
  return first_error.ok() ? status : first_error;
}
inline void broadcast_parameters(const std::vector<Tensor>& parameters, int root, const CallOptions& call = {}) {
  try_broadcast_parameters(parameters, root, call).throw_if_error();
}

// Copies an optimizer's state from rank `root` to all ranks. `Optimizer` must have a member state() that returns a
// std::vector<ronda::Tensor> with the state on which step() depends, for example momentum buffers, step counters and
// the learning rate.
// Errors: as broadcast_parameters().
template <class Optimizer>
Status try_broadcast_optimizer_state(Optimizer& optimizer, int root, const CallOptions& call = {}) {
  return try_broadcast_parameters(optimizer.state(), root, call);
}
template <class Optimizer>
void broadcast_optimizer_state(Optimizer& optimizer, int root, const CallOptions& call = {}) {
  try_broadcast_optimizer_state(optimizer, root, call).throw_if_error();
}

// Wraps a trainer's optimizer, whose member step() applies the gradients. Reduces each gradient as soon as backward has
// produced it, while backward computes the other gradients.
//
//   ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("w.grad", w_grad), ronda::tensor("b.grad", b_grad)});
//   for (...) {
//     ... backward: w_grad is ready
//     optimizer.gradient_ready("w.grad");
//     ... backward: b_grad is ready
//     optimizer.gradient_ready("b.grad");
//     optimizer.step();
//   }
//
// A gradient in GPU memory (cuda_tensor()) may be announced as soon as the work that computes it has been enqueued on
// its stream. No thread waits for this work, because the stream itself waits for the reduced gradient. Once the work of
// all reductions has been enqueued on the device, step() calls the optimizer, which enqueues its own work on the same
// stream. If the device fails later, the next synchronize() or step() reports the error, as does finish(), which waits
// for the device. After a device error the stream does not continue, so no update uses a wrong gradient, and the
// process must end (RONDA_FAILURE_GRACE). In an elastic job, step() itself waits for the device before it calls the
// optimizer.
//
// Every rank must have gradients with the same names, shapes and dtypes. A gradient belongs to Ronda from its last
// gradient_ready() until synchronize() or step(). After that, it holds the reduction over all ranks.
//
// After an error from synchronize() or step(), nothing is in flight, the gradients are undefined, and a new step
// begins. Compute the gradients again, or stop.
//
// The gradients form a prepared group (groups.h), which learns their order. In the first step, each gradient is
// submitted individually. In later steps, gradients that become ready one after the other are submitted together: up to
// 32 gradients with at most 1 MiB in all or, in GPU memory, up to 256 gradients with at most 25 MiB in all.
//
// Steps allocate no memory. Thread-compatible. The optimizer and the gradients must outlive this object. The destructor
// waits for operations in flight.
template <class Optimizer>
class DistributedOptimizer : public GradientReducer {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if a name is empty or used twice, or an option is out of range.
  DistributedOptimizer(Optimizer& optimizer, std::vector<Tensor> gradients,
                       const DistributedOptimizerOptions& options = {})
      : GradientReducer(std::move(gradients), options), optimizer_(optimizer) {}

  // Calls synchronize(), unless the program has already done so in this step. Then calls the optimizer's step(), unless
  // synchronize() failed or the step is skipped. In an elastic job, the state is incomplete from
  // DistributedOptimizer::step() until elastic::State::step_done(). Errors: as synchronize(). Does not catch exceptions
  // thrown by the optimizer.
  Status try_step() {
    return try_step_with([this] { optimizer_.step(); });
  }
  void step() { try_step().throw_if_error(); }

  Optimizer& optimizer() noexcept { return optimizer_; }

 private:
  Optimizer& optimizer_;
};

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_OPTIMIZER_HPP_
