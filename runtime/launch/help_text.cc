#include "runtime/launch/help_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/option.h"
#include "runtime/launch/option_list.h"

namespace ronda {
namespace {

constexpr size_t kLineWidth = 80;

constexpr std::pair<OptionGroup, absl::string_view> kTitles[] = {
    {OptionGroup::kJob, "The job"},
    {OptionGroup::kHosts, "Hosts"},
    {OptionGroup::kNodes, "Nodes that start their own ranks, as with torchrun or Paddle"},
    {OptionGroup::kOutput, "Output"},
    {OptionGroup::kTunables, "Settings of the runtime; each replaces the variable in brackets"},
    {OptionGroup::kQuestions, "Questions"},
};

std::string Describe(const Option& option) {
  return absl::StrCat("  ", absl::StrJoin(option.names, ", "), option.value_name.empty() ? "" : " ", option.value_name,
                      "\n        ", absl::StrReplaceAll(option.help, {{"\n", "\n        "}}), "\n");
}

// The names of a group's options, as many in a line as fit.
std::string ListNames(OptionGroup group) {
  std::string text;
  size_t column = kLineWidth;
  for (const Option& option : Options()) {
    if (option.group != group) continue;
    const absl::string_view name = option.names.front();
    const bool fits = column + 1 + name.size() <= kLineWidth;
    const absl::string_view gap = fits ? " " : "\n  ";
    column = (fits ? column : 0) + gap.size() + name.size();
    absl::StrAppend(&text, gap, name);
  }
  return absl::StrCat(text, "\n");
}

std::string DescribeOptions() {
  std::string text;
  for (const auto& [group, title] : kTitles) {
    absl::StrAppend(&text, "\n", title, ":\n");
    for (const Option& option : Options()) {
      if (option.group == group) absl::StrAppend(&text, Describe(option));
    }
  }
  absl::StrAppend(
      &text, "\nAccepted, for other launchers have them; they change nothing:", ListNames(OptionGroup::kWithoutEffect));
  return text;
}

}  // namespace

std::string UsageLine() { return "usage: rondarun -np N [OPTION]... [--] COMMAND [ARGUMENT]..."; }

std::string HelpText() {
  return absl::StrCat(UsageLine(), R"(

Runs COMMAND as a job of N ranks, on this machine or on several. What the ranks print
comes out line by line, marked with the rank. When a rank fails, the others are ended,
and the last line says which rank it was, how it ended, and its last error.

    rondarun -np 2 ./train --epochs 3
    rondarun -np 4 -H alpha:2,beta:2 ./train --epochs 3
    rondarun --nnodes 2 --node-rank 0 --nproc-per-node 2 --master-addr alpha ./train

Options end at the first word that is none, or at --. Values can also be given as
--option=VALUE.
)",
                      DescribeOptions(), R"(
Exit code: 0 if every rank exits with 0; else the exit code of the first rank to fail, or
128 + N if signal N ended it or told rondarun to end. 2: wrong options. 126: the command
is not executable. 127: the command was not found.

Ctrl+C tells the ranks to end; a second one ends them at once.

Every rank finds its place in RONDA_RANK, RONDA_SIZE, RONDA_LOCAL_RANK, RONDA_LOCAL_SIZE,
RONDA_CROSS_RANK and RONDA_CROSS_SIZE. Rank 0 reads the launcher's standard input, if that is
a file or a pipe; the others have none. When a rank ends, what it started ends with it.
)");
}

}  // namespace ronda
