#include "runtime/bootstrap/rank_facts.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"
#include "runtime/control/rendezvous/agreement.h"

namespace ronda {
namespace {

constexpr char kBackend[] = "RONDA_BACKEND";
constexpr char kMpi[] = "RONDA_MPI";
constexpr char kHeartbeat[] = "RONDA_HEARTBEAT";
constexpr char kHeartbeatTimeout[] = "RONDA_HEARTBEAT_TIMEOUT";
constexpr absl::string_view kUnset = "unset";
constexpr absl::string_view kMpiUses[] = {"unset", "0", "1"};  // by MpiEnvironment::Use

// What the rendezvous lets through.
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
