// The hosts of a job, and how many ranks each of them takes: the -H option and host files.
#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_HOSTS_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_HOSTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// The most ranks on one host: beyond it, a typing error is likelier than a machine of that size.
inline constexpr int kMaxSlots = 1024;

// Whether `host` has only characters of names and addresses, and could not be taken for an option of ssh or mpirun.
bool IsHostName(absl::string_view host);

// Splits "HOST:TEXT" at its last colon: "alpha:2" is alpha and 2, "[fd00::1]:2" fd00::1 and 2. Only brackets tell where
// an IPv6 address ends. nullopt if there is no such host.
std::optional<std::pair<absl::string_view, absl::string_view>> SplitHost(absl::string_view text);

struct HostSlots {
  std::string host;  // a name, or an IPv4 or IPv6 address
  int slots = 0;     // ranks it takes

  bool operator==(const HostSlots&) const = default;
};

// Appends `added`, or adds its slots to the host of that name.
void AddHost(HostSlots added, std::vector<HostSlots>* hosts);

int CountSlots(const std::vector<HostSlots>& hosts);

// "alpha:2,[fd00::2]:2", as -H takes it.
std::string FormatHosts(const std::vector<HostSlots>& hosts);

// Reads "localhost:4" or "alpha:2,[fd00::2]:2", in the given order; a host named twice gets the sum of its slots.
// Errors: INVALID_ARGUMENT that quotes the entry and shows the right form.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text);

// Reads the content of the host file `path`, as Open MPI and MPICH have them: a line "HOST slots=N", "HOST:N" or
// "HOST", which is one slot, for each host. "max_slots=M" may follow, and limits nothing, as a host never gets more
// ranks than slots. "#" begins a comment. Errors: INVALID_ARGUMENT that quotes the line, with its number, and shows the
// right form.
absl::StatusOr<std::vector<HostSlots>> ParseHostFile(absl::string_view path, absl::string_view content);

// Reads what a program has listed: a line "HOST" or "HOST:SLOTS" for each host, once. A host without slots gets
// `slots_per_host`, if that is not 0.
// Errors: INVALID_ARGUMENT that quotes the line and shows the right form.
absl::StatusOr<std::vector<HostSlots>> ParseDiscoveredHosts(absl::string_view content, int slots_per_host);

// How many of the job's ranks each of `hosts` gets: they are filled in order. Fewer than `rank_count` in all if there
// are too few slots.
std::vector<int> FillHosts(const std::vector<HostSlots>& hosts, int rank_count);

// The part of a host's name before its first dot.
absl::string_view ShortName(absl::string_view hostname);

// Whether `host` is "localhost", an address of the loopback interface, or one of `own`: the names and addresses of this
// host; of names the part before the first dot will do.
bool IsThisHost(absl::string_view host, const std::vector<std::string>& own);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_HOSTS_H_
