// What a command line is made of: options, and what reading them adds up to.
#ifndef RONDA_RUNTIME_LAUNCH_OPTION_H_
#define RONDA_RUNTIME_LAUNCH_OPTION_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/argument_sources.h"
#include "runtime/launch/launch_options.h"
#include "runtime/launch/option_value.h"

namespace ronda {

// Where --help lists an option. kQuestions: are answered at once, whatever follows. kWithoutEffect: options of other
// launchers that are understood, and change nothing here. kRefused: options of other launchers whose error says what to
// write instead.
enum class OptionGroup {
  kJob,
  kHosts,
  kNodes,
  kOutput,
  kTunables,
  kQuestions,
  kWithoutEffect,
  kRefused,
};

// What torchrun's and Paddle's options say about nodes, as they say it.
struct NodeWords {
  std::optional<int> nodes;
  std::optional<int> node_rank;
  std::optional<int> ranks_per_node;
  std::optional<std::string> master_address;
  std::optional<int> master_port;
  std::vector<std::string> addresses;  // of all nodes, in the order of their ranks
  bool standalone = false;
};

// What of a command line has been read.
struct CommandLineDraft {
  enum class Choice { kUnsaid, kYes, kNo };

  LaunchOptions options;

  // What can only be judged when everything has been read.
  NodeWords node;
  Choice hierarchical = Choice::kUnsaid;
  Choice stall_check = Choice::kUnsaid;
  Choice mpi = Choice::kUnsaid;
  int redirected_streams = 0;  // torchrun's numbers: 1 is stdout, 2 is stderr, 3 is both
  int copied_streams = 0;

  const ArgumentSources* sources = nullptr;
};

// Takes an option into the draft.
// Errors: INVALID_ARGUMENT that names the option and shows the right form.
using OptionEffect = std::function<absl::Status(const OptionUse& use, CommandLineDraft* draft)>;

// One option of rondarun. Immutable.
struct Option {
  // What a second use does: replaces the first, or adds to it.
  enum class Repetition { kReplaces, kAdds };
  // What a value may look like: not like an option of rondarun, lest a forgotten value swallows the next option, unless
  // it is words for another program.
  enum class Value { kNoOption, kAnyWords };

  OptionGroup group;
  std::vector<absl::string_view> names;  // the first one is what it is called in messages
  absl::string_view value_name;          // empty: takes no value
  absl::string_view help;
  OptionEffect effect;
  Repetition repetition = Repetition::kReplaces;
  Value value = Value::kNoOption;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTION_H_
