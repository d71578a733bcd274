// The -H option: which hosts, and how many ranks each of them takes.
#ifndef RONDA_RUNTIME_LAUNCH_HOSTS_H_
#define RONDA_RUNTIME_LAUNCH_HOSTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

struct HostSlots {
  std::string host;
  int slots = 0;  // ranks it takes

  bool operator==(const HostSlots&) const = default;
};

// Reads "localhost:4" or "alpha:2,beta:2", in the given order; a host named twice gets the sum of its slots.
// Errors: INVALID_ARGUMENT that quotes the entry and shows the right form.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text);

// OK if every one of `hosts` is another name of the machine called `hostname`: that name, its part before the first
// dot, or a name of the loopback interface.
// Errors: UNIMPLEMENTED that names the first other host: this version starts ranks on one host only.
absl::Status RequireThisHost(const std::vector<HostSlots>& hosts, absl::string_view hostname);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_HOSTS_H_
