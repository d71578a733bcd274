// SPDX-License-Identifier: Apache-2.0

#include <cstdio>
#include <string>
#include <vector>

#include "bench/harness/command.h"
#include "runtime/base/version.h"

namespace ronda::bench {
namespace {

const std::vector<Command>& Commands() {
  static const auto* const commands = new std::vector<Command>{
      CollectivesCommand(), StepCommand(),  LatencyCommand(), NegotiationCommand(), ModelCommand(), SubmissionCommand(),
      StartupCommand(),     ScaleCommand(), ElasticCommand(), AdviseCommand(),      ReportCommand()};
  return *commands;
}

std::string HelpText() {
  std::string text =
      "usage: ronda-bench COMMAND [OPTION]...\n\nMeasures Ronda, beside its peers.\n\n"
      "Commands, each with a --help of its own:\n";
  constexpr size_t kNameWidth = 13;  // more than the longest name has
  for (const Command& command : Commands()) {
    const std::string name = command.name;
    text += "  " + name + std::string(kNameWidth - name.size(), ' ') + command.summary + "\n";
  }
  return text +
         "\nA command starts its own ranks (-np N). Started by rondarun, mpirun or mpiexec, it is one of their "
         "ranks.\n";
}

int UsageError(const std::string& message) {
  std::fprintf(stderr, "ronda-bench: %s\n%s", message.c_str(), HelpText().c_str());
  return 2;
}

int Main(const std::vector<std::string>& words) {
  if (words.empty()) return UsageError("no command");
  if (words[0] == "--help" || words[0] == "-h") return std::fputs(HelpText().c_str(), stdout) < 0 ? 1 : 0;
  if (words[0] == "--version") return std::printf("ronda-bench %s\n", kVersion) < 0 ? 1 : 0;
  for (const Command& command : Commands()) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  }
  return UsageError("there is no command \"" + words[0] + "\"");
}

}  // namespace
}  // namespace ronda::bench

int main(int argc, char** argv) { return ronda::bench::Main(std::vector<std::string>(argv + 1, argv + argc)); }
