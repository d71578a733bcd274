// SPDX-License-Identifier: Apache-2.0

#include "programs/rondactl/top.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "programs/monitor/jobs/reports.h"
#include "programs/monitor/jobs/watched_jobs.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {
namespace {

constexpr absl::Duration kScreenPeriod = absl::Seconds(1);

// Terminal escape sequences.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";  // the second screen, without a cursor
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";

void Print(const std::string& text) {
  fputs(text.c_str(), stdout);
  fflush(stdout);
}

// Shows screens on the terminal, each replacing the one before. The destructor restores the terminal.
class Screen {
 public:
  Screen() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      // Make the terminal deliver each key at once, without echoing it. Ctrl-Z is disabled, so that the shell never
      // runs on the alternate screen.
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      keys.c_cc[VSUSP] = _POSIX_VDISABLE;
      has_keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
    }
    Print(kEnter);
  }
  ~Screen() {
    Print(kLeave);
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Shows as much of the text as fits on the screen.
  void Show(const std::string& text) const {
    winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    if (size.ws_row > 0 && lines.size() > size.ws_row) lines.resize(size.ws_row);
    std::string drawn = kHome;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (size.ws_col > 0 && lines[i].size() > size.ws_col) lines[i].resize(size.ws_col);
      absl::StrAppend(&drawn, i == 0 ? "" : "\r\n", lines[i], kClearLine);
    }
    Print(drawn + kClearBelow);
  }

  bool has_keys() const { return has_keys_; }

 private:
  termios before_ = {};
  bool has_keys_ = false;
};

// Blocks the signals that end a program, and returns a descriptor for reading them.
absl::StatusOr<UniqueFd> CatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&signals, signo);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot receive signals (signalfd)");
  return fd;
}

// Waits until `deadline`. Returns true early if the user wants to leave.
absl::StatusOr<bool> WaitForLeave(const UniqueFd& signals, bool has_keys, FlightTime deadline) {
  pollfd fds[] = {{.fd = signals.get(), .events = POLLIN, .revents = 0},
                  {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
  for (FlightTime now = FlightNow(); now < deadline; now = FlightNow()) {
    RONDA_ASSIGN_OR_RETURN(const int ready, PollDescriptors(absl::MakeSpan(fds), deadline - now));
    if (ready == 0) continue;
    if (fds[0].revents != 0) return true;
    char key = 'q';  // is used if the terminal is gone
    if (fds[1].revents != 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')) return true;
  }
  return false;
}

bool HasEnded(const JobSnapshot& job) {
  return std::none_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) { return rank.is_alive; });
}

// Watches the job until it is time for the next table. Returns nullopt if the user wants to leave, or if the job is
// gone.
absl::StatusOr<std::optional<JobSnapshot>> NextSnapshot(const UniqueFd& signals, bool has_keys, WatchedJobs* jobs) {
  const FlightTime due = FlightNow() + kScreenPeriod;
  while (true) {
    const FlightTime now = FlightNow();
    jobs->Sample(now);
    if (now >= due) {
      const std::vector<JobSnapshot> snapshots = jobs->Snapshots();
      return snapshots.empty() ? std::nullopt : std::optional(snapshots.front());
    }
    RONDA_ASSIGN_OR_RETURN(const bool leaves, WaitForLeave(signals, has_keys, now + JobSampler::kPeriod));
    if (leaves) return std::nullopt;
  }
}

}  // namespace

absl::Status ShowTop(const std::string& job, TopTables tables) {
  RONDA_ASSIGN_OR_RETURN(const UniqueFd signals, CatchSignals());
  std::unique_ptr<Screen> screen;
  if (tables == TopTables::kMany && isatty(STDOUT_FILENO) == 1) screen = std::make_unique<Screen>();
  const bool has_keys = screen != nullptr && screen->has_keys();
  WatchedJobs jobs({.is_watched = OfJob(job)});
  bool has_ended = false;
  while (!has_ended) {
    RONDA_ASSIGN_OR_RETURN(const std::optional<JobSnapshot> snapshot, NextSnapshot(signals, has_keys, &jobs));
    if (!snapshot.has_value()) break;
    const std::string text = TopText(*snapshot);
    has_ended = HasEnded(*snapshot);
    screen != nullptr ? screen->Show(text) : Print(tables == TopTables::kMany ? absl::StrCat(text, "\n") : text);
    if (tables == TopTables::kOne) return absl::OkStatus();
  }
  screen.reset();
  if (has_ended) Print(absl::StrCat("job ", job, " has ended\n"));
  return absl::OkStatus();
}

}  // namespace ronda
