// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/launch.h"
#include "bench/step/step_options.h"

namespace ronda::bench {
namespace {

constexpr char kDescription[] =
    "Makes one self-contained page, DIR/index.html, with plots and tables, of the JSON files in DIR, which other "
    "commands\n"
    "write with --json. Each plot is also a file of its own, DIR/NAME.svg. This takes matplotlib: Debian's\n"
    "python3-matplotlib, or pip install matplotlib.";

// Replaces this process with the Python program bench/report, which documents its arguments at its top. Returns only if
// the program cannot be started.
absl::Status Become(const std::vector<std::string>& arguments) {
  constexpr char kProgram[] = "ronda-bench-report";
  const std::string program = FindInstalledProgram()(kProgram);
  if (program.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no ", kProgram, " beside ", OwnProgram(),
                                            ", in ../lib/ronda or in PATH: install it ", "together with ronda-bench"));
  }
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  return absl::InternalError(absl::StrCat(program, ": ", strerror(errno)));
}

int RunReport(const std::vector<std::string>& words) {
  std::vector<std::string> directories;
  std::string markdown;
  std::string speed;
  Flags flags("report", kDescription);
  flags.AllowOperands("DIR", &directories);
  flags.Add({.names = {"--markdown"},
             .value = "FILE",
             .help = "Also put the tables into FILE, a page of Markdown, between the lines\n"
                     "<!-- results: written by ronda-bench report --> and <!-- end of results -->."},
            Text(&markdown));
  flags.Add({.names = {"--speed"},
             .value = "FILE",
             .help = "Also draw one picture into FILE, an SVG: the bus bandwidth of allreduce by size, of\n"
                     "Ronda and its peers, from the runs of collectives in DIR."},
            Text(&speed));
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  if (directories.size() != 1) {
    return Explain(
        absl::InvalidArgumentError(absl::StrCat("report needs one folder with JSON files\n", flags.Usage())));
  }
  const Setting initial;
  return Explain(
      Become({directories.front(), markdown, speed, absl::StrCat(initial.fusion_threshold), Name(initial.wire)}));
}

}  // namespace

Command ReportCommand() {
  return {
      .name = "report", .summary = "a page with plots and tables of the results of other commands", .run = RunReport};
}

}  // namespace ronda::bench
