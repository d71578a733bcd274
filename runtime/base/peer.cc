#include "runtime/base/peer.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ronda {
namespace {

template <typename Item>
std::string Enumerate(absl::string_view noun, const std::vector<Item>& items) {
  constexpr size_t kNamed = 8;  // enough to see the pattern
  if (items.size() == 1) return absl::StrCat(noun, " ", items.front());
  const size_t named = items.size() > kNamed ? kNamed : items.size() - 1;
  const std::string first = absl::StrJoin(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  if (items.size() > kNamed) return absl::StrCat(noun, "s ", first, " and ", items.size() - named, " more");
  return absl::StrCat(noun, "s ", first, " and ", items.back());
}

}  // namespace

std::string NameRanks(const std::vector<RankId>& ranks) { return Enumerate("rank", ranks); }

std::string NameHosts(const std::vector<std::string>& hosts) { return Enumerate("host", hosts); }

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
  // A failed stat leaves zeros: the ranks then count as sharing, and connecting reports the error.
  return absl::StrCat(boot_id, "/", shm.st_dev, "/", pid_namespace.st_ino);
}

}  // namespace ronda
