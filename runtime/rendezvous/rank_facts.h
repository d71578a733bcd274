// The facts that ranks tell each other about themselves at the rendezvous: a job that cannot work ends with the name of
// the odd rank, and the settings of rank 0 hold for all.
#ifndef RONDA_RUNTIME_RENDEZVOUS_RANK_FACTS_H_
#define RONDA_RUNTIME_RENDEZVOUS_RANK_FACTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/config.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// Facts that all ranks must have the same; the others are settings, of which rank 0's hold.
inline constexpr absl::string_view kByteOrderFact = "byte order";
inline constexpr absl::string_view kPointerSizeFact = "size of a pointer";
inline constexpr absl::string_view kWireFormatsFact = "wire formats";
inline constexpr absl::string_view kMpiLibraryFact = "MPI library";
inline constexpr absl::string_view kNcclVersionFact = "NCCL version";

// The value of the fact `name` of `member`; "nothing" if it does not mention it.
absl::string_view FactOf(const Member& member, absl::string_view name);

// Whether the ranks agree on all that must be the same: the version of Ronda, and the facts above.
// REQUIRES: `members` is not empty.
// Errors: FAILED_PRECONDITION that says which fact differs first, names the ranks and hosts that differ from most
// others, and gives the remedy.
absl::Status CheckAgreement(const std::vector<Member>& members);

// A sentence for each setting that some ranks have otherwise than rank 0, the first member.
std::vector<std::string> DescribeDifferences(const std::vector<Member>& members);

// Facts about this process and its settings. `mpi_library` says which MPI it would use.
std::vector<Fact> FactsOf(const Config& config, absl::string_view mpi_library);

// The settings that connecting the ranks depends on.
struct ConnectionSettings {
  std::string backend;  // as Config::backend
  MpiEnvironment::Use mpi = MpiEnvironment::Use::kAutomatic;
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration heartbeat_timeout = absl::Seconds(10);
};

// Those of `rank0`, as its facts say them.
// Errors: INVALID_ARGUMENT if they do not.
absl::StatusOr<ConnectionSettings> SettingsOf(const Member& rank0);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RANK_FACTS_H_
