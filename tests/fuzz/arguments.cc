// SPDX-License-Identifier: Apache-2.0

// Tests rondarun's command line. The input has the command line, one word per line, then a zero byte, then the content
// of every file that the command line names.
#include "programs/options/arguments.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::LaunchOptions;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('\0', 1));
  const std::vector<std::string> words = absl::StrSplit(parts.first, '\n');
  const auto options = ronda::ParseArguments(
      words, {.read_file = [&](const std::string&) -> absl::StatusOr<std::string> { return parts.second; },
              .count_cores = [] { return 4; },
              .count_gpus = [] { return 0; },
              .own_addresses = [] { return std::vector<std::string>{"alpha"}; },
              .variable = [&](const std::string& name) -> std::optional<std::string> {
                if (name.size() % 2 == 0) return std::nullopt;
                return parts.second;
              },
              // Each line of the file also defines an environment variable.
              .variables = [&]() -> std::vector<std::string> { return absl::StrSplit(parts.second, '\n'); }});
  ronda::fuzz::RequireOkOrRefused(options.status());
  if (!options.ok()) return 0;
  if (options->action != LaunchOptions::Action::kRun && options->action != LaunchOptions::Action::kDryRun) return 0;
  ronda::fuzz::Require(!options->command.empty(), "there is something to run");
  ronda::fuzz::Require(options->rank_count > 0, "there is a rank");
  if (options->hosts.empty()) ronda::fuzz::Require(options->rank_count <= ronda::kMaxSlots, "so many ranks can run");
  if (!options->nodes) return 0;
  const ronda::NodeGroup& nodes = *options->nodes;
  ronda::fuzz::Require(0 <= nodes.node_rank && nodes.node_rank < nodes.nodes, "this node is one of them");
  ronda::fuzz::Require(0 < nodes.master_port && nodes.master_port <= 65535, "rank 0 can listen");
  return 0;
}
