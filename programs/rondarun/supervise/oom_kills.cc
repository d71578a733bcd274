// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/oom_kills.h"

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"

namespace ronda {
namespace {

// Returns the number after "oom_kill " at the start of a line of the file.
std::optional<int64_t> ReadCounter(const std::string& path) {
  const absl::StatusOr<std::string> counters = ReadFile(path);
  if (!counters.ok()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*counters, '\n')) {
    int64_t count = 0;
    if (absl::ConsumePrefix(&line, "oom_kill ") && absl::SimpleAtoi(line, &count)) return count;
  }
  return std::nullopt;
}

// The folder of the version 1 or version 2 control groups, and the name of the file with the counter.
struct Version {
  std::string folder;
  std::string file;
};

// Parses the list of controllers in a line of /proc/self/cgroup, such as "4:memory:/path". nullopt: this hierarchy does
// not count memory.
std::optional<Version> VersionOf(absl::string_view controllers, const std::string& root) {
  if (controllers.empty()) return Version{.folder = root + "/sys/fs/cgroup", .file = "memory.events"};
  const std::vector<absl::string_view> names = absl::StrSplit(controllers, ',');
  for (const absl::string_view name : names) {
    if (name == "memory") return Version{.folder = root + "/sys/fs/cgroup/memory", .file = "memory.oom_control"};
  }
  return std::nullopt;
}

int64_t CountOfGroup(const std::string& root) {
  const std::string groups = ReadFile(root + "/proc/self/cgroup").value_or("");
  for (const absl::string_view line : absl::StrSplit(groups, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::optional<Version> version = VersionOf(parts[1], root);
    if (!version) continue;
    // In a container, the path in this line may be valid only on the host. In that case, the container's own group is
    // at the root of the folder.
    for (const absl::string_view path : {parts[2], absl::string_view("/")}) {
      const auto count = ReadCounter(absl::StrCat(version->folder, path, "/", version->file));
      if (count) return *count;
    }
  }
  return 0;
}

}  // namespace

OomKills CountOomKills(const std::string& root) {
  return {.of_host = ReadCounter(root + "/proc/vmstat").value_or(0), .of_group = CountOfGroup(root)};
}

}  // namespace ronda
