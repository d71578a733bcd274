// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/control_job.h"

#include <algorithm>
#include <memory>
#include <random>
#include <regex>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/messages/message_control_plane.h"
#include "runtime/tcp/tcp_listener.h"
#include "runtime/tcp/tcp_mesh.h"
#include "tests/simulation/virtual_sockets.h"

namespace ronda::simulation {
namespace {

constexpr int kMostRanks = 9;
constexpr int kMostFaults = 2;
// The longest times until a fault: kUsualTime for a job whose ranks connect at once, and kLongTime for a job in which a
// rank must try twice to connect to another.
constexpr absl::Duration kUsualTime = absl::Milliseconds(50);
constexpr absl::Duration kLongTime = absl::Milliseconds(400);
// Heartbeats are so rare that none is sent in a scenario.
constexpr absl::Duration kHeartbeat = absl::Hours(10);
constexpr absl::Duration kStartTimeout = absl::Hours(1);
// The longest time that a rank waits for the connections to its neighbours.
constexpr absl::Duration kMeshTimeout = absl::Seconds(30);
constexpr int kFirstPort = 1000;
constexpr absl::Duration kLongestWait = absl::Hours(1);
// The longest time from the last fault to the end of the last rank, which includes the seconds that a control plane
// waits for the other ranks when it shuts down.
constexpr absl::Duration kTimeToEnd = absl::Seconds(30);
// After the last fault, every rank must know the failure within kTimeToHear plus kLatenciesToHear latencies per rank
// plus one computation, plus kMeshTimeout if the ranks are still connecting.
constexpr absl::Duration kTimeToHear = absl::Milliseconds(200);
constexpr int kLatenciesToHear = 100;

constexpr char kFailedByRank[] = "the rank has failed by itself";

// Returns a message. Some fit into the header of a frame, some do not, and some take many reads.
std::string Payload(absl::string_view kind, uint64_t seed, int64_t round) {
  std::mt19937_64 random(seed * 1000003 + static_cast<uint64_t>(round));
  constexpr size_t kSizes[] = {40, 256, 2000, 20000};
  std::string payload = absl::StrCat(kind, " of round ", round, ": ");
  payload.resize(payload.size() + random() % kSizes[random() % 4]);
  for (char& each : payload) {
    if (each == '\0') each = static_cast<char>('a' + random() % 26);
  }
  return payload;
}

// In even rounds all ranks send the same report, which may travel as one message.
std::string ReportOf(uint64_t seed, RankId rank, int64_t round) {
  return Payload(round % 2 == 0 ? "report" : absl::StrCat("report of rank ", rank), seed, round);
}

std::string BroadcastOf(uint64_t seed, int64_t round) { return Payload("broadcast", seed, round); }

// Returns whether the text names the rank, for example as "rank 2" or in "ranks 0, 1 and 2".
bool Names(absl::string_view text, RankId rank) {
  const std::regex name(absl::StrCat("ranks?( [0-9]+,?| and)* ", rank, "\\b"));
  return std::regex_search(text.begin(), text.end(), name);
}

// The process of a rank.
class ControlRank {
 public:
  ControlRank(ControlJob& job, RankId rank)
      : job_(job), rank_(rank), reports_(static_cast<size_t>(job.scenario().tree.size)) {}

  int Run() {
    absl::Status status = Connect();
    const ControlJob::Phase phase = status.ok() ? ControlJob::Phase::kWork : ControlJob::Phase::kStart;
    if (status.ok()) status = Work();
    if (status.ok()) {
      Compute();
      plane_->Depart();
      Compute();
      job_.RecordDeparture(rank_, plane_->failure());
    } else if (status.code() != absl::StatusCode::kCancelled) {
      job_.RecordFailure(rank_, phase, status);
    }
    Compute();
    plane_.reset();
    return 0;
  }

