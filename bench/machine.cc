#include "bench/machine.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/binding.h"

namespace ronda::bench {
namespace {

std::string CpuName() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
  }
  return "unknown";
}

double MemoryGib() {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return 0;
  return static_cast<double>(info.totalram) * info.mem_unit / (1 << 30);
}

std::string Kernel() {
  utsname names;
  return uname(&names) == 0 ? absl::StrCat(names.sysname, " ", names.release) : "unknown";
}

}  // namespace

Machine DescribeMachine() {
  return {.cpu = CpuName(),
          .cores = static_cast<int>(GrantedCores().size()),
          .memory_gib = MemoryGib(),
          .kernel = Kernel()};
}

std::string NowInUtc() { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()); }

}  // namespace ronda::bench
