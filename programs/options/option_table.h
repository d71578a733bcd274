// SPDX-License-Identifier: Apache-2.0

// Declares rondarun's options, their effects, and the draft to which the effects write.
#ifndef RONDA_PROGRAMS_OPTIONS_OPTION_TABLE_H_
#define RONDA_PROGRAMS_OPTIONS_OPTION_TABLE_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/command_line.h"
#include "programs/options/launch_options.h"
#include "programs/options/option.h"

namespace ronda {

struct ArgumentSources;

// The maximum number of ranks in a job, which is also the limit of RONDA_SIZE.
inline constexpr int kMaxJobSize = 1 << 20;

// Horovod's options for elastic jobs, as given by the user.
struct ElasticWords {
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
  std::optional<absl::Duration> timeout;
  std::optional<int> reset_limit;
  std::optional<std::pair<absl::Duration, absl::Duration>> cooldown;
  std::string discovery_script;
  std::optional<int> slots_per_host;
};

// The node options of torchrun and Paddle, as given by the user.
struct NodeWords {
  std::optional<int> nodes;
  std::optional<int> max_nodes;  // more than `nodes`, which is then the minimum: nodes come and go
  std::optional<int> node_rank;
  std::optional<int> ranks_per_node;
  std::optional<std::string> master_address;
  std::optional<int> master_port;
  bool has_endpoint = false;           // address and port were given as one option; needs no node_rank
  std::vector<std::string> addresses;  // of all nodes, in the order of their ranks
  bool standalone = false;
};

// The launch options parsed so far, and values that can be checked only after all options have been parsed.
//
// Thread-compatible. Not movable, because the effects of an OptionTable write to it.
struct CommandLineDraft {
  enum class Choice { kUnsaid, kYes, kNo };

  explicit CommandLineDraft(const ArgumentSources* argument_sources) : sources(argument_sources) {}
  CommandLineDraft(const CommandLineDraft&) = delete;
  CommandLineDraft& operator=(const CommandLineDraft&) = delete;

  LaunchOptions options;
  NodeWords node;
  ElasticWords elastic;
  Choice hierarchical = Choice::kUnsaid;
  Choice stall_check = Choice::kUnsaid;
  Choice mpi = Choice::kUnsaid;
  int redirected_streams = 0;  // torchrun's numbers: 1 is stdout, 2 is stderr, 3 is both
  int copied_streams = 0;
  const ArgumentSources* const sources;  // not owned; options may use it while they take effect
};

// Completes a command line after all options have been parsed. Resolves options that depend on each other: the number
// of this node, the number of nodes, the number of ranks that this node starts, and the ranks' settings. Adds notes
// about options that have no effect in this combination, and checks that no required option is missing.
//
// Errors: INVALID_ARGUMENT, with a text that names the options and the remedy.
absl::Status Complete(CommandLineDraft* draft);

// Each of these functions is the effect of an option. An effect that belongs to only one option is named after it.

absl::Status SetName(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetHosts(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetHost(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetHostFile(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetInterfaces(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetElasticTimeout(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetCooldownRange(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetGracePeriod(const OptionUse& use, CommandLineDraft* draft);
absl::Status ExportVariable(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetNodes(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetRanksPerNode(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetMasterAddress(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetMaster(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetAddresses(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetDevices(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetMonitor(const OptionUse& use, CommandLineDraft* draft);
absl::Status SetSignals(const OptionUse& use, CommandLineDraft* draft);

// Why an option with an address of this host has no effect.
inline constexpr absl::string_view kOwnAddress = "--network-interfaces says which address a host uses";

// Why options that list hosts cannot be combined with node options.
inline constexpr absl::string_view kHostsOrNodes =
    "one has this rondarun start the ranks of all hosts, the other only those of this node; give -np and -H here, or "
    "--nnodes and --nproc-per-node on every node";
// Returns whether a variable with this name may hold a secret. rondarun never prints the value of such a variable.
bool SoundsSecret(absl::string_view name);

// Returns an effect that splits the option's value as a shell does, and appends the words to `list`.
OptionEffect AddWords(std::vector<std::string>* list);

// Adds a note that the option has no effect. `reason` completes a text that starts "--x has no effect: ".
OptionEffect NoteWithoutEffect(absl::string_view reason, CommandLineDraft* draft);

// Converts an option's value to the text of an environment variable.
using VariableText = std::function<absl::StatusOr<std::string>(const OptionUse& use)>;

// The largest fusion threshold, in MiB.
inline constexpr int kMaxFusionThreshold = 1 << 20;

// Parses a number of MiB.
VariableText Mebibytes(NumberForm form);
// Parses a number, and appends `unit`.
VariableText NumberWithUnit(NumberForm form, absl::string_view unit);
// Parses a duration in multiples of `unit`. If `zero` is given, the option value 0 means the duration `zero`.
VariableText DurationIn(absl::Duration unit, NumberForm form, std::optional<absl::Duration> zero = std::nullopt);

// The first name of the option that names a configuration file.
inline constexpr absl::string_view kConfigFileOption = "--config-file";

// The first name of the option that names the job.
inline constexpr absl::string_view kNameOption = "--name";

// Returns all options of rondarun: those of horovodrun, torchrun and Paddle, mpirun's -x, and Ronda's own. The --help
// text, the keys of configuration files, errors about unknown names, and the test of the manual all use this table. So
// a new option needs a row in this table, a line in docs/rondarun.md and, if its effect is new, a function (above).
//
// The options write to `draft`, which must outlive any use of the table.
OptionTable RondarunOptions(CommandLineDraft* draft);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_OPTION_TABLE_H_
