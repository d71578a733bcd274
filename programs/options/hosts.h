// SPDX-License-Identifier: Apache-2.0

// Parses the hosts of a job, and the number of ranks that each host takes, from the -H option and from host files.
#ifndef RONDA_PROGRAMS_OPTIONS_HOSTS_H_
#define RONDA_PROGRAMS_OPTIONS_HOSTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// The maximum number of ranks on a host. A larger number is probably a typo.
inline constexpr int kMaxSlots = 1024;

// Returns whether `host` consists only of characters of names and addresses, and cannot be mistaken for an option of
// ssh or mpirun.
bool IsHostName(absl::string_view host);

// Splits "HOST:TEXT" at the last colon: "alpha:2" into alpha and 2, "[fd00::1]:2" into fd00::1 and 2. An IPv6 address
// must be in brackets, which mark its end. Returns nullopt if the text lacks a host or a colon.
std::optional<std::pair<absl::string_view, absl::string_view>> SplitHost(absl::string_view text);

struct HostSlots {
  std::string host;  // a name, or an IPv4 or IPv6 address
  int slots = 0;     // ranks it takes

  bool operator==(const HostSlots&) const = default;
};

// Appends `added` to `hosts`. If `hosts` already contains this host, adds the slots to that entry instead.
void AddHost(HostSlots added, std::vector<HostSlots>* hosts);

int CountSlots(const std::vector<HostSlots>& hosts);

// Formats the hosts for -H, for example "alpha:2,[fd00::2]:2".
std::string FormatHosts(const std::vector<HostSlots>& hosts);

// Parses a list of hosts such as "localhost:4" or "alpha:2,[fd00::2]:2". The result preserves the order. If a host
// occurs twice, its slots are added up. Errors: INVALID_ARGUMENT, with a text that quotes the entry and shows the
// expected form.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text);

// Parses the content of the host file `path`, in the format of Open MPI and MPICH. Each host has a line "HOST slots=N",
// "HOST:N", or "HOST" for one slot. "max_slots=M" may follow, but has no effect, because a host never gets more ranks
// than it has slots. "#" starts a comment. Errors: INVALID_ARGUMENT, with a text that quotes the line, gives its number
// and shows the expected form.
absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view path, absl::string_view content);

// Parses the output of a discovery program, which consists of a line "HOST" or "HOST:SLOTS" per host. If
// `slots_per_host` is not 0, it is the number of slots for hosts whose lines give none. Hosts with 0 slots are left
// out. Errors: INVALID_ARGUMENT, with a text that quotes the line and shows the expected form.
absl::StatusOr<std::vector<HostSlots>> ParseDiscoveredHosts(absl::string_view content, int slots_per_host);

// Distributes `rank_count` ranks over `hosts`, filling one host after the other. Returns the number of ranks on each
// host. If there are too few slots, the results add up to less than `rank_count`.
std::vector<int> FillHosts(const std::vector<HostSlots>& hosts, int rank_count);

// Returns the part of a hostname before the first dot.
absl::string_view ShortName(absl::string_view hostname);

// Returns whether `host` is this host: "localhost", "127.0.0.1", "::1", or one of `own`, the names and addresses of
// this host. `host` may also be the part of a name in `own` before the first dot.
bool IsThisHost(absl::string_view host, const std::vector<std::string>& own);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_HOSTS_H_
