// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/hosts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda::simulation {
namespace {

constexpr absl::Duration kLongestPause = absl::Milliseconds(8);
constexpr uint64_t kLongestPiece = 4096;
// How long an agent may live without a message from its launcher: the agent's timeout, plus the time that its members
// need to end, plus some slack.
constexpr absl::Duration kTimeToBeForsaken = absl::Seconds(60 + 5 + 5);
// The launcher may lose a host only within this time after a fault on the host.
constexpr absl::Duration kTimeToRecover = absl::Seconds(30);
constexpr int kSshsExit = 255;

void SetNonBlocking(const UniqueFd& fd) { fcntl(fd.get(), F_SETFL, O_NONBLOCK); }

bool IsOnlyLate(ssize_t count) { return count < 0 && (errno == EAGAIN || errno == EINTR); }

}  // namespace

// One direction of a connection, which passes bytes from `from` to `to`.
struct Hosts::Way {
  UniqueFd from;
  UniqueFd to;
  std::string pending;

  bool Read(uint64_t most) {
    std::array<char, kLongestPiece> buffer;
    const ssize_t count = read(from.get(), buffer.data(), most);
    if (count > 0) pending.append(buffer.data(), static_cast<size_t>(count));
    return count > 0 || IsOnlyLate(count);
  }
  // Returns whether the receiving end is alive. Sets `*passed` to true if it has accepted bytes.
  bool Write(bool* passed) {
    if (pending.empty()) return true;
    const ssize_t count = write(to.get(), pending.data(), pending.size());
    if (count > 0) pending.erase(0, static_cast<size_t>(count));
    *passed = *passed || count > 0;
    return count > 0 || IsOnlyLate(count);
  }
};

struct Hosts::Connection {
  std::string host;
  ProcessId program = 0;  // the launcher's child
  ProcessId agent = 0;
  Way to_agent;
  Way from_agent;
  UniqueFd errors;  // of the program, where it prints nothing
  bool is_over = false;
  absl::Duration pause = absl::Milliseconds(1);
};

int Hosts::Connect(const std::string& host, VirtualProcesses::Descriptors descriptors) {
  VirtualWorld& world = VirtualWorld::Get();
  auto connection = std::make_shared<Connection>();
  connection->host = host;
  connection->program = world.current_process();
  connection->to_agent.from = std::move(descriptors.input);
  connection->from_agent.to = std::move(descriptors.output);
  connection->errors = std::move(descriptors.errors);
  // A separate process forwards the bytes, so that the connection outlives the processes at its ends.
  const ProcessId network = world.StartProcess(absl::StrCat("connection to ", host), [this, connection] {
    Carry(connection.get());
    return 0;
  });
  for (const UniqueFd* const fd : {&connection->to_agent.from, &connection->from_agent.to, &connection->errors}) {
    VirtualProcesses::Get().Give(fd->get(), network);
  }
  while (!connection->is_over) world.SleepUntil(now() + absl::Milliseconds(10));
  return kSshsExit;
}

void Hosts::Carry(Connection* connection) {
  VirtualWorld& world = VirtualWorld::Get();
  Host& host = hosts_[connection->host];
  if (AwaitHost(*connection)) {
    StartAgent(connection);
    for (bool goes_on = true; goes_on;) {
      world.SleepUntil(now() + world.RandomDuration(2 * connection->pause));
      if (now() < host.cut_until) continue;
      const bool is_newest = host.agents.back().process == connection->agent;
      const bool is_broken = host.breaks && is_newest && PassHalf(connection);
      if (is_broken) host.breaks = false;
      goes_on = !is_broken && world.IsAlive(connection->program) && Pass(connection);
    }
  }
  connection->to_agent = {};
  connection->from_agent = {};
  connection->errors.Reset();
  connection->is_over = true;
}

bool Hosts::AwaitHost(const Connection& connection) {
  VirtualWorld& world = VirtualWorld::Get();
  do {
    world.SleepUntil(now() + world.RandomDuration(absl::Milliseconds(20)));
    if (!world.IsAlive(connection.program)) return false;
  } while (now() < hosts_[connection.host].cut_until);
  return true;
}

