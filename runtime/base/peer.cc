// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/peer.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

constexpr size_t kMaxNamedRanks = 16;
constexpr size_t kMaxHostNameBytes = 255;  // the limit in messages

}  // namespace

std::string NameRanks(const std::vector<RankId>& ranks) {
  const size_t named = std::min(ranks.size(), kMaxNamedRanks);
  std::string text =
      absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                   absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - named, " more");
  return text;
}

// Escapes bytes that are not printable ASCII, as in "h\xc3\xb6st", so that the name looks the same on all hosts and
// terminals.
std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return absl::CHexEscape(name).substr(0, kMaxHostNameBytes);
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
  // A failed stat() leaves its number at 0. So two ranks whose calls fail appear to share memory, and get an error when
  // they connect.
  return absl::StrCat(boot_id, "/", shm.st_dev, "/", pid_namespace.st_ino);
}

}  // namespace ronda
