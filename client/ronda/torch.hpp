// SPDX-License-Identifier: Apache-2.0

// Data-parallel training with libtorch, PyTorch's C++ library. Each part can also be used alone: include its header.
//
//   #include <ronda/torch.hpp>
//
// Written for libtorch 1.13. libronda.so contains no part of libtorch, so a program must link both libraries.
#ifndef RONDA_CLIENT_RONDA_TORCH_HPP_
#define RONDA_CLIENT_RONDA_TORCH_HPP_

#include "torch/collectives.hpp"
#include "torch/data_parallel.hpp"
#include "torch/optimizer.hpp"
#include "torch/parameters.hpp"
#include "torch/sampler.hpp"
#include "torch/sync_batch_norm.hpp"
#include "torch/tensor.hpp"

#endif  // RONDA_CLIENT_RONDA_TORCH_HPP_
