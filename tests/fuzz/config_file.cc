// SPDX-License-Identifier: Apache-2.0

// Tests rondarun's configuration file, and the options that result from it.
#include "programs/options/config_file.h"

#include "programs/options/option_table.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto entries = ronda::ParseConfigFile("f", {reinterpret_cast<const char*>(data), size});
  ronda::fuzz::RequireOkOrRefused(entries.status());
  if (!entries.ok()) return 0;
  for (const ronda::ConfigEntry& entry : *entries) {
    ronda::fuzz::Require(!entry.values.empty() && entry.line > 0, "an entry has a value and a place");
  }
  ronda::CommandLineDraft draft(nullptr);
  const ronda::OptionTable table = ronda::RondarunOptions(&draft);
  const auto given = ronda::ConfigOptions(table, "f", *entries);
  ronda::fuzz::RequireOkOrRefused(given.status());
  if (!given.ok()) return 0;
  for (const ronda::GivenOption& one : *given) ronda::fuzz::Require(one.option != nullptr, "options are known ones");
  return 0;
}
