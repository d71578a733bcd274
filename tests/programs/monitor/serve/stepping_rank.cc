// SPDX-License-Identifier: Apache-2.0

// A rank for the test of the page. It makes steps until the file named by its argument exists. Rank 2 is late in each
// step.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "client/ronda.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ronda::init();
  std::vector<float> gradient(size_t{1} << 18, 1.0f);
  for (float done = 0; done == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ronda::rank() == 2 ? 25 : 5));
    ronda::allreduce(ronda::tensor("gradient", gradient));
    done = ronda::rank() == 0 && access(argv[1], F_OK) == 0 ? 1 : 0;
    ronda::allreduce(ronda::tensor("done", &done), {ronda::Op::Sum});
  }
  ronda::shutdown();
  return 0;
}
