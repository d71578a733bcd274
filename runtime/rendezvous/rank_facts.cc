// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rank_facts.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/container/btree_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda {
namespace {

constexpr size_t kMaxNamedHosts = 8;

constexpr absl::string_view kVersionFact = "version of Ronda";

struct Requirement {
  absl::string_view fact;
  absl::string_view remedy;
};

// The order matters, because a difference in one fact can cause differences in later ones.
constexpr Requirement kRequirements[] = {
    {kVersionFact, "install one version on all hosts"},
    {kByteOrderFact, "use hosts of one byte order"},
    {kPointerSizeFact, "use programs of one word size"},
    {kWireFormatsFact, "install one build of Ronda on all hosts"},
    {kMpiLibraryFact, "install one MPI on all hosts, and check PATH, LD_LIBRARY_PATH and RONDA_MPI_PLUGIN there"},
    {kNcclVersionFact, "install one version of NCCL on all hosts"},
};

absl::string_view ValueOf(const Member& member, absl::string_view fact) {
  return fact == kVersionFact ? absl::string_view(member.version) : FactOf(member, fact);
}

// The members, by index, that share one value of a fact.
struct Opinion {
  absl::string_view value;
  std::vector<size_t> holders;
};

// Groups the members by their value of `fact`. The largest group comes first; of several largest groups, the one with
// the lowest rank. The other groups are in the order of their lowest ranks.
std::vector<Opinion> OpinionsOn(const std::vector<Member>& members, absl::string_view fact) {
  std::vector<Opinion> opinions;
  absl::btree_map<absl::string_view, size_t> place;
  for (size_t i = 0; i < members.size(); ++i) {
    const absl::string_view value = ValueOf(members[i], fact);
    const auto [it, is_new] = place.try_emplace(value, opinions.size());
    if (is_new) opinions.push_back({.value = value, .holders = {}});
    opinions[it->second].holders.push_back(i);
  }
  const auto most = std::max_element(opinions.begin(), opinions.end(), [](const Opinion& a, const Opinion& b) {
    return a.holders.size() < b.holders.size();
  });
  std::rotate(opinions.begin(), most, most + 1);
  return opinions;
}

// Returns for example "rank 1 (host b, pid 42)" or "ranks 4, 5, 6 (on b, c)".
std::string NameHolders(const std::vector<Member>& members, const std::vector<size_t>& holders) {
  if (holders.size() == 1) return ToString(members[holders.front()].peer);
  std::vector<RankId> ranks;
  std::vector<std::string> hosts;
  for (const size_t holder : holders) {
    const Peer& peer = members[holder].peer;
    ranks.push_back(peer.rank);
    if (hosts.size() < kMaxNamedHosts && !absl::c_linear_search(hosts, peer.host)) hosts.push_back(peer.host);
  }
  return absl::StrCat(NameRanks(ranks), " (on ", absl::StrJoin(hosts, ", "), ")");
}

// Returns for example "rank 1 (host b, pid 42) has 0.9".
std::string Describe(const std::vector<Member>& members, const Opinion& opinion) {
  return absl::StrCat(NameHolders(members, opinion.holders), opinion.holders.size() == 1 ? " has " : " have ",
                      opinion.value);
}

bool IsRequirement(absl::string_view fact) {
  return absl::c_any_of(kRequirements, [&](const Requirement& requirement) { return requirement.fact == fact; });
}

constexpr char kBackend[] = "RONDA_BACKEND";
constexpr char kMpi[] = "RONDA_MPI";
constexpr char kHeartbeat[] = "RONDA_HEARTBEAT";
constexpr char kHeartbeatTimeout[] = "RONDA_HEARTBEAT_TIMEOUT";
constexpr absl::string_view kUnset = "unset";
constexpr absl::string_view kMpiUses[] = {"unset", "0", "1"};  // by MpiEnvironment::Use

// Longer values of facts are truncated to this length, which the rendezvous accepts.
constexpr size_t kMaxValueBytes = 200;

std::string Printable(absl::string_view text) {
  std::string printable(text.substr(0, kMaxValueBytes));
  for (char& c : printable) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = ' ';
  }
  return printable.empty() ? std::string(kUnset) : printable;
}

std::string NamesOfWireFormats() {
  std::string names;
  for (int i = 0; i < kWireFormatCount; ++i) {
    absl::StrAppend(&names, i == 0 ? "" : " ", Name(static_cast<WireFormat>(i)));
  }
  return names;
}

absl::Status Damaged(absl::string_view fact, absl::string_view value) {
  return absl::InvalidArgumentError(absl::StrCat("rendezvous: rank 0 says ", fact, "=\"", value, "\""));
}

