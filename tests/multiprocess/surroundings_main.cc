// The main program of tests of the launcher in unusual surroundings. With the argument "rank" it is a rank of a job,
// which prints the job's name and a sum.
#include <cstdlib>
#include <iostream>
#include <string>

#include "client/ronda.hpp"
#include "gtest/gtest.h"

namespace {

int RunRank() {
  try {
    std::cout << "the job is " << std::getenv("RONDA_JOB_ID") << std::endl;
    ronda::init();
    float sum = 1;
    ronda::allreduce(ronda::tensor("x", &sum), {ronda::Op::Sum});
    ronda::shutdown();
    std::cout << "the sum is " << sum << std::endl;
    return 0;
  } catch (const ronda::Error& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "rank") return RunRank();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
