#include "runtime/launch/standard_output.h"

#include <sys/stat.h>
#include <unistd.h>

namespace ronda {
namespace {

Medium MediumOf(int fd) { return isatty(fd) == 1 ? Medium::kTerminal : Medium::kFile; }

bool AreOneTerminal() {
  struct stat out = {};
  struct stat err = {};
  return MediumOf(STDOUT_FILENO) == Medium::kTerminal && MediumOf(STDERR_FILENO) == Medium::kTerminal &&
         fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_rdev == err.st_rdev;
}

}  // namespace

StandardOutput::StandardOutput()
    : media_({MediumOf(STDOUT_FILENO), MediumOf(STDERR_FILENO)}),
      one_terminal_(AreOneTerminal()),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {}

}  // namespace ronda