absl::StatusOr<absl::Duration> DurationOf(const Member& member, absl::string_view name) {
  const absl::string_view value = FactOf(member, name);
  absl::Duration duration;
  if (!absl::ParseDuration(value, &duration) || duration <= absl::ZeroDuration()) return Damaged(name, value);
  return duration;
}

}  // namespace

absl::string_view FactOf(const Member& member, absl::string_view name) {
  for (const Fact& fact : member.facts) {
    if (fact.name == name) return fact.value;
  }
  return "nothing";
}

absl::Status CheckAgreement(const std::vector<Member>& members) {
  for (const auto& [fact, remedy] : kRequirements) {
    const std::vector<Opinion> opinions = OpinionsOn(members, fact);
    if (opinions.size() == 1) continue;
    std::vector<std::string> odd;
    for (size_t i = 1; i < opinions.size(); ++i) odd.push_back(Describe(members, opinions[i]));
    return absl::FailedPreconditionError(absl::StrCat(fact, ": ", absl::StrJoin(odd, ", "), ", but ",
                                                      Describe(members, opinions.front()), "; ", remedy));
  }
  return absl::OkStatus();
}

std::vector<std::string> DescribeDifferences(const std::vector<Member>& members) {
  std::vector<std::string> differences;
  for (const Fact& fact : members.front().facts) {
    if (IsRequirement(fact.name)) continue;
    std::vector<std::string> odd;
    for (const Opinion& opinion : OpinionsOn(members, fact.name)) {
      if (opinion.value != fact.value) odd.push_back(Describe(members, opinion));
    }
    if (odd.empty()) continue;
    differences.push_back(absl::StrCat(fact.name, ": ", absl::StrJoin(odd, ", "), ", but rank 0 has ", fact.value,
                                       ", which holds for the job"));
  }
  return differences;
}

std::vector<Fact> FactsOf(const Config& config, absl::string_view mpi_library) {
  const Tunables& tunables = config.tunables;
  const NetworkSettings& network = config.network;
  std::vector<Fact> facts = {
      {std::string(kByteOrderFact), std::endian::native == std::endian::little ? "little" : "big"},
      {std::string(kPointerSizeFact), absl::StrCat(8 * sizeof(void*), " bits")},
      {std::string(kWireFormatsFact), NamesOfWireFormats()},
      {std::string(kMpiLibraryFact), std::string(mpi_library)},
      {std::string(kNcclVersionFact), "none"},
      {kBackend, config.backend},
      {kMpi, std::string(kMpiUses[static_cast<int>(config.job.mpi.use)])},
      {kHeartbeat, absl::FormatDuration(network.heartbeat)},
      {kHeartbeatTimeout, absl::FormatDuration(network.heartbeat_timeout)},
      {"RONDA_FUSION_THRESHOLD", absl::StrCat(tunables.fusion_threshold)},
      {"RONDA_MIN_BUCKET_BYTES", absl::StrCat(tunables.min_bucket_bytes)},
      {"RONDA_CHUNK_BYTES", absl::StrCat(tunables.chunk_bytes)},
      {"RONDA_CYCLE_TIME", absl::FormatDuration(tunables.cycle_time)},
      {"RONDA_CACHE_CAPACITY", absl::StrCat(tunables.cache_capacity)},
      {"RONDA_LOCK_AFTER", absl::StrCat(tunables.lock_after)},
      {"RONDA_STALL_WARNING", absl::FormatDuration(tunables.stall_warning)},
      {"RONDA_STALL_DEADLINE", absl::FormatDuration(tunables.stall_deadline)},
      {"RONDA_AUTOTUNE", tunables.autotune == Tunables::Autotune::kOn ? "1" : "0"},
  };
  for (Fact& fact : facts) fact.value = Printable(fact.value);
  return facts;
}

absl::StatusOr<ConnectionSettings> SettingsOf(const Member& rank0) {
  ConnectionSettings settings;
  const absl::string_view backend = FactOf(rank0, kBackend);
  if (backend != kUnset) settings.backend = std::string(backend);
  const absl::string_view use = FactOf(rank0, kMpi);
  const auto* const known = std::find(std::begin(kMpiUses), std::end(kMpiUses), use);
  if (known == std::end(kMpiUses)) return Damaged(kMpi, use);
  settings.mpi = static_cast<MpiEnvironment::Use>(known - std::begin(kMpiUses));
  RONDA_ASSIGN_OR_RETURN(settings.heartbeat, DurationOf(rank0, kHeartbeat));
  RONDA_ASSIGN_OR_RETURN(settings.heartbeat_timeout, DurationOf(rank0, kHeartbeatTimeout));
  return settings;
}

}  // namespace ronda