 private:
  absl::Status Connect() {
    const ControlScenario& scenario = job_.scenario();
    TcpMeshOptions mesh = {.job = {.job_id = "job", .secret = "secret"},
                           .rank = rank_,
                           .purpose = "control messages",
                           .timeout = kMeshTimeout};
    TcpLevel level = {.partners = scenario.tree.Neighbours(rank_)};
    for (RankId peer = 0; peer < scenario.tree.size; ++peer) {
      mesh.peers.push_back({.rank = peer, .host = "here", .pid = 1});
      mesh.endpoints.push_back({.address = "127.0.0.1", .port = kFirstPort + peer});
      level.ranks.push_back(peer);
    }
    if (rank_ == scenario.late) VirtualWorld::Get().SleepUntil(scenario.delay);
    Compute();
    RONDA_ASSIGN_OR_RETURN(listener_, TcpListener::Start(mesh.endpoints[static_cast<size_t>(rank_)]));
    TcpPartners partners = ConnectTcpPartners(listener_.get(), mesh, level);
    RONDA_ASSIGN_OR_RETURN(plane_, ConnectMessageControlPlane({.rank = rank_,
                                                               .peers = mesh.peers,
                                                               .messages = std::move(partners.messages),
                                                               .absent = std::move(partners.absent),
                                                               .absence = std::move(partners.absence),
                                                               .job_id = "job",
                                                               .start_timeout = kStartTimeout,
                                                               .heartbeat = kHeartbeat,
                                                               .heartbeat_timeout = 10 * kHeartbeat,
                                                               .fan_out = scenario.tree.fan_out,
                                                               .cores = scenario.cores}));
    return absl::OkStatus();
  }

  // Returns CANCELLED if the rank leaves early, and otherwise the failure of the job, if any.
  absl::Status Work() {
    for (int64_t round = 0; round < job_.scenario().rounds; ++round) {
      Compute();
      if (const auto order = job_.TakeOrder(rank_); order == ControlFault::Kind::kLeaveEarly) {
        return absl::CancelledError("");
      } else if (order == ControlFault::Kind::kFail) {
        plane_->Fail(absl::InternalError(kFailedByRank));
        return plane_->failure();
      }
      RONDA_RETURN_IF_ERROR(plane_->SendToCoordinator(ReportOf(job_.scenario().seed, rank_, round)));
      RONDA_RETURN_IF_ERROR(AwaitBroadcast(round));
    }
    return absl::OkStatus();
  }

  absl::Status AwaitBroadcast(int64_t round) {
    bool polls = VirtualWorld::Get().OneIn(2) && plane_->StartPolling();
    absl::Status status;
    while (status.ok() && heard_ <= round) {
      status = Hear();
      if (!status.ok() || heard_ > round) break;
      if (!polls) {
        plane_->Wait(SteadyNow() + kLongestWait);
      } else if (!plane_->KeepPolling()) {
        plane_->StopPolling();
        polls = false;
      }
    }
    if (polls) plane_->StopPolling();
    return status;
  }

  // Receives and checks messages.
  absl::Status Hear() {
    const uint64_t seed = job_.scenario().seed;
    RONDA_ASSIGN_OR_RETURN(const ControlPlane::Inbox inbox, plane_->Receive());
    for (const std::string& broadcast : inbox.broadcasts) {
      if (broadcast != BroadcastOf(seed, heard_)) {
        job_.Violate(absl::StrCat("rank ", rank_, " has got another broadcast than that of round ", heard_));
      }
      ++heard_;
      ++job_.counts().broadcasts;
    }
    for (const ControlMessage& report : inbox.to_coordinator) {
      int64_t& round = reports_[static_cast<size_t>(report.from)];
      if (report.payload != ReportOf(seed, report.from, round)) {
        job_.Violate(
            absl::StrCat("rank 0 has got another report of rank ", report.from, " than that of round ", round));
      }
      ++round;
      ++job_.counts().reports;
    }
    if (rank_ != kCoordinatorRank || *std::min_element(reports_.begin(), reports_.end()) <= answered_) {
      return absl::OkStatus();
    }
    return plane_->Broadcast(BroadcastOf(seed, answered_++));
  }

  void Compute() const {
    VirtualWorld& world = VirtualWorld::Get();
    world.SleepUntil(world.now() + world.RandomDuration(job_.scenario().compute));
  }

