#include "runtime/monitor/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ronda {
namespace {

struct ProcStat {
  char state;
  uint64_t start_time;
};

// Reads /proc/<pid>/stat, see proc(5); nullopt if there is no such process. Allocates nothing: peers are watched also
// where memory has run out.
std::optional<ProcStat> ReadProcStat(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char buffer[1024];
  const ssize_t bytes = read(fd, buffer, sizeof(buffer));
  close(fd);
  if (bytes <= 0) return std::nullopt;
  const absl::string_view text(buffer, static_cast<size_t>(bytes));
  // The command's name is in parentheses and may itself contain spaces and parentheses: fields are counted from the
  // last.
  const size_t name_end = text.rfind(") ");
  if (name_end == absl::string_view::npos) return std::nullopt;
  constexpr int kState = 0;       // field 3 of proc(5)
  constexpr int kStartTime = 19;  // field 22
  ProcStat stat{};
  int index = 0;
  for (const absl::string_view field : absl::StrSplit(text.substr(name_end + 2), ' ')) {
    if (index == kState && !field.empty()) stat.state = field[0];
    if (index++ != kStartTime) continue;
    if (stat.state == 0 || !absl::SimpleAtoi(field, &stat.start_time)) return std::nullopt;
    return stat;
  }
  return std::nullopt;
}

}  // namespace

ProcessId ThisProcess() {
  const std::optional<ProcStat> stat = ReadProcStat(getpid());
  return {.pid = getpid(), .start_time = stat.has_value() ? stat->start_time : 0};
}

bool IsAlive(const ProcessId& process) {
  // Without /proc the pid is all that is known.
  if (process.start_time == 0) return kill(process.pid, 0) == 0 || errno == EPERM;
  const std::optional<ProcStat> stat = ReadProcStat(process.pid);
  return stat.has_value() && stat->start_time == process.start_time && stat->state != 'Z' && stat->state != 'X';
}

}  // namespace ronda
