#include "runtime/launch/build_report.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/version.h"

namespace ronda {

std::string BuildReport() {
  return absl::StrCat("Ronda ", kVersion, R"(

Backends, which carry data between ranks:
    [X] self       a job of one rank
    [X] inprocess  ranks that are threads of one process
    [X] shm        ranks on one host, through shared memory
    [ ] MPI        not part of this version
    [ ] NCCL       not part of this version

Launchers:
    [X] rondarun   ranks on one host
)");
}

}  // namespace ronda
