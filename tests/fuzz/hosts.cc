// SPDX-License-Identifier: Apache-2.0

// Tests the value of rondarun's option -H.
#include "programs/options/hosts.h"

#include <numeric>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto hosts = ronda::ParseHosts({reinterpret_cast<const char*>(data), size});
  ronda::fuzz::RequireOkOrRefused(hosts.status());
  if (!hosts.ok()) return 0;
  ronda::fuzz::Require(!hosts->empty(), "there is at least one host");
  for (const ronda::HostSlots& host : *hosts) {
    ronda::fuzz::Require(!host.host.empty() && host.slots > 0, "each host takes ranks");
  }
  // Ranks fill the hosts in order. If a host still has free slots, the hosts after it get no ranks.
  const std::vector<int> ranks = ronda::FillHosts(*hosts, 3);
  ronda::fuzz::Require(ranks.size() == hosts->size(), "each host is filled, or not");
  ronda::fuzz::Require(std::accumulate(ranks.begin(), ranks.end(), 0) <= 3, "no rank is placed twice");
  for (size_t i = 0; i < ranks.size(); ++i) {
    ronda::fuzz::Require(0 <= ranks[i] && ranks[i] <= (*hosts)[i].slots, "no host gets more than it takes");
  }
  return 0;
}