void Hosts::StartAgent(Connection* connection) {
  int in[2], out[2], errors[2];
  for (int* const ends : {in, out, errors}) {
    if (pipe2(ends, O_CLOEXEC) != 0) abort();  // the machine's limits are not part of the simulation
  }
  auto descriptors = std::make_shared<VirtualProcesses::Descriptors>();
  descriptors->input = UniqueFd(in[0]);
  descriptors->output = UniqueFd(out[1]);
  descriptors->errors = UniqueFd(errors[1]);
  connection->to_agent.to = UniqueFd(in[1]);
  connection->from_agent.from = UniqueFd(out[0]);
  const UniqueFd unread(errors[0]);
  for (const UniqueFd* const fd : {&connection->to_agent.from, &connection->to_agent.to, &connection->from_agent.from,
                                   &connection->from_agent.to}) {
    SetNonBlocking(*fd);
  }
  connection->agent = VirtualWorld::Get().StartProcess(
      absl::StrCat("agent of ", connection->host),
      [this, host = connection->host, descriptors] { return run_agent_(host, std::move(*descriptors)); });
  for (const UniqueFd* const fd : {&descriptors->input, &descriptors->output, &descriptors->errors}) {
    VirtualProcesses::Get().Give(fd->get(), connection->agent);
  }
  hosts_[connection->host].agents.push_back({.process = connection->agent, .heard = now()});
  ++agents_started_;
}

bool Hosts::Pass(Connection* connection) {
  bool passed_to = false, passed_from = false;
  VirtualWorld& world = VirtualWorld::Get();
  for (const auto& [way, passed] :
       {std::pair(&connection->to_agent, &passed_to), std::pair(&connection->from_agent, &passed_from)}) {
    const uint64_t most = 1 + world.Random(kLongestPiece);
    const bool goes_on = !way->pending.empty() || way->Read(most);
    if (!way->Write(passed) || !goes_on) return false;
  }
  for (Agent& agent : hosts_[connection->host].agents) {
    if (passed_to && agent.process == connection->agent) agent.heard = std::max(agent.heard, now());
  }
  connection->pause = passed_to || passed_from ? absl::Milliseconds(1) : std::min(2 * connection->pause, kLongestPause);
  return true;
}

bool Hosts::PassHalf(Connection* connection) {
  bool passed = false;
  for (Way* const way : {&connection->to_agent, &connection->from_agent}) {
    way->Read(kLongestPiece);
    way->pending.resize(way->pending.size() / 2);
    way->Write(&passed);
  }
  if (passed) ++broken_;
  return passed;
}

Hosts::Agent* Hosts::LivingAgent(Host* host) {
  for (Agent& agent : host->agents) {
    if (VirtualWorld::Get().IsAlive(agent.process)) return &agent;
  }
  return nullptr;
}

void Hosts::RecordAgent(const std::string& host) {
  const ProcessId self = VirtualWorld::Get().current_process();
  for (Agent& agent : hosts_[host].agents) {
    if (agent.process == self) {
      agent.is_only_one = true;
    } else if (agent.is_only_one && VirtualWorld::Get().IsAlive(agent.process)) {
      violate_(absl::StrCat("host ", host, " has two agents"));
    }
  }
}

bool Hosts::KillAgent(const std::string& name) {
  Host& host = hosts_[name];
  const Agent* const agent = LivingAgent(&host);
  if (agent == nullptr) return false;
  host.hurt_until = std::max(host.hurt_until, now());
  VirtualWorld::Get().Kill(agent->process);
  return true;
}

bool Hosts::FreezeAgent(const std::string& name, absl::Duration until) {
  Host& host = hosts_[name];
  Agent* const agent = LivingAgent(&host);
  if (agent == nullptr) return false;
  host.hurt_until = std::max(host.hurt_until, until);
  agent->heard = std::max(agent->heard, until);
  VirtualWorld::Get().Freeze(agent->process, until);
  return true;
}

void Hosts::CutOff(const std::string& name, absl::Duration until) {
  Host& host = hosts_[name];
  host.cut_until = std::max(host.cut_until, until);
  host.hurt_until = std::max(host.hurt_until, until);
}

bool Hosts::Break(const std::string& name) {
  Host& host = hosts_[name];
  if (LivingAgent(&host) == nullptr) return false;
  host.breaks = true;
  host.hurt_until = std::max(host.hurt_until, now());
  return true;
}

void Hosts::Lose(const std::string& name, absl::Duration until) {
  CutOff(name, until);
  for (const Agent& agent : hosts_[name].agents) VirtualWorld::Get().Kill(agent.process);
}

bool Hosts::Check() {
  bool does_any_live = false;
  for (auto& [name, host] : hosts_) {
    for (const Agent& agent : host.agents) {
      if (!VirtualWorld::Get().IsAlive(agent.process)) continue;
      does_any_live = true;
      if (now() - agent.heard <= kTimeToBeForsaken) continue;
      violate_(absl::StrCat("an agent of host ", name, " lives, which has heard nothing for ",
                            absl::FormatDuration(now() - agent.heard)));
    }
  }
  return does_any_live;
}

bool Hosts::HasAgent(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && !found->second.agents.empty();
}

bool Hosts::MayBeLost(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && now() - found->second.hurt_until <= kTimeToRecover;
}

}  // namespace ronda::simulation
