// SPDX-License-Identifier: Apache-2.0

// Helpers shared by the functions of the fake CUDA runtime.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_RESULTS_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_RESULTS_H_

#include <cuda_runtime_api.h>

#include "tests/testing/fake_cudart/fake_device.h"

namespace ronda::testing {

// Stores the error, if any, as the thread's last error, as CUDA does. Returns it.
inline cudaError_t Result(int error) {
  if (error != cudaSuccess) LastError() = error;
  return static_cast<cudaError_t>(error);
}

// The fake has one default stream per device, while CUDA has two kinds, each with its own special handle.
inline void* DefaultOr(cudaStream_t stream) {
  return stream == cudaStreamLegacy || stream == cudaStreamPerThread ? nullptr : stream;
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDART_RESULTS_H_
