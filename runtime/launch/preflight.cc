#include "runtime/launch/preflight.h"

#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/argument_sources.h"
#include "runtime/launch/host_probe.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/probe_client.h"
#include "runtime/launch/remote_command.h"

namespace ronda {
namespace {

// A login and a start over a slow network.
constexpr absl::Duration kStartPatience = absl::Seconds(30);
constexpr absl::Duration kAnswerPatience = absl::Seconds(5);
// Longer than a probe tries to connect.
constexpr absl::Duration kConnectPatience = absl::Seconds(3);

// "--probe", and the interfaces if there are any.
std::vector<std::string> ProbeWords(const std::string& program, const RemoteOptions& remote) {
  std::vector<std::string> words = {program, kProbeWord};
  words.insert(words.end(), remote.network_interfaces.begin(), remote.network_interfaces.end());
  return words;
}

// A host, and the probe that answers for it.
struct Asked {
  ProbedHost host;
  std::unique_ptr<ProbeClient> probe;  // null if host.status is not OK

  // No more questions, for this reason.
  void GiveUp(absl::Status status) {
    host.status = std::move(status);
    probe.reset();
  }
};

absl::Status ReadFacts(ProbeClient* probe, absl::Time deadline, HostFacts* facts) {
  for (;;) {
    RONDA_ASSIGN_OR_RETURN(const std::string line, probe->ReadLine(deadline));
    if (line == ".") return absl::OkStatus();
    ParseFact(line, facts);
  }
}

// The time there was read at some moment between question and answer.
absl::Status CompareClocks(ProbeClient* probe, ProbedHost* host) {
  const absl::Time asked = absl::Now();
  probe->Ask("clock");
  RONDA_ASSIGN_OR_RETURN(const std::string answer, probe->ReadLine(asked + kAnswerPatience));
  const absl::Duration half = (absl::Now() - asked) / 2;
  int64_t nanoseconds = 0;
  if (!absl::SimpleAtoi(answer, &nanoseconds)) return absl::UnavailableError(absl::StrCat("it answers ", answer));
  host->clock_skew = absl::FromUnixNanos(nanoseconds) - (asked + half);
  host->clock_precision = half;
  return absl::OkStatus();
}

bool CanBeReached(const Asked& asked) { return asked.probe != nullptr && asked.host.facts.contains(fact::kPort); }

// The hosts that `from` is to reach.
std::vector<const Asked*> TargetsOf(const Asked& from, const std::vector<Asked>& all) {
  std::vector<const Asked*> targets;
  if (!CanBeReached(from)) return targets;
  for (const Asked& to : all) {
    if (&to != &from && CanBeReached(to)) targets.push_back(&to);
  }
  return targets;
}

void AskForConnections(const Asked& from, const std::vector<const Asked*>& targets) {
  for (const Asked* to : targets) {
    from.probe->Ask(
        absl::StrCat("connect ", FactOr(to->host.facts, fact::kAddress), " ", FactOr(to->host.facts, fact::kPort)));
  }
}

void ReadConnections(const std::vector<const Asked*>& targets, Asked* from) {
  for (const Asked* to : targets) {
    const absl::StatusOr<std::string> answer = from->probe->ReadLine(absl::Now() + kConnectPatience);
    if (!answer.ok()) return from->GiveUp(answer.status());
    if (*answer == "ok") continue;
    from->host.unreached.push_back(
        {.host = absl::StrCat(to->host.host, " (", FactOr(to->host.facts, fact::kAddress), ")"), .reason = *answer});
  }
}

// All try at the same time: each answers the others while it asks.
void TryConnections(std::vector<Asked>* all) {
  std::vector<std::vector<const Asked*>> targets;
  for (const Asked& from : *all) targets.push_back(TargetsOf(from, *all));
  for (size_t i = 0; i < all->size(); ++i) AskForConnections((*all)[i], targets[i]);
  for (size_t i = 0; i < all->size(); ++i) ReadConnections(targets[i], &(*all)[i]);
}

void LearnAbout(absl::Time deadline, Asked* asked) {
  if (asked->probe == nullptr) return;
  absl::Status status = ReadFacts(asked->probe.get(), deadline, &asked->host.facts);
  if (status.ok()) status = CompareClocks(asked->probe.get(), &asked->host);
  if (!status.ok()) asked->GiveUp(std::move(status));
}

Asked StartAsking(const HostSlots& host, const std::vector<std::string>& command) {
  Asked asked;
  asked.host.host = host.host;
  asked.host.slots = host.slots;
  auto probe = ProbeClient::Start(command);
  asked.host.status = probe.status();
  if (probe.ok()) asked.probe = *std::move(probe);
  return asked;
}

}  // namespace

PreflightReport CheckHosts(const LaunchOptions& options, const std::string& program,
                           const std::vector<std::string>& own) {
  std::vector<HostSlots> hosts = options.hosts;
  if (hosts.empty()) hosts.push_back({.host = "localhost", .slots = options.rank_count});
  std::vector<Asked> all;
  const std::vector<std::string> probe = ProbeWords(program, options.remote);
  for (const HostSlots& host : hosts) {
    const bool is_here = IsThisHost(host.host, own);
    all.push_back(StartAsking(host, is_here ? probe : RemoteCommand(options.remote, host.host, probe)));
  }
  const absl::Time deadline = absl::Now() + kStartPatience;
  for (Asked& asked : all) LearnAbout(deadline, &asked);
  TryConnections(&all);
  std::vector<ProbedHost> probed;
  for (Asked& asked : all) probed.push_back(std::move(asked.host));
  return MakePreflightReport(probed);
}

int RunPreflight(const LaunchOptions& options) {
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) return 1;
  LaunchOptions asked = options;
  // What the ranks would make of the environment.
  const absl::StatusOr<Config> config = ReadConfig(ProcessEnvironment());
  if (config.ok() && asked.remote.network_interfaces.empty()) {
    asked.remote.network_interfaces = config->network.interfaces;
  }
  const PreflightReport report = CheckHosts(asked, program, ArgumentSources::OfThisProcess().own_addresses());
  fputs(report.text.c_str(), stdout);
  return fflush(stdout) == 0 && report.problems.empty() ? 0 : 1;
}

}  // namespace ronda
