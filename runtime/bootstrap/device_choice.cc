#include "runtime/bootstrap/device_choice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ronda {
namespace {

constexpr int kNcclScore = 200;
constexpr int kHierarchicalStagedScore = 150;
constexpr int kStagedScore = 100;
// NCCL itself knows which ranks share a host: two levels over it are for who has measured that they are better.
constexpr int kHierarchicalNcclScore = 50;
constexpr char kSeparator = '\t';
constexpr absl::string_view kNames[] = {"nccl", "hierarchical-staged", "staged", "hierarchical-nccl"};

// What there is to choose by.
struct Job {
  absl::Span<const DeviceFacts> facts;
  const HostMap* hosts;  // nullptr: the communicator of the host has one level

  std::vector<RankId> AllRanks() const {
    std::vector<RankId> ranks(facts.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  const DeviceFacts& Of(RankId rank) const { return facts[static_cast<size_t>(rank)]; }
};

// Two of the ranks whose devices are one, or nullopt: for NCCL, or in truth (in containers, say, whose names differ, so
// that NCCL would let them, and its kernels wait for each other).
std::optional<std::pair<RankId, RankId>> RanksThatShare(const Job& job, absl::Span<const RankId> ranks) {
  std::map<std::pair<absl::string_view, absl::string_view>, RankId> rank_of_place;
  std::map<absl::string_view, RankId> rank_of_uuid;
  for (const RankId rank : ranks) {
    const DeviceFacts& facts = job.Of(rank);
    const auto [there, is_new_place] = rank_of_place.try_emplace({facts.host, facts.pci_bus}, rank);
    if (!is_new_place) return std::pair(there->second, rank);
    if (facts.uuid.empty()) continue;
    const auto [same, is_new_device] = rank_of_uuid.try_emplace(facts.uuid, rank);
    if (!is_new_device) return std::pair(same->second, rank);
  }
  return std::nullopt;
}

// Why the ranks cannot use NCCL together; empty if they can.
std::string ObjectionToNccl(const Job& job, absl::Span<const RankId> ranks) {
  if (const auto sharing = RanksThatShare(job, ranks)) {
    return absl::StrCat("ranks ", sharing->first, " and ", sharing->second,
                        " share a GPU, which NCCL does not let them");
  }
  const RankId first = ranks.front();
  for (const RankId rank : ranks) {
    const DeviceFacts& facts = job.Of(rank);
    if (facts.nccl.empty()) return absl::StrCat("rank ", rank, ": ", facts.why_no_nccl);
    if (facts.nccl == job.Of(first).nccl) continue;
    return absl::StrCat("rank ", first, " has NCCL ", job.Of(first).nccl, ", rank ", rank, " has ", facts.nccl);
  }
  return "";
}

// Why there is nothing for two levels; empty if there is.
std::string ObjectionToLevels(const Job& job) {
  if (job.hosts == nullptr) {
    return "the ranks are on one host, or RONDA_BACKEND is not hierarchical";
  }
  return SizesOf(*job.hosts).most > 1 ? "" : "no host has more than one rank";
}

// Why the ranks of some host cannot use NCCL together; empty if those of all can.
std::string ObjectionToNcclOnHosts(const Job& job) {
  for (const std::vector<RankId>& host : job.hosts->hosts) {
    std::string objection = ObjectionToNccl(job, host);
    if (!objection.empty()) return objection;
  }
  return "";
}

DeviceRating Rating(DeviceBackend backend, int score, absl::string_view merit, std::string objection) {
  if (!objection.empty()) return {.backend = backend, .score = 0, .reason = std::move(objection)};
  return {.backend = backend, .score = score, .reason = std::string(merit)};
}

DeviceRating RateNccl(const Job& job) {
  return Rating(DeviceBackend::kNccl, kNcclScore, absl::StrCat("NCCL ", job.facts.front().nccl, ", a GPU a rank"),
                ObjectionToNccl(job, job.AllRanks()));
}

DeviceRating RateHierarchicalStaged(const Job& job) {
  std::string objection = ObjectionToLevels(job);
  if (objection.empty()) objection = ObjectionToNcclOnHosts(job);
  return Rating(DeviceBackend::kHierarchicalStaged, kHierarchicalStagedScore,
                "NCCL on each host, across hosts through pinned memory", std::move(objection));
}

DeviceRating RateStaged(const Job&) {
  return Rating(DeviceBackend::kStaged, kStagedScore, "through pinned memory of the host", "");
}

DeviceRating RateHierarchicalNccl(const Job& job) {
  std::string objection = ObjectionToLevels(job);
  if (objection.empty()) objection = ObjectionToNccl(job, job.AllRanks());
  return Rating(DeviceBackend::kHierarchicalNccl, kHierarchicalNcclScore, "NCCL on each host, and NCCL across hosts",
                std::move(objection));
}

// Every backend is in this list.
constexpr DeviceRating (*kBackends[])(const Job&) = {RateNccl, RateHierarchicalStaged, RateStaged,
                                                     RateHierarchicalNccl};

}  // namespace

absl::string_view Name(DeviceBackend backend) { return kNames[static_cast<int>(backend)]; }

std::optional<DeviceBackend> DeviceBackendFromName(absl::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<DeviceBackend>(i);
  }
  return std::nullopt;
}

std::string Encode(const DeviceFacts& facts, size_t longest) {
  const std::string fields =
      absl::StrJoin({facts.host, facts.pci_bus, facts.uuid, facts.nccl, facts.wanted, facts.why_no_nccl},
                    absl::string_view(&kSeparator, 1));
  return fields.substr(0, longest);
}

absl::StatusOr<DeviceFacts> DecodeDeviceFacts(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, absl::MaxSplits(kSeparator, 5));
  if (fields.size() != 6) return absl::InternalError(absl::StrCat("damaged facts about a device: '", text, "'"));
  return DeviceFacts{.host = fields[0],
                     .pci_bus = fields[1],
                     .uuid = fields[2],
                     .nccl = fields[3],
                     .why_no_nccl = fields[5],
                     .wanted = fields[4]};
}

std::vector<DeviceRating> RateDeviceBackends(absl::Span<const DeviceFacts> facts, const HostMap* hosts) {
  const Job job = {.facts = facts, .hosts = hosts};
  std::vector<DeviceRating> ratings;
  for (const auto& rate : kBackends) ratings.push_back(rate(job));
  std::stable_sort(ratings.begin(), ratings.end(),
                   [](const DeviceRating& a, const DeviceRating& b) { return a.score > b.score; });
  return ratings;
}

absl::StatusOr<DeviceBackend> ChooseDeviceBackend(absl::Span<const DeviceRating> ratings, absl::string_view wanted) {
  for (const DeviceRating& rating : ratings) {
    if (!wanted.empty() && Name(rating.backend) != wanted) continue;
    if (rating.score > 0) return rating.backend;
    return absl::FailedPreconditionError(
        absl::StrCat("RONDA_DEVICE_BACKEND=\"", wanted, "\" cannot carry this job's tensors: ", rating.reason));
  }
  return absl::FailedPreconditionError(absl::StrCat("there is no RONDA_DEVICE_BACKEND=\"", wanted, "\""));
}

std::string ToString(absl::Span<const DeviceRating> ratings) {
  return absl::StrJoin(ratings, ", ", [](std::string* text, const DeviceRating& rating) {
    const std::string worth = rating.score > 0 ? absl::StrCat("score ", rating.score) : "no";
    absl::StrAppend(text, Name(rating.backend), " (", worth, ": ", rating.reason, ")");
  });
}

}  // namespace ronda
