#include "runtime/launch/mpirun_version.h"

#include <array>
#include <cerrno>
#include <cstdio>

#include "absl/status/status.h"

namespace ronda {

absl::StatusOr<std::string> MpirunVersion() {
  FILE* const pipe = popen("mpirun --version 2>&1 </dev/null", "re");
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "cannot ask mpirun for its version");
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t count = 1; count > 0;) {
    count = fread(buffer.data(), 1, buffer.size(), pipe);
    text.append(buffer.data(), count);
  }
  if (pclose(pipe) == 0) return text;
  return absl::NotFoundError(
      "--mpi, and what else only mpirun can do, need mpirun, and there is none in PATH: install Open MPI (Debian: "
      "openmpi-bin), or give --launcher ssh");
}

}  // namespace ronda
