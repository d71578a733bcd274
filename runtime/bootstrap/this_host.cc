#include "runtime/bootstrap/this_host.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace ronda {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string BootId() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return boot_id;
}

std::string HostId() {
  std::string boot_id = BootId();
  if (boot_id.empty()) boot_id = HostName();
  struct stat shm = {};
  stat("/dev/shm", &shm);
  struct stat pid_namespace = {};
  stat("/proc/self/ns/pid", &pid_namespace);
  // A failed stat leaves zeros: the ranks then count as sharing, and connecting says what is wrong.
  return absl::StrCat(boot_id, "/", shm.st_dev, "/", pid_namespace.st_ino);
}

}  // namespace ronda
