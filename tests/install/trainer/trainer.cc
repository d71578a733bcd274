// SPDX-License-Identifier: Apache-2.0

#include <ronda.hpp>

#include <cstdio>

// Averages a number over the ranks. With an argument, instead prints the error of an allreduce on a tensor in GPU
// memory.
int main(int argc, char**) {
  const ronda::Job job;
  double mean = ronda::rank();
  if (argc > 1) {
    const ronda::Status status = ronda::try_allreduce(ronda::cuda_tensor("mean", &mean, {}, nullptr));
    std::printf("%s\n", status.message().c_str());
    return 0;
  }
  ronda::allreduce(ronda::tensor("mean", &mean));
  std::printf("rank %d of %d: the mean of all ranks is %g\n", ronda::rank(), ronda::size(), mean);
}
