#include "bench/binding.h"

#include <sched.h>
#include <unistd.h>

namespace ronda::bench {

const std::vector<std::string>& BindingNames() {
  static const auto* const names = new std::vector<std::string>{"launcher", "none", "core"};
  return *names;
}

void Bind(Binding binding, int rank) {
  if (binding == Binding::kLauncher) return;
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core = 0; core < cores; ++core) {
    if (binding == Binding::kNone || core == rank % cores) CPU_SET(core, &set);
  }
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace ronda::bench
