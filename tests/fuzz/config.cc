// SPDX-License-Identifier: Apache-2.0

// Tests how Ronda reads its settings from the environment. The input has one variable per line.
#include "runtime/base/config.h"
#include "runtime/backends/read_config.h"

#include <map>
#include <string>

#include "absl/strings/str_split.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string, std::less<>> variables;
  for (absl::string_view line : absl::StrSplit(absl::string_view(reinterpret_cast<const char*>(data), size), '\n')) {
    const std::pair<std::string, std::string> variable = absl::StrSplit(line, absl::MaxSplits('=', 1));
    variables.insert(variable);
  }
  const auto config = ronda::ReadConfig([&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(std::string(name));
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  });
  ronda::fuzz::RequireOkOrRefused(config.status());
  if (!config.ok()) return 0;
  ronda::fuzz::Require(0 <= config->job.rank && config->job.rank < config->job.size, "the rank is below the size");
  return 0;
}
