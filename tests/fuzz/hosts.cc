// The -H option of rondarun.
#include "runtime/launch/hosts.h"

#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto hosts = ronda::ParseHosts({reinterpret_cast<const char*>(data), size});
  ronda::fuzz::RequireOkOrRefused(hosts.status());
  if (!hosts.ok()) return 0;
  ronda::fuzz::Require(!hosts->empty(), "there is at least one host");
  for (const ronda::HostSlots& host : *hosts) {
    ronda::fuzz::Require(!host.host.empty() && host.slots > 0, "each host takes ranks");
  }
  const absl::Status here = RequireThisHost(*hosts, "alpha.example");
  ronda::fuzz::Require(here.ok() || here.code() == absl::StatusCode::kUnimplemented, "other hosts are named");
  return 0;
}
