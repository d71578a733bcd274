// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/registry.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {
namespace {

// For error messages: the variable that chooses a backend, and the word for what the backend carries.
struct Choice {
  absl::string_view variable;
  absl::string_view cargo;
};
constexpr Choice kHostChoice = {.variable = "RONDA_BACKEND", .cargo = "data"};
constexpr Choice kDeviceChoice = {.variable = "RONDA_DEVICE_BACKEND", .cargo = "tensors"};

BackendRating RatingOf(absl::string_view name, absl::string_view family, int score,
                       const absl::StatusOr<std::string>& reason) {
  if (reason.ok()) return {.name = name, .family = family, .score = score, .reason = *reason};
  return {.name = name, .family = family, .score = 0, .reason = std::string(reason.status().message())};
}

void SortBestFirst(std::vector<BackendRating>* ratings) {
  absl::c_stable_sort(*ratings, [](const BackendRating& a, const BackendRating& b) { return a.score > b.score; });
}

bool IsMeant(absl::string_view name, absl::string_view family, absl::string_view value) {
  return value.empty() || name == value || family == value;
}

absl::StatusOr<absl::string_view> Choose(absl::Span<const BackendRating> ratings, absl::string_view wanted,
                                         const Choice& choice) {
  std::vector<absl::string_view> reasons;
  for (const BackendRating& rating : ratings) {
    if (!IsMeant(rating.name, rating.family, wanted)) continue;
    if (rating.score > 0) return rating.name;
    if (!absl::c_linear_search(reasons, rating.reason)) reasons.push_back(rating.reason);
  }
  if (wanted.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no backend can carry this job's ", choice.cargo, ": ", ToString(ratings)));
  }
  const std::string setting = absl::StrCat(choice.variable, "=\"", wanted, "\"");
  if (reasons.empty()) return absl::FailedPreconditionError(absl::StrCat("there is no ", setting));
  return absl::FailedPreconditionError(
      absl::StrCat(setting, " cannot carry this job's ", choice.cargo, ": ", absl::StrJoin(reasons, "; ")));
}

// Returns nullptr if there is no backend `name`.
template <typename Backend>
const Backend* Find(absl::Span<const Backend> backends, absl::string_view name) {
  const auto found = absl::c_find_if(backends, [&](const Backend& one) { return one.name == name; });
  return found == backends.end() ? nullptr : &*found;
}

}  // namespace

const HostBackend* FindHostBackend(absl::string_view name) { return Find(HostBackends(), name); }

const DeviceBackend* FindDeviceBackend(absl::string_view name) { return Find(AllDeviceBackends(), name); }

std::vector<absl::string_view> HostBackendNames() {
  std::vector<absl::string_view> names;
  for (const HostBackend& backend : HostBackends()) {
    if (!backend.family.empty() && !absl::c_linear_search(names, backend.family)) names.push_back(backend.family);
    names.push_back(backend.name);
  }
  return names;
}

std::vector<absl::string_view> DeviceBackendNames() {
  std::vector<absl::string_view> names;
  for (const DeviceBackend& backend : AllDeviceBackends()) names.push_back(backend.name);
  return names;
}

std::vector<const HostBackend*> HostBackendsMeantBy(absl::string_view value) {
  std::vector<const HostBackend*> meant;
  for (const HostBackend& backend : HostBackends()) {
    if (IsMeant(backend.name, backend.family, value)) meant.push_back(&backend);
  }
  return meant;
}

bool MayNeed(absl::string_view value, Carrier::Needs needs) {
  return absl::c_any_of(HostBackendsMeantBy(value), [&](const HostBackend* backend) {
    return backend->carrier != nullptr && backend->carrier->needs == needs;
  });
}

bool AlwaysNeeds(absl::string_view value, Carrier::Needs needs) {
  const std::vector<const HostBackend*> meant = HostBackendsMeantBy(value);
  return !meant.empty() && absl::c_all_of(meant, [&](const HostBackend* backend) {
    return backend->carrier != nullptr && backend->carrier->needs == needs;
  });
}

std::vector<BackendRating> RateHostBackends(const HostSituation& situation) {
  std::vector<BackendRating> ratings;
  for (const HostBackend& backend : HostBackends()) {
    ratings.push_back(RatingOf(backend.name, backend.family, backend.score, backend.rate(backend, situation)));
  }
  SortBestFirst(&ratings);
  return ratings;
}

std::vector<BackendRating> RateDeviceBackends(const DeviceSituation& situation) {
  std::vector<BackendRating> ratings;
  for (const DeviceBackend& backend : AllDeviceBackends()) {
    ratings.push_back(RatingOf(backend.name, "", backend.score, backend.rate(situation)));
  }
  SortBestFirst(&ratings);
  return ratings;
}

absl::StatusOr<absl::string_view> ChooseHostBackend(absl::Span<const BackendRating> ratings, absl::string_view wanted) {
  return Choose(ratings, wanted, kHostChoice);
}

absl::StatusOr<absl::string_view> ChooseDeviceBackend(absl::Span<const BackendRating> ratings,
                                                      absl::string_view wanted) {
  return Choose(ratings, wanted, kDeviceChoice);
}

std::string ToString(absl::Span<const BackendRating> ratings) {
  return absl::StrJoin(ratings, ", ", [](std::string* text, const BackendRating& rating) {
    const std::string worth = rating.score > 0 ? absl::StrCat("score ", rating.score) : "no";
    absl::StrAppend(text, rating.name, " (", worth, ": ", rating.reason, ")");
  });
}

}  // namespace ronda
