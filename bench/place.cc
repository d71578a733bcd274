#include "bench/place.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ronda::bench {
namespace {

// What a launcher calls a process' rank and the number of ranks, of the job and of its host.
struct Variables {
  const char* rank;
  const char* size;
  const char* local_size;
  const char* job_id;  // nullptr: it has none
  Launcher launcher;
};

constexpr Variables kLaunchers[] = {
    {"RONDA_RANK", "RONDA_SIZE", "RONDA_LOCAL_SIZE", "RONDA_JOB_ID", Launcher::kRondarun},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, Launcher::kOpenMpi},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr, Launcher::kMpich},
};

absl::StatusOr<int> ReadNumber(const ReadVariable& variable, const char* name) {
  const std::string text = variable(name).value_or("");
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0) return number;
  return absl::InvalidArgumentError(absl::StrCat(name, "=\"", text, "\" is no number from 0 up"));
}

absl::StatusOr<Place::Meeting> FindMeeting(const ReadVariable& variable, const char* local_size_name, int size) {
  using Meeting = Place::Meeting;
  const std::string backend = variable("RONDA_BACKEND").value_or("");
  if (!backend.empty() && backend != "shm") return Meeting::kAsInitDoes;
  if (!variable(local_size_name)) return Meeting::kInMemory;
  const absl::StatusOr<int> local_size = ReadNumber(variable, local_size_name);
  if (!local_size.ok()) return local_size.status();
  return *local_size < size ? Meeting::kAsInitDoes : Meeting::kInMemory;
}

}  // namespace

ReadVariable ProcessVariables() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

absl::StatusOr<std::optional<Place>> FindPlace(const ReadVariable& variable, int parent) {
  for (const Variables& names : kLaunchers) {
    if (!variable(names.rank)) continue;
    const absl::StatusOr<int> rank = ReadNumber(variable, names.rank);
    if (!rank.ok()) return rank.status();
    const absl::StatusOr<int> size = ReadNumber(variable, names.size);
    if (!size.ok()) return size.status();
    if (*rank >= *size) {
      return absl::InvalidArgumentError(absl::StrCat(names.rank, "=", *rank, ", but ", names.size, "=", *size));
    }
    Place place{.rank = *rank, .size = *size, .launcher = names.launcher};
    place.job_id = names.job_id != nullptr ? variable(names.job_id).value_or("") : "";
    if (place.job_id.empty()) place.job_id = absl::StrCat("bench-", parent);
    const absl::StatusOr<Place::Meeting> meeting = FindMeeting(variable, names.local_size, *size);
    if (!meeting.ok()) return meeting.status();
    place.meeting = *meeting;
    return std::optional<Place>(std::move(place));
  }
  return std::optional<Place>();
}

void DescribeJobToRonda(const Place& place, const std::string& suffix) {
  if (place.meeting == Place::Meeting::kAsInitDoes) return;
  constexpr int kOverwrite = 1;
  setenv("RONDA_RANK", absl::StrCat(place.rank).c_str(), kOverwrite);
  setenv("RONDA_SIZE", absl::StrCat(place.size).c_str(), kOverwrite);
  setenv("RONDA_JOB_ID", absl::StrCat(place.job_id, suffix).c_str(), kOverwrite);
}

}  // namespace ronda::bench
