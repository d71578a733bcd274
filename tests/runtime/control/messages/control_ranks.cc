// SPDX-License-Identifier: Apache-2.0

// The program that each rank of mpirun_control_test runs: control_ranks PLUGIN open_mpi|mpich mpi|tcp
// rounds|measure|idle|failure [FOLDER]. FOLDER is for `failure` only.
//
// To compare the control planes by hand, run mpirun -np 2 control_ranks ... mpi measure, and then the same command with
// tcp instead of mpi.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/logging.h"
#include "runtime/control/messages/message_control_plane.h"
#include "runtime/mpi/mpi_session.h"
#include "runtime/net/endpoint.h"
#include "tests/runtime/control/messages/tcp_ranks.h"

namespace ronda::testing {
namespace {

// A report and a list, as long as in a cached step of ResNet-50.
constexpr char kReport[] = "12345";
constexpr char kList[] = "12345678901234567";

struct Program {
  std::shared_ptr<MpiSession> session;
  std::unique_ptr<ControlPlane> control;
  int heard = 0;  // reports so far; a rank's next one may come before rank 0 has seen its own list

  bool is_root() const { return session->rank() == 0; }
};

std::vector<Peer> PeersOf(const MpiSession& session) {
  std::vector<Peer> peers;
  for (RankId rank = 0; rank < session.size(); ++rank) peers.push_back({.rank = rank, .host = "here", .pid = rank});
  return peers;
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectOverMpi(MpiSession& session) {
  std::vector<RankId> all(static_cast<size_t>(session.size()));
  std::iota(all.begin(), all.end(), 0);
  auto messages = session.Connect(all, 0);
  if (!messages.ok()) return messages.status();
  return ConnectMessageControlPlane({.rank = session.rank(),
                                     .peers = PeersOf(session),
                                     .messages = *std::move(messages),
                                     .job_id = "job",
                                     .abandon_messages = [&session] { session.LeaveWithoutEnd(); },
                                     .fan_out = kMpiControlFanOut});
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectOverTcp(MpiSession& session) {
  TcpRank self = {.control = {.rank = session.rank(),
                              .peers = PeersOf(session),
                              .job_id = "job",
                              .cores = PollLimit::Cores::kSuffice},
                  .mesh = {.job = {.job_id = "job"}, .rank = session.rank(), .peers = PeersOf(session)}};
  if (session.rank() == 0) self.listener = TcpListener::Start(*ResolveEndpoint("127.0.0.1", 0)).value();
  const std::string port =
      session.Broadcast(self.listener == nullptr ? "" : absl::StrCat(self.listener->endpoint().port)).value();
  int number = 0;
  RONDA_CHECK(absl::SimpleAtoi(port, &number));
  self.mesh.endpoints.assign(self.mesh.peers.size(), *ResolveEndpoint("127.0.0.1", number));
  return ConnectRank(std::move(self));
}

// Calls Receive() until `done` accepts the messages of a call, or the job fails.
template <typename Done>
void ReceiveUntil(ControlPlane& control, const Done& done) {
  for (;;) {
    const absl::StatusOr<ControlPlane::Inbox> inbox = control.Receive();
    if (!inbox.ok() || done(*inbox)) return;
    control.Wait(absl::InfiniteFuture());
  }
}

// Makes each rank send a report, which rank 0 answers with a broadcast.
void Round(Program& program) {
  ControlPlane& control = *program.control;
  RONDA_CHECK(control.SendToCoordinator(kReport).ok());
  ReceiveUntil(control, [&](const ControlPlane::Inbox& inbox) {
    for (const ControlMessage& message : inbox.to_coordinator) {
      RONDA_CHECK(message.payload == kReport);
      if (++program.heard % program.session->size() == 0) RONDA_CHECK(control.Broadcast(kList).ok());
    }
    return !inbox.broadcasts.empty() && inbox.broadcasts.front() == kList;
  });
}

void RunRounds(Program& program, size_t rounds) {
  std::vector<double> times;
  for (size_t i = 0; i < rounds; ++i) {
    const absl::Duration begun = MonotonicTime();
    Round(program);
    times.push_back(absl::ToDoubleMicroseconds(MonotonicTime() - begun));
  }
  std::sort(times.begin(), times.end());
  if (program.is_root()) {
    std::printf("a round: median %.1f us, 90 %% in %.1f us\n", times[rounds / 2], times[rounds * 9 / 10]);
  }
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Idle(Program& program) {
  const double before = CpuSeconds();
  const absl::Time end = SteadyNow() + absl::Seconds(3);
  while (SteadyNow() < end) program.control->Wait(end);
  std::printf("idle: %.2f %% of a core\n", (CpuSeconds() - before) / 3 * 100);
}

// The last rank fails. Each rank writes the failure to the file `folder`/RANK. Before it exits, it waits for the files
// of all ranks, because mpirun ends all ranks when the first one exits.
void FailAndSay(Program& program, const std::string& folder) {
  ControlPlane& control = *program.control;
  const bool is_last = program.session->rank() == program.session->size() - 1;
  // All ranks have started when rank 0 has received a report from each of them.
  if (program.is_root() || is_last) {
    Round(program);
  } else {
    RONDA_CHECK(control.SendToCoordinator(kReport).ok());
  }
  if (is_last) control.Fail(absl::DataLossError("on purpose"));
  const auto file = [&folder](RankId rank) { return absl::StrCat(folder, "/", rank); };
  RONDA_CHECK(WriteFile(file(program.session->rank()), Text(AwaitFailure(control))).ok());
  for (RankId rank = 0; rank < program.session->size(); ++rank) {
    while (ReadFile(file(rank)).value_or("").empty()) absl::SleepFor(absl::Milliseconds(1));
  }
}

int Main(int argc, char** argv) {
  const bool fails = argc == 6 && std::string(argv[4]) == "failure";
  if (argc != 5 && !fails) return 2;
  const MpiFlavor flavor = std::string(argv[2]) == "mpich" ? MpiFlavor::kMpich : MpiFlavor::kOpenMpi;
  absl::StatusOr<std::shared_ptr<MpiSession>> session = MpiSession::Start({.flavor = flavor, .plugin = argv[1]});
  RONDA_CHECK(session.ok());
  Program program = {.session = *std::move(session)};
  auto control = std::string(argv[3]) == "mpi" ? ConnectOverMpi(*program.session) : ConnectOverTcp(*program.session);
  if (!control.ok()) {
    std::printf("%s\n", control.status().ToString().c_str());
    return 1;
  }
  program.control = *std::move(control);
  const std::string scenario = argv[4];
  if (scenario == "rounds") RunRounds(program, 50);
  if (scenario == "measure") RunRounds(program, 2000);
  if (scenario == "idle") Idle(program);
  if (fails) {
    FailAndSay(program, argv[5]);
  } else {
    program.control->Depart();
  }
  program.control.reset();
  std::printf("rank %d has left\n", program.session->rank());
  return 0;
}

}  // namespace
}  // namespace ronda::testing

int main(int argc, char** argv) { return ronda::testing::Main(argc, argv); }
