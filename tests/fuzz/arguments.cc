// The command line of rondarun, a word a line.
#include "runtime/launch/arguments.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::LaunchOptions;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> words = absl::StrSplit(text, '\n');
  const auto options = ronda::ParseArguments(words);
  ronda::fuzz::RequireOkOrRefused(options.status());
  if (!options.ok() || options->action != LaunchOptions::Action::kRun) return 0;
  ronda::fuzz::Require(!options->command.empty(), "there is something to run");
  ronda::fuzz::Require(0 < options->rank_count && options->rank_count <= ronda::kMaxRanks, "so many ranks can run");
  return 0;
}
