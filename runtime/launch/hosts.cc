#include "runtime/launch/hosts.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::StatusOr<HostSlots> ParseEntry(absl::string_view entry) {
  const std::vector<absl::string_view> parts = absl::StrSplit(entry, ':');
  int slots = 0;
  if (parts.size() != 2 || parts[0].empty() || !absl::SimpleAtoi(parts[1], &slots) || slots < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("-H takes HOST:SLOTS with at least one slot, for example -H localhost:4; got \"", entry, "\""));
  }
  return HostSlots{.host = std::string(parts[0]), .slots = slots};
}

absl::string_view ShortName(absl::string_view hostname) { return hostname.substr(0, hostname.find('.')); }

bool IsThisHost(absl::string_view name, absl::string_view hostname) {
  return name == "localhost" || name == "127.0.0.1" || name == hostname || name == ShortName(hostname);
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text) {
  std::vector<HostSlots> hosts;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    RONDA_ASSIGN_OR_RETURN(HostSlots parsed, ParseEntry(entry));
    const auto known =
        std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& host) { return host.host == parsed.host; });
    if (known == hosts.end()) {
      hosts.push_back(std::move(parsed));
    } else {
      known->slots += parsed.slots;
    }
  }
  return hosts;
}

absl::Status RequireThisHost(const std::vector<HostSlots>& hosts, absl::string_view hostname) {
  for (const HostSlots& host : hosts) {
    if (IsThisHost(host.host, hostname)) continue;
    return absl::UnimplementedError(
        absl::StrCat("-H names \"", host.host, "\", which is not this host (", hostname,
                     "): several hosts are not supported by this version; use -H localhost:SLOTS or leave -H out"));
  }
  return absl::OkStatus();
}

}  // namespace ronda
