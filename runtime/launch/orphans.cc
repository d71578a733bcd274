#include "runtime/launch/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// Where the kernel does not list them, there are none to be known.
std::vector<pid_t> Children() {
  std::ifstream file(absl::StrCat("/proc/self/task/", getpid(), "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void KillOrphans(const std::vector<pid_t>& spared) {
  while (true) {
    std::vector<pid_t> orphans = Children();
    const auto is_spared = [&](pid_t pid) { return std::find(spared.begin(), spared.end(), pid) != spared.end(); };
    orphans.erase(std::remove_if(orphans.begin(), orphans.end(), is_spared), orphans.end());
    if (orphans.empty()) return;
    for (const pid_t orphan : orphans) kill(orphan, SIGKILL);
    // Theirs are ours from here on.
    for (const pid_t orphan : orphans) waitpid(orphan, nullptr, 0);
  }
}

}  // namespace ronda
