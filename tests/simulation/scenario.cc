// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/scenario.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda::simulation {
namespace {

constexpr const char* kNames[Fault::kKinds] = {
    "kill",         "power loss",        "freeze",        "stop",         "reset",
    "silence",      "no memory",         "no thread",     "clock jump",   "leave",
    "resize",       "misbehave",         "no descriptor", "agent killed", "agent frozen",
    "host cut off", "connection broken", "host lost"};
constexpr int kMostFaults = 5;
constexpr int kMostFaultsOfHosts = 3;
constexpr int kMostHosts = 3;
// The number of kinds of faults, without kNoDescriptor and host faults, which are chosen separately.
constexpr int kOtherKinds = static_cast<int>(Fault::Kind::kNoDescriptor);
constexpr int kKindsOfHosts = Fault::kKinds - static_cast<int>(Fault::kFirstOfHosts);
// How many times longer a long host fault lasts, so that both the launcher and the agent give up.
constexpr int kLongFaultOfHost = 30;
// About how long a job without faults takes.
constexpr absl::Duration kUsualTime = absl::Seconds(1);
constexpr absl::Duration kLongestFault = absl::Seconds(3);

}  // namespace

const char* Name(Fault::Kind kind) { return kNames[static_cast<int>(kind)]; }

Scenario MakeScenario(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<uint64_t>(most + 1)); };
  const auto time = [&](absl::Duration most) { return most * (static_cast<double>(up_to(1'000'000)) / 1e6); };
  Scenario scenario = {.seed = seed};
  scenario.members = 1 + up_to(4);
  scenario.min_members = 1 + up_to(scenario.members - 1);
  scenario.max_members = scenario.members + up_to(2);
  scenario.steps = 20 + up_to(80);
  scenario.contradiction_every = up_to(2) == 0 ? 5 + up_to(10) : 0;
  scenario.omission_every = up_to(3) == 0 ? 15 + up_to(10) : 0;
  scenario.compute = absl::Microseconds(10 << up_to(9));
  scenario.latency = absl::Microseconds(5 << up_to(9));
  scenario.tick = absl::Microseconds(1 << up_to(4));
  scenario.tunables = {.cycle_time = up_to(3) == 0 ? absl::Milliseconds(1) : absl::ZeroDuration(),
                       .fusion_threshold = up_to(2) == 0 ? 0 : size_t{1} << (6 + up_to(14)),
                       .min_bucket_bytes = size_t{1} << (4 + up_to(12)),
                       .chunk_bytes = up_to(1) == 0 ? size_t{0} : size_t{4096},
                       .cache_capacity = up_to(3) == 0 ? 0 : 1 + static_cast<size_t>(up_to(15)),
                       .stall_warning = absl::Seconds(20),
                       .stall_deadline = absl::Seconds(30),
                       .start_timeout = absl::Seconds(5),
                       .lock_after = up_to(3) == 0 ? 0 : 2 + up_to(3)};
  const auto add_fault = [&](Fault::Kind kind) {
    scenario.faults.push_back(
        {.kind = kind, .at = time(kUsualTime), .lasts = time(kLongestFault), .choice = random(), .choice2 = random()});
  };
  for (int faults = up_to(kMostFaults); faults > 0; --faults) {
    add_fault(static_cast<Fault::Kind>(up_to(kOtherKinds - 1)));
  }
  // Members create descriptors only when an epoch begins, so kNoDescriptor takes effect only after other faults have
  // ended an epoch.
  if (scenario.faults.size() >= 2 && up_to(1) == 0) add_fault(Fault::Kind::kNoDescriptor);
  if (scenario.members > 1 && up_to(1) == 0) scenario.hosts = 2 + up_to(std::min(scenario.members, kMostHosts) - 2);
  for (int faults = scenario.hosts > 1 ? up_to(kMostFaultsOfHosts) : 0; faults > 0; --faults) {
    add_fault(static_cast<Fault::Kind>(static_cast<int>(Fault::kFirstOfHosts) + up_to(kKindsOfHosts - 1)));
    if (up_to(7) == 0) scenario.faults.back().lasts *= kLongFaultOfHost;
  }
  if (up_to(2) == 0) scenario.transport = VirtualNetwork::Transport::kTcp;
  std::sort(scenario.faults.begin(), scenario.faults.end(), [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return scenario;
}

std::string Describe(const Scenario& scenario) {
  const auto describe = [](std::string* out, const Fault& fault) {
    absl::StrAppend(out, Name(fault.kind), " at ", absl::FormatDuration(fault.at), " (",
                    absl::FormatDuration(fault.lasts), ")");
  };
  return absl::StrCat("seed ", scenario.seed, ": ", scenario.members, " members on ", scenario.hosts, " hosts (",
                      scenario.min_members, " to ", scenario.max_members, "), ", scenario.steps, " steps, compute ",
                      absl::FormatDuration(scenario.compute), ", latency ", absl::FormatDuration(scenario.latency),
                      scenario.transport == VirtualNetwork::Transport::kTcp ? ", TCP" : "", ", lock after ",
                      scenario.tunables.lock_after, "; ", absl::StrJoin(scenario.faults, ", ", describe));
}

}  // namespace ronda::simulation
