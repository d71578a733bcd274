#include "runtime/bootstrap/device_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ronda {
namespace {

constexpr int kNcclScore = 200;
constexpr int kStagedScore = 100;
constexpr char kSeparator = '\t';
constexpr absl::string_view kNames[] = {"nccl", "staged"};

// Two ranks whose devices are one, or nullopt.
std::optional<std::pair<size_t, size_t>> RanksThatShare(absl::Span<const DeviceFacts> facts) {
  std::map<std::pair<absl::string_view, absl::string_view>, size_t> rank_of;
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    const auto [found, is_new] = rank_of.try_emplace({facts[rank].host, facts[rank].pci_bus}, rank);
    if (!is_new) return std::pair(found->second, rank);
  }
  return std::nullopt;
}

// Why the ranks cannot use NCCL together; empty if they can.
std::string ObjectionToNccl(absl::Span<const DeviceFacts> facts) {
  if (const auto sharing = RanksThatShare(facts)) {
    return absl::StrCat("ranks ", sharing->first, " and ", sharing->second,
                        " share a GPU, which NCCL does not let them");
  }
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].nccl.empty()) return absl::StrCat("rank ", rank, ": ", facts[rank].why_no_nccl);
    if (facts[rank].nccl == facts[0].nccl) continue;
    return absl::StrCat("rank 0 has NCCL ", facts[0].nccl, ", rank ", rank, " has ", facts[rank].nccl);
  }
  return "";
}

DeviceRating RateNccl(absl::Span<const DeviceFacts> facts) {
  const std::string objection = ObjectionToNccl(facts);
  if (!objection.empty()) return {.backend = DeviceBackend::kNccl, .score = 0, .reason = objection};
  return {.backend = DeviceBackend::kNccl,
          .score = kNcclScore,
          .reason = absl::StrCat("NCCL ", facts.front().nccl, ", a GPU a rank")};
}

DeviceRating RateStaged(absl::Span<const DeviceFacts>) {
  return {.backend = DeviceBackend::kStaged, .score = kStagedScore, .reason = "through pinned memory of the host"};
}

// Every backend is in this list.
constexpr DeviceRating (*kBackends[])(absl::Span<const DeviceFacts>) = {RateNccl, RateStaged};

}  // namespace

absl::string_view Name(DeviceBackend backend) { return kNames[static_cast<int>(backend)]; }

std::optional<DeviceBackend> DeviceBackendFromName(absl::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<DeviceBackend>(i);
  }
  return std::nullopt;
}

std::string Encode(const DeviceFacts& facts, size_t longest) {
  const std::string fields = absl::StrJoin({facts.host, facts.pci_bus, facts.nccl, facts.wanted, facts.why_no_nccl},
                                           absl::string_view(&kSeparator, 1));
  return fields.substr(0, longest);
}

absl::StatusOr<DeviceFacts> DecodeDeviceFacts(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, absl::MaxSplits(kSeparator, 4));
  if (fields.size() != 5) return absl::InternalError(absl::StrCat("damaged facts about a device: '", text, "'"));
  return DeviceFacts{
      .host = fields[0], .pci_bus = fields[1], .nccl = fields[2], .why_no_nccl = fields[4], .wanted = fields[3]};
}

std::vector<DeviceRating> RateDeviceBackends(absl::Span<const DeviceFacts> facts) {
  std::vector<DeviceRating> ratings;
  for (const auto& rate : kBackends) ratings.push_back(rate(facts));
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
