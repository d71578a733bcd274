// SPDX-License-Identifier: Apache-2.0

// Ronda's C++ API for data-parallel training across the processes of a job. The API needs C++17, and consists of
// headers that use only the C ABI (ronda.h) and the standard library. Names follow Horovod's.
//
//   #include <ronda.hpp>
//
//   int main() {
//     const ronda::Job job;                              // joins the job, and leaves it at the end of the block
//     Model model;                                       // its own arithmetic, with std::vector<float> buffers
//     Sgd sgd(model, 0.01f * ronda::size());             // has a member step()
//     ronda::broadcast_parameters({ronda::tensor("w", model.w)}, /*root=*/0);
//     ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("w.grad", model.w_grad)});
//     for (const Batch& batch : shard(ronda::rank(), ronda::size())) {
//       model.backward(batch);                           // fills w_grad
//       optimizer.gradient_ready("w.grad");              // its average over the ranks is under way
//       optimizer.step();                                // waits for it, and applies it
//     }
//   }
//
// Build the program with `pkg-config --cflags --libs ronda`, or CMake's find_package(ronda) and the target
// ronda::ronda; start it as `./trainer` for one rank, or as `rondarun -np 4 ./trainer`. Ranks can also be threads of
// one process: see run_threads() in threads.hpp.
//
// Errors are thrown as ronda::Error. The functions that begin with try_ return a ronda::Status or a ronda::Result
// instead, and do not throw ronda::Error.
//
// Thread-safety: any thread may call the free functions; each class states its own thread-safety.
#ifndef RONDA_CLIENT_RONDA_HPP_
#define RONDA_CLIENT_RONDA_HPP_

#include "ronda/collectives.hpp"
#include "ronda/job.hpp"
#include "ronda/optimizer.hpp"
#include "ronda/status.hpp"
#include "ronda/tensor.hpp"
#include "ronda/threads.hpp"

#endif  // RONDA_CLIENT_RONDA_HPP_
