#include "bench/binding.h"

#include <sched.h>

#include <cstddef>

namespace ronda::bench {
namespace {

// Asks for all; the system grants what it lets this process have.
void UseAllCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

std::vector<int> OwnCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
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

std::vector<int> GrantedCores() {
  cpu_set_t before;
  const bool is_known = sched_getaffinity(0, sizeof(before), &before) == 0;
  UseAllCores();
  std::vector<int> cores = OwnCores();
  if (is_known) sched_setaffinity(0, sizeof(before), &before);
  return cores;
}

void Bind(Binding binding, int rank) {
  if (binding == Binding::kLauncher) return;
  UseAllCores();
  const std::vector<int> cores = OwnCores();
  if (binding == Binding::kNone || cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cores[static_cast<size_t>(rank) % cores.size()]), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace ronda::bench
