// SPDX-License-Identifier: Apache-2.0

// The facts that ranks report about themselves at the rendezvous. If they are incompatible, the job fails with an error
// that names the ranks that differ. The settings of rank 0 apply to all ranks.
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

// Facts that must be equal on all ranks. All other facts are settings: rank 0's value applies to all ranks.
inline constexpr absl::string_view kByteOrderFact = "byte order";
inline constexpr absl::string_view kPointerSizeFact = "size of a pointer";
inline constexpr absl::string_view kWireFormatsFact = "wire formats";
inline constexpr absl::string_view kMpiLibraryFact = "MPI library";
inline constexpr absl::string_view kNcclVersionFact = "NCCL version";

// Returns the value of the fact `name` of `member`, or "nothing" if the member lacks it.
absl::string_view FactOf(const Member& member, absl::string_view name);

// Checks that all ranks have the same version of Ronda, and the same value of each fact above.
// REQUIRES: `members` is not empty.
// Errors: FAILED_PRECONDITION for the first fact that differs. The text names the ranks and hosts that differ from the
// majority, and the remedy.
absl::Status CheckAgreement(const std::vector<Member>& members);

// Returns a sentence for each setting in which any rank differs from rank 0, the first member.
std::vector<std::string> DescribeDifferences(const std::vector<Member>& members);

// Returns the facts about this process and its settings. `mpi_library` is the MPI library that the process would use.
std::vector<Fact> FactsOf(const Config& config, absl::string_view mpi_library);

// The settings that affect how the ranks connect.
struct ConnectionSettings {
  std::string backend;  // as Config::backend
  MpiEnvironment::Use mpi = MpiEnvironment::Use::kAutomatic;
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration heartbeat_timeout = absl::Seconds(10);
};

// Returns the settings in the facts of `rank0`.
// Errors: INVALID_ARGUMENT if the facts lack the settings.
absl::StatusOr<ConnectionSettings> SettingsOf(const Member& rank0);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RANK_FACTS_H_
