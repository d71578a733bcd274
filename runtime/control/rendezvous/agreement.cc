#include "runtime/control/rendezvous/agreement.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/control/rendezvous/rank_names.h"

namespace ronda {
namespace {

constexpr size_t kMaxNamedHosts = 8;

constexpr absl::string_view kVersion = "version of Ronda";

struct Requirement {
  absl::string_view fact;
  absl::string_view remedy;
};

// In the order in which a difference explains others.
constexpr Requirement kRequirements[] = {
    {kVersion, "install one version on all hosts"},
    {kByteOrderFact, "use hosts of one byte order"},
    {kPointerSizeFact, "use programs of one word size"},
    {kWireFormatsFact, "install one build of Ronda on all hosts"},
    {kMpiLibraryFact, "install one MPI on all hosts, and check PATH, LD_LIBRARY_PATH and RONDA_MPI_PLUGIN there"},
    {kNcclVersionFact, "install one version of NCCL on all hosts"},
};

absl::string_view ValueOf(const Member& member, absl::string_view fact) {
  return fact == kVersion ? absl::string_view(member.version) : FactOf(member, fact);
}

// Who says the same of a fact, as indices of members.
struct Opinion {
  absl::string_view value;
  std::vector<size_t> holders;
};

// The opinion of most first, in doubt rank 0's; then by their first holder.
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

// "rank 1 (host b, pid 42)"; "ranks 4, 5, 6 (on b, c)"
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

// "rank 1 (host b, pid 42) has 0.9"
std::string Describe(const std::vector<Member>& members, const Opinion& opinion) {
  return absl::StrCat(NameHolders(members, opinion.holders), opinion.holders.size() == 1 ? " has " : " have ",
                      opinion.value);
}

bool IsRequirement(absl::string_view fact) {
  return absl::c_any_of(kRequirements, [&](const Requirement& requirement) { return requirement.fact == fact; });
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

}  // namespace ronda
