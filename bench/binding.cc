#include "bench/binding.h"

#include <sched.h>

#include <cstddef>

namespace ronda::bench {
namespace {

// Returns those that the system grants, which are fewer than there are in some containers.
std::vector<int> UseAllCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(static_cast<int>(core));
  }
  return cores;
}

}  // namespace

const std::vector<std::string>& BindingNames() {
  static const auto* const names = new std::vector<std::string>{"launcher", "none", "core"};
  return *names;
}

void Bind(Binding binding, int rank) {
  if (binding == Binding::kLauncher) return;
  const std::vector<int> cores = UseAllCores();
  if (binding == Binding::kNone || cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cores[static_cast<size_t>(rank) % cores.size()]), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace ronda::bench
