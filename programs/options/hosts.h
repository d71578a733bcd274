// SPDX-License-Identifier: Apache-2.0

// Reads the hosts of a job, and the number of ranks that each host takes, from the -H option and from host files.
#ifndef RONDA_PROGRAMS_OPTIONS_HOSTS_H_
#define RONDA_PROGRAMS_OPTIONS_HOSTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// The largest number of ranks on one host. A greater number is probably a typing error.
inline constexpr int kMaxSlots = 1024;

// Returns whether `host` has only characters of names and addresses, and ssh and mpirun cannot take it for an option.
bool IsHostName(absl::string_view host);

// Splits "HOST:TEXT" at its last colon: "alpha:2" is alpha and 2, "[fd00::1]:2" is fd00::1 and 2. An IPv6 address must
// be in brackets, which show where it ends. Returns nullopt if the text has no host and colon.
std::optional<std::pair<absl::string_view, absl::string_view>> SplitHost(absl::string_view text);

struct HostSlots {
  std::string host;  // a name, or an IPv4 or IPv6 address
  int slots = 0;     // ranks it takes

  bool operator==(const HostSlots&) const = default;
};

// Appends `added`. If the list already has a host with this name, adds the slots to that host instead.
void AddHost(HostSlots added, std::vector<HostSlots>* hosts);

int CountSlots(const std::vector<HostSlots>& hosts);

// Returns the hosts in the form of -H, such as "alpha:2,[fd00::2]:2".
std::string FormatHosts(const std::vector<HostSlots>& hosts);

// Reads "localhost:4" or "alpha:2,[fd00::2]:2", in the given order. A host that is named twice gets the sum of its
// slots.
// Errors: INVALID_ARGUMENT that quotes the entry and shows the right form.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text);

// Reads the content of the host file `path`, in the form of Open MPI and MPICH. Each host has a line "HOST slots=N",
// "HOST:N" or "HOST", which means one slot. "max_slots=M" may follow, but has no effect, because a host never gets more
// ranks than slots. "#" begins a comment.
// Errors: INVALID_ARGUMENT that quotes the line, with its number, and shows the right form.
absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view path, absl::string_view content);

// Reads the output of a discovery program, which has one line "HOST" or "HOST:SLOTS" for each host. If `slots_per_host`
// is not 0, a host without a number of slots gets this number.
// Errors: INVALID_ARGUMENT that quotes the line and shows the right form.
absl::StatusOr<std::vector<HostSlots>> ParseDiscoveredHosts(absl::string_view content, int slots_per_host);

// Returns the number of the job's ranks on each of `hosts`, which are filled in order. If there are too few slots, the
// sum is less than `rank_count`.
std::vector<int> FillHosts(const std::vector<HostSlots>& hosts, int rank_count);

// Returns the part of a host's name before its first dot.
absl::string_view ShortName(absl::string_view hostname);

// Returns whether `host` is this host: "localhost", an address of the loopback interface, or one of `own`, which are
// this host's names and addresses. `host` may also be the part of an own name before the first dot.
bool IsThisHost(absl::string_view host, const std::vector<std::string>& own);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_HOSTS_H_