  ControlJob& job_;
  const RankId rank_;
  std::unique_ptr<TcpListener> listener_;
  std::unique_ptr<ControlPlane> plane_;
  int64_t heard_ = 0;             // broadcasts
  int64_t answered_ = 0;          // rounds, by rank 0
  std::vector<int64_t> reports_;  // that rank 0 has received, by rank
};

}  // namespace

ControlScenario MakeControlScenario(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<uint64_t>(most + 1)); };
  ControlScenario scenario = {.seed = seed};
  scenario.tree = {.size = 2 + up_to(kMostRanks - 2), .fan_out = 1 + up_to(3)};
  scenario.rounds = 1 + up_to(29);
  scenario.compute = absl::Microseconds(10 << up_to(7));
  scenario.latency = absl::Microseconds(5 << up_to(8));
  scenario.tick = absl::Microseconds(1 << up_to(4));
  // In half of the jobs one rank starts late, so that its neighbours must try several times to connect. The faults come
  // before or after the late start.
  scenario.late = up_to(scenario.tree.size - 1);
  if (up_to(1) == 0) scenario.delay = absl::Milliseconds(2 << up_to(13));
  const absl::Duration first = up_to(1) == 0 ? scenario.delay : absl::ZeroDuration();
  // In a third of the jobs, most faults come while the ranks connect.
  const absl::Duration times[] = {kUsualTime, kLongTime, scenario.tree.size * scenario.latency};
  const absl::Duration time = times[up_to(2)];
  scenario.cores = up_to(1) == 0 ? PollLimit::Cores::kAreShared : PollLimit::Cores::kSuffice;
  for (int faults = up_to(kMostFaults); faults > 0; --faults) {
    const auto kind = static_cast<ControlFault::Kind>(up_to(ControlFault::kKinds - 1));
    const int least = kind == ControlFault::Kind::kReset ? 1 : 0;
    scenario.faults.push_back({.kind = kind,
                               .at = first + time * (static_cast<double>(up_to(1'000'000)) / 1e6),
                               .rank = least + up_to(scenario.tree.size - 1 - least)});
  }
  std::sort(scenario.faults.begin(), scenario.faults.end(),
            [](const ControlFault& a, const ControlFault& b) { return a.at < b.at; });
  return scenario;
}

std::string Describe(const ControlScenario& scenario) {
  const auto describe = [](std::string* out, const ControlFault& fault) {
    absl::StrAppend(out, kControlFaultNames[static_cast<int>(fault.kind)], " of rank ", fault.rank, " at ",
                    absl::FormatDuration(fault.at));
  };
  return absl::StrCat("seed ", scenario.seed, ": ", scenario.tree.size, " ranks, ", scenario.tree.fan_out,
                      " children each, ", scenario.rounds, " rounds, compute ", absl::FormatDuration(scenario.compute),
                      ", latency ", absl::FormatDuration(scenario.latency), ", rank ", scenario.late, " late by ",
                      absl::FormatDuration(scenario.delay), "; ", absl::StrJoin(scenario.faults, ", ", describe));
}

ControlJob::ControlJob(const ControlScenario& scenario, ControlCounts* counts,
                       std::function<void(const std::string& what)> violate)
    : scenario_(scenario),
      counts_(*counts),
      violate_(std::move(violate)),
      ranks_(static_cast<size_t>(scenario.tree.size)) {}

void ControlJob::Violate(const std::string& what) const {
  violate_(absl::StrCat("at ", absl::FormatDuration(VirtualWorld::Get().now()), ": ", what));
  std::abort();
}

void ControlJob::Run() {
  VirtualWorld& world = VirtualWorld::Get();
  world.SetOnEnd([](ProcessId process) { VirtualSockets::Get().Drop(process, VirtualSockets::End::kClose); });
  for (RankId rank = 0; rank < scenario_.tree.size; ++rank) {
    ranks_[static_cast<size_t>(rank)].process =
        world.StartProcess(absl::StrCat("rank ", rank), [this, rank] { return ControlRank(*this, rank).Run(); });
  }
  VirtualSockets::Get().SetArrival([this](ProcessId, ProcessId) {
    VirtualWorld& world = VirtualWorld::Get();
    return world.now() + world.RandomDuration(scenario_.latency);
  });
  for (const ControlFault& fault : scenario_.faults) {
    world.SleepUntil(fault.at);
    Bring(fault);
  }
  AwaitEnds();
  CheckAgreement();
  counts_.parts += VirtualSockets::Get().parts();
  counts_.resets += VirtualSockets::Get().resets();
}

bool ControlJob::IsAlive(const Rank& rank) const { return VirtualWorld::Get().IsAlive(rank.process); }

bool ControlJob::IsKilled(const Rank& rank) const {
  return VirtualWorld::Get().ExitCode(rank.process) == VirtualWorld::kKilledExit;
}

