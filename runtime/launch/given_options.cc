#include "runtime/launch/given_options.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/option_list.h"

namespace ronda {
namespace {

// Options that do not go with each other, by the first of their names.
struct Conflict {
  std::vector<absl::string_view> these;
  std::vector<absl::string_view> those;
  absl::string_view remedy;
};

const std::vector<Conflict>& Conflicts() {
  static const auto* const conflicts = new std::vector<Conflict>{
      {{"-H"}, {"--hostfile"}, "both name the hosts; give one of them"},
      {{"-np"}, {"--nproc-per-node"}, "one counts the ranks of the job, the other those of a node; give one of them"},
      {{"-np"},
       {"--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master", "--standalone"},
       "nodes that start their own ranks say how many with --nproc-per-node; for one rondarun that starts all ranks, "
       "give -np and -H"},
      {{"-H", "--hostfile"},
       {"--nproc-per-node", "--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master",
        "--standalone"},
       "one has this rondarun start the ranks of all hosts, the other only those of this node; give -np and -H here, "
       "or --nnodes and --nproc-per-node on every node"},
      {{"--ips"}, {"--nnodes", "--node-rank"}, "the list of addresses says both; give one of them"},
      {{"--standalone"},
       {"--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master"},
       "a node alone needs none of the others; give one of them"},
      {{"--master"}, {"--master-addr", "--master-port"}, "both say where rank 0 listens; give one of them"},
      {{"--ips"}, {"--master-addr", "--master"}, "rank 0 is on the first of the addresses; give one of them"},
      {{"--binding", "--numa-binding"}, {"--binding-args"}, "both bind the ranks to cores; give one of them"},
      {{"--binding"}, {"--numa-binding"}, "both bind the ranks to cores; give one of them"},
      {{"--launch-agent"}, {"--ssh-port", "--ssh-identity-file"}, "the agent takes ssh's place; give one of them"},
      {{"--dry-run"}, {"--check"}, "each is to be done instead of the job; give one of them"},
  };
  return *conflicts;
}

bool Contains(const std::vector<absl::string_view>& names, const Option& option) {
  return std::find(names.begin(), names.end(), option.names.front()) != names.end();
}

const Conflict* FindConflict(const Option& a, const Option& b) {
  for (const Conflict& conflict : Conflicts()) {
    if (Contains(conflict.these, a) && Contains(conflict.those, b)) return &conflict;
    if (Contains(conflict.these, b) && Contains(conflict.those, a)) return &conflict;
  }
  return nullptr;
}

absl::Status MissingValue(const OptionUse& use, const Option& option, absl::string_view instead) {
  return absl::InvalidArgumentError(
      absl::StrCat(use.name, " needs a value: ", use.name, " ", option.value_name, instead));
}

// Takes the value of `given` from the words behind it.
absl::Status TakeValue(const std::vector<std::string>& words, size_t* next, GivenOption* given) {
  if (*next == words.size()) return MissingValue(given->use, *given->option, "");
  const std::string& word = words[(*next)++];
  if (given->option->value == Option::Value::kNoOption && FindOption(word) != nullptr) {
    return MissingValue(given->use, *given->option, absl::StrCat("; got the option ", word));
  }
  given->use.value = word;
  return absl::OkStatus();
}

// Reads the option at words[*next], with its value if it takes one, and moves *next behind it.
absl::StatusOr<GivenOption> ReadOption(const std::vector<std::string>& words, size_t* next) {
  const std::string& word = words[(*next)++];
  const size_t equals = absl::StartsWith(word, "--") ? word.find('=') : std::string::npos;
  GivenOption given;
  given.use.name = word.substr(0, equals);
  given.option = FindOption(given.use.name);
  if (given.option == nullptr) return UnknownOption(given.use.name);

  // What is refused says so, and not that its value is missing.
  const bool takes_value = !given.option->value_name.empty() && given.option->group != OptionGroup::kRefused;
  if (equals != std::string::npos) {
    if (given.option->value_name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(given.use.name, " takes no value; got \"", word, "\""));
    }
    given.use.value = word.substr(equals + 1);
  } else if (takes_value) {
    RONDA_RETURN_IF_ERROR(TakeValue(words, next, &given));
  }
  return given;
}

}  // namespace

absl::StatusOr<GivenWords> ReadWords(const std::vector<std::string>& words) {
  GivenWords given;
  size_t next = 0;
  while (next < words.size() && absl::StartsWith(words[next], "-")) {
    if (words[next] == "--") {
      ++next;
      break;
    }
    RONDA_ASSIGN_OR_RETURN(GivenOption option, ReadOption(words, &next));
    const OptionGroup group = option.option->group;
    // The words behind a refused option may be its values: the error is due now.
    if (group == OptionGroup::kRefused) return option.option->effect(option.use, nullptr);
    given.options.push_back(std::move(option));
    if (group == OptionGroup::kQuestions) return given;
  }
  given.command.assign(words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
  return given;
}

absl::Status CheckAgreement(const std::vector<GivenOption>& given) {
  for (auto a = given.begin(); a != given.end(); ++a) {
    for (auto b = given.begin(); b != a; ++b) {
      const Conflict* const conflict = FindConflict(*a->option, *b->option);
      if (conflict == nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(a->where, b->use.name, " and ", a->use.name, " do not go together: ", conflict->remedy));
    }
  }
  return absl::OkStatus();
}

std::vector<GivenOption> NotOverridden(const std::vector<GivenOption>& file,
                                       const std::vector<GivenOption>& command_line) {
  std::vector<GivenOption> left;
  std::copy_if(file.begin(), file.end(), std::back_inserter(left), [&](const GivenOption& in_file) {
    return std::none_of(command_line.begin(), command_line.end(), [&](const GivenOption& said) {
      const bool replaces = said.option == in_file.option && said.option->repetition == Option::Repetition::kReplaces;
      return replaces || FindConflict(*said.option, *in_file.option) != nullptr;
    });
  });
  return left;
}

}  // namespace ronda
