// The main function of the tests whose ranks are processes.
#include <vector>

#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

std::vector<RankProgram> AllPrograms() {
  std::vector<RankProgram> all;
  for (const auto programs :
       {CollectivesPrograms, ElasticGpuPrograms, ElasticPrograms, FailurePrograms, ForkPrograms, MismatchPrograms,
        OperationsPrograms, OptimizerPrograms, ReformPrograms, RestartPrograms, StartupPrograms, StopPrograms}) {
    all.insert(all.end(), programs().begin(), programs().end());
  }
  return all;
}

}  // namespace
}  // namespace ronda::testing

int main(int argc, char** argv) { return ronda::testing::RankProgramMain(argc, argv, ronda::testing::AllPrograms()); }