void ControlJob::Bring(const ControlFault& fault) {
  Rank& rank = ranks_[static_cast<size_t>(fault.rank)];
  if (!IsAlive(rank)) return;
  if (fault.kind == ControlFault::Kind::kReset) {
    Rank& parent = ranks_[static_cast<size_t>(scenario_.tree.Parent(fault.rank))];
    if (!VirtualSockets::Get().ResetBetween(rank.process, parent.process)) return;
    parent.is_culprit = true;
    rank.is_cut = true;
  }
  ++faults_;
  ++counts_.faults[static_cast<size_t>(fault.kind)];
  last_fault_ = VirtualWorld::Get().now();
  rank.is_culprit = true;
  switch (fault.kind) {
    case ControlFault::Kind::kReset:
      return;
    case ControlFault::Kind::kKill:
      return VirtualWorld::Get().Kill(rank.process);
    case ControlFault::Kind::kLeaveEarly:
    case ControlFault::Kind::kFail:
      rank.order = fault.kind;
  }
}

std::optional<ControlFault::Kind> ControlJob::TakeOrder(RankId rank) {
  auto& order = ranks_[static_cast<size_t>(rank)].order;
  if (order.has_value()) last_fault_ = VirtualWorld::Get().now();
  return std::exchange(order, std::nullopt);
}

// Ignores killed ranks: a thread that held a lock when its process was killed runs on for a while, without its sockets.
void ControlJob::RecordFailure(RankId rank, Phase phase, const absl::Status& failure) {
  Rank& failed = ranks_[static_cast<size_t>(rank)];
  if (!IsAlive(failed)) return;
  failed.failure = failure;
  failed.phase = phase;
  ++counts_.failures;
  if (phase == Phase::kStart) ++counts_.early_failures;
  if (faults_ == 0) Violate(absl::StrCat("rank ", rank, " fails without a fault: ", failure.message()));
  const absl::Duration late = VirtualWorld::Get().now() - std::max(last_fault_, scenario_.delay);
  const absl::Duration start = phase == Phase::kStart ? kMeshTimeout : absl::ZeroDuration();
  if (late > start + kTimeToHear + scenario_.compute + kLatenciesToHear * scenario_.tree.size * scenario_.latency) {
    Violate(absl::StrCat("rank ", rank, " knows the failure only ", absl::FormatDuration(late),
                         " after the fault: ", failure.message()));
  }
  const auto is_named = [&](const Rank& each) {
    return each.is_culprit && Names(failure.message(), static_cast<RankId>(&each - ranks_.data()));
  };
  if (!std::any_of(ranks_.begin(), ranks_.end(), is_named)) {
    Violate(absl::StrCat("rank ", rank, " has a failure that names no rank with a fault: ", failure.message()));
  }
}

void ControlJob::RecordDeparture(RankId rank, const absl::Status& failure) {
  if (!IsAlive(ranks_[static_cast<size_t>(rank)])) return;
  ++counts_.departures;
  if (faults_ == 0 && !failure.ok()) {
    Violate(absl::StrCat("rank ", rank, " has left in order, and fails: ", failure.message()));
  }
}

void ControlJob::AwaitEnds() {
  VirtualWorld& world = VirtualWorld::Get();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    while (IsAlive(ranks_[rank])) {
      if (world.now() - last_fault_ > scenario_.delay + kMeshTimeout + kTimeToEnd)
        Violate(absl::StrCat("rank ", rank, " has not ended"));
      world.SleepUntil(world.now() + absl::Milliseconds(10));
    }
    const int exit_code = world.ExitCode(ranks_[rank].process);
    if (exit_code != 0 && exit_code != VirtualWorld::kKilledExit) Violate(absl::StrCat("rank ", rank, " was aborted"));
  }
}

// A rank must have the same failure as its parent, unless one of them was killed, their connection has broken, or there
// were two faults before they were connected.
void ControlJob::CheckAgreement() const {
  for (RankId child = 1; child < scenario_.tree.size; ++child) {
    const RankId parent = scenario_.tree.Parent(child);
    const Rank& below = ranks_[static_cast<size_t>(child)];
    const Rank& above = ranks_[static_cast<size_t>(parent)];
    if (below.failure.ok() || above.failure.ok() || below.failure == above.failure) continue;
    const bool may_decide_alone = below.phase == Phase::kStart && faults_ > 1;
    if (below.is_cut || may_decide_alone || IsKilled(below) || IsKilled(above)) {
      ++counts_.cut_off;
      continue;
    }
    Violate(absl::StrCat("rank ", child, " has the failure \"", below.failure.message(), "\", and its parent, rank ",
                         parent, ", has \"", above.failure.message(), "\""));
  }
}

}  // namespace ronda::simulation
