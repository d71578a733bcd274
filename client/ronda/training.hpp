// SPDX-License-Identifier: Apache-2.0

// Parts of a data-parallel training program other than its allreduces. Each part can also be used alone: include its
// header.
//
//   #include <ronda/training.hpp>
#ifndef RONDA_CLIENT_RONDA_TRAINING_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_HPP_

#include "training/checkpoint.hpp"
#include "training/gradients.hpp"
#include "training/learning_rate.hpp"
#include "training/local_sgd.hpp"
#include "training/loss_scaler.hpp"
#include "training/meters.hpp"
#include "training/power_sgd.hpp"
#include "training/sampler.hpp"
#include "training/top_k.hpp"

#endif  // RONDA_CLIENT_RONDA_TRAINING_HPP_
