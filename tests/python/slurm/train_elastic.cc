// SPDX-License-Identifier: Apache-2.0

// An elastic trainer for Slurm jobs. It counts steps until the file `finish` exists, while members join and leave.
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"

namespace {

// In each step, the ranks together add 1 to the total.
struct Counter {
  std::vector<double> total = {0};
  std::vector<double> gradient = {0};
  void step() { total[0] += gradient[0]; }
};

void Train(const ronda::elastic::Membership& now, Counter* counter, ronda::elastic::State* state,
           std::int64_t* finish) {
  ronda::DistributedOptimizerOptions sum;
  sum.op = ronda::Op::Sum;
  ronda::DistributedOptimizer optimizer(*counter, {ronda::tensor("gradient", counter->gradient)}, sum);
  for (bool trains = false; *finish == 0; state->step_done()) {
    counter->gradient[0] = now.rank == 0 ? 1 : 0;
    std::int64_t wanted = access("finish", F_OK) == 0 ? 1 : 0;
    ronda::allreduce(ronda::tensor("finish", &wanted, {1}), {ronda::Op::Max});
    optimizer.gradient_ready("gradient");
    optimizer.step();
    *finish = wanted;
    if (!trains) std::cout << "rank " << now.rank << " of " << now.size << " trains" << std::endl;
    trains = true;
  }
}

}  // namespace

int main() {
  Counter counter;
  std::int64_t finish = 0;
  ronda::elastic::State state({ronda::tensor("total", counter.total)}, &finish);
  ronda::elastic::run(state, [&](const ronda::elastic::Membership& now) { Train(now, &counter, &state, &finish); });
  const bool is_right = counter.total[0] == static_cast<double>(state.step());
  std::cout << (is_right ? "every step counts once" : "a step was lost, or counts twice") << std::endl;
  ronda::shutdown();
  return is_right ? 0 : 1;
}
