#include "tests/testing/mpirun.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace ronda::testing {

std::string PathOfMpirun(MpiFlavor flavor) {
  return flavor == MpiFlavor::kOpenMpi ? "/usr/bin/mpirun.openmpi" : "/usr/bin/mpirun.mpich";
}

bool HasMpirun(MpiFlavor flavor) { return access(PathOfMpirun(flavor).c_str(), X_OK) == 0; }

ProcessResult RunUnderMpirun(MpiFlavor flavor, int size, const std::vector<std::string>& argv) {
  ProcessJob job;
  job.argv = {PathOfMpirun(flavor), "-np", absl::StrCat(size)};
  job.argv.insert(job.argv.end(), argv.begin(), argv.end());
  job.env = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
             // As with --oversubscribe: more ranks than cores.
             {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
             // Ranks on the cores they find, beside the tests that run at the same time.
             {"OMPI_MCA_hwloc_base_binding_policy", "none"}};
  return RunProcesses(job).ranks.front();
}

}  // namespace ronda::testing
