#include <ronda.hpp>

#include <cstdio>

int main() {
  ronda::init();
  double mean = ronda::rank();
  ronda::allreduce(ronda::tensor("mean", &mean));
  std::printf("rank %d of %d: the mean of all ranks is %g\n", ronda::rank(), ronda::size(), mean);
  ronda::shutdown();
}
