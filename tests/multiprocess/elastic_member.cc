// SPDX-License-Identifier: Apache-2.0

// A member of a job that `rondarun --min-np` runs. It exchanges the messages of membership_message.h with its launcher,
// and trains a sum. Tests control it through signals and files.
//
//   elastic_member FOLDER [EVENT=VALUE]...
//
// All members finish without an error once the file FOLDER/finish exists. On SIGTERM, a member leaves. On SIGUSR1, it
// sends an invalid message to the launcher. After SIGUSR2, it does not join again. With crash=STEP, rank 0 exits with
// code 7 in step STEP. With vanish=EPOCH, rank 1 of epoch EPOCH is killed before the members connect.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ronda.hpp"
#include "runtime/elastic/membership_message.h"

namespace ronda {
namespace {

volatile std::sig_atomic_t g_leave = 0;
volatile std::sig_atomic_t g_nonsense = 0;
volatile std::sig_atomic_t g_sulk = 0;

void OnSignal(int signo) {
  if (signo == SIGTERM) g_leave = 1;
  if (signo == SIGUSR1) g_nonsense = 1;
  if (signo == SIGUSR2) g_sulk = 1;
}

class ElasticMember {
 public:
  ElasticMember(std::string folder, int64_t crash_step, int64_t vanish_epoch)
      : socket_(std::atoi(std::getenv(kMembershipVariable.c_str()))),
        folder_(std::move(folder)),
        crash_step_(crash_step),
        vanish_epoch_(vanish_epoch) {}

  int Run() {
    while (true) {
      Send(JoinRequest{.last_epoch = epoch_, .step = step_, .reason = std::exchange(reason_, "")});
      const LauncherMessage answer = AwaitAnswer();
      if (const auto* end = std::get_if<EndNotice>(&answer)) return Say("end: " + end->reason), 3;
      if (const std::optional<int> exit_code = RunEpoch(std::get<EpochPlace>(answer))) return *exit_code;
    }
  }

 private:
  enum Verdict : int { kGoOn, kChange, kFinish };

  static void Say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  void Send(const MemberMessage& message) const {
    if (!SendMembershipMessage(socket_, Encode(message)).ok()) std::exit(4);
  }

  // Returns the launcher's next message, or nullopt if none arrives within `milliseconds`; -1 means no limit.
  std::optional<LauncherMessage> Hear(int milliseconds) const {
    pollfd request = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&request, 1, milliseconds) != 1) return std::nullopt;
    const auto text = ReceiveMembershipMessage(socket_);
    if (!text.ok()) std::exit(4);
    return text->empty() ? std::nullopt : std::optional<LauncherMessage>(DecodeLauncherMessage(*text).value());
  }

  LauncherMessage AwaitAnswer() const {
    while (true) {
      const auto message = Hear(-1);
      if (message.has_value() && !std::holds_alternative<ChangeNotice>(*message)) return *message;
    }
  }

  // Returns the exit code if the program must end.
  std::optional<int> RunEpoch(const EpochPlace& place) {
    epoch_ = place.epoch;
    is_told_ = false;
    if (epoch_ == vanish_epoch_ && place.topology.rank == 1) kill(getpid(), SIGKILL);
    Options options;
    options.place = {place.topology.rank, place.topology.size};
    options.epoch = static_cast<int>(epoch_);
    try {
      init(options);
      Send(EpochMet{.epoch = epoch_});
      // Tells new members which step the others have reached.
      allreduce(tensor("step", &step_, {1}), {Op::Max});
      Verdict verdict = Step();
      // Prints this line only after a step, so that no two epochs fail at the same step if the test waits for the line
      // in each epoch.
      Say(absl::StrCat("epoch ", epoch_, " is rank ", rank(), " of ", size(), ", pid ", getpid(), ";"));
      while (verdict == kGoOn) verdict = Step();
      shutdown();
      if (verdict == kFinish) return Say("finished"), 0;
      if (g_leave != 0) return Say("left"), 0;
    } catch (const Error& error) {
      if (!error.recoverable()) throw;
      (void)try_shutdown();
      reason_ = error.what();
    }
    while (g_sulk != 0) pause();
    return std::nullopt;
  }

  Verdict Step() {
    if (step_ == crash_step_ && rank() == 0) std::exit(7);
    if (std::exchange(g_nonsense, 0) != 0) send(socket_, "nonsense", 8, MSG_NOSIGNAL);
    int verdict = kGoOn;
    if (const auto message = Hear(0)) {
      is_told_ = is_told_ || std::holds_alternative<ChangeNotice>(*message);
      if (const auto* end = std::get_if<EndNotice>(&*message)) {
        Say("end: " + end->reason);
        verdict = kFinish;
      }
    }
    if (g_leave != 0 && verdict == kGoOn && !std::exchange(has_said_that_it_leaves_, true)) Send(LeaveRequest{});
    if (is_told_ || g_leave != 0) verdict = std::max<int>(verdict, kChange);
    if (access((folder_ + "/finish").c_str(), F_OK) == 0) verdict = kFinish;
    allreduce(tensor("verdict", &verdict, {1}), {Op::Max});
    ++step_;
    usleep(1000);
    return static_cast<Verdict>(verdict);
  }

  const int socket_;
  const std::string folder_;
  const int64_t crash_step_;
  const int64_t vanish_epoch_;
  int64_t epoch_ = -1;
  int64_t step_ = -1;
  std::string reason_;
  bool is_told_ = false;
  bool has_said_that_it_leaves_ = false;
};

int Main(int argc, char** argv) {
  for (const int signo : {SIGTERM, SIGUSR1, SIGUSR2}) signal(signo, OnSignal);
  int64_t crash_step = -2;
  int64_t vanish_epoch = -2;
  for (int i = 2; i < argc; ++i) {
    const std::pair<std::string, std::string> event = absl::StrSplit(argv[i], '=');
    if (!absl::SimpleAtoi(event.second, event.first == "crash" ? &crash_step : &vanish_epoch)) return 2;
  }
  return ElasticMember(argv[1], crash_step, vanish_epoch).Run();
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::Main(argc, argv); }
