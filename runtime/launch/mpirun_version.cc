#include "runtime/launch/mpirun_version.h"

#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

struct Answer {
  std::string text;
  int status = 0;  // as waitpid() has it
};

absl::StatusOr<Answer> AskShell(const char* command) {
  FILE* const pipe = popen(command, "re");
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "cannot ask mpirun for its version");
  Answer answer;
  std::array<char, 4096> buffer;
  for (size_t count = 1; count > 0;) {
    count = fread(buffer.data(), 1, buffer.size(), pipe);
    answer.text.append(buffer.data(), count);
  }
  answer.status = pclose(pipe);
  return answer;
}

std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was killed by signal ", WTERMSIG(status));
  return absl::StrCat("exited with code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::string> MpirunVersion() {
  // An mpirun that lacks a library ends with 127 too, as a shell does that finds none.
  RONDA_ASSIGN_OR_RETURN(const Answer path, AskShell("command -v mpirun"));
  if (path.status != 0) {
    return absl::NotFoundError(
        "--mpi, and what else only mpirun can do, need mpirun, and there is none in PATH: install Open MPI (Debian: "
        "openmpi-bin), or give --launcher ssh");
  }
  RONDA_ASSIGN_OR_RETURN(Answer version, AskShell("mpirun --version 2>&1 </dev/null"));
  if (version.status == 0) return std::move(version.text);
  return absl::FailedPreconditionError(absl::StrCat(
      absl::StripAsciiWhitespace(path.text), " is in PATH, but mpirun --version ", DescribeEnd(version.status), ": ",
      absl::StripAsciiWhitespace(version.text), "; make it work, or give --launcher ssh"));
}

}  // namespace ronda
