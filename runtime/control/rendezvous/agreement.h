// Whether what the ranks of a job say about themselves fits together.
#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_AGREEMENT_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/control/rendezvous/membership.h"

namespace ronda {

// Facts that all ranks must have the same; the others are settings, of which rank 0's hold.
inline constexpr absl::string_view kByteOrderFact = "byte order";
inline constexpr absl::string_view kPointerSizeFact = "size of a pointer";
inline constexpr absl::string_view kWireFormatsFact = "wire formats";
inline constexpr absl::string_view kMpiLibraryFact = "MPI library";
inline constexpr absl::string_view kNcclVersionFact = "NCCL version";

// What `member` says of `name`; "nothing" if it does not mention it.
absl::string_view FactOf(const Member& member, absl::string_view name);

// Whether ranks with what must be the same: the version of Ronda, and the facts above.
// REQUIRES: `members` is not empty.
// Errors: FAILED_PRECONDITION that says what differs first, names the ranks and hosts that differ from most others, and
// says what to do.
absl::Status CheckAgreement(const std::vector<Member>& members);

// A sentence for each setting that some ranks have otherwise than rank 0, the first member.
std::vector<std::string> DescribeDifferences(const std::vector<Member>& members);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_AGREEMENT_H_
