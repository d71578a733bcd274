// SPDX-License-Identifier: Apache-2.0

#include "programs/options/option_table.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "programs/options/hosts.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

using Action = LaunchOptions::Action;
using Binding = LaunchOptions::Binding;
using Choice = CommandLineDraft::Choice;
using Digits = NumberForm::Digits;
using Kind = Option::Kind;
using Launcher = LaunchOptions::Launcher;
using Options = std::vector<Option>;

constexpr int kMaxNodes = 65536;
// The longest wait is a month. A longer wait is probably a typo.
constexpr double kMaxStallSeconds = 30 * 86400;

constexpr TextForm kFile = {.what = "a file", .example = "trace.json"};
constexpr NumberForm kStreams = {.what = "a number for all ranks alike", .example = "3", .max = 3};

Option WithKind(Kind kind, Option option) {
  option.kind = kind;
  return option;
}

// Makes repeated uses of the option add up.
Option Adding(Option option, Option::Value value = Option::Value::kNoOption) {
  option.repetition = Option::Repetition::kAdds;
  option.value = value;
  return option;
}

Option WithOptionalValue(Option option) {
  option.value = Option::Value::kOptional;
  return option;
}

OptionEffect AlreadySo() {
  return [](const OptionUse&) { return absl::OkStatus(); };
}

OptionEffect With(CommandLineDraft* draft, absl::Status (*effect)(const OptionUse& use, CommandLineDraft* draft)) {
  return [draft, effect](const OptionUse& use) { return effect(use, draft); };
}

Options JobOptions(CommandLineDraft* draft) {
  LaunchOptions& options = draft->options;
  return {
      MakeOption("-np -n --num-proc N", "Start N ranks. Required, unless torchrun's or Paddle's options\nsay how many.",
                 IntegerInto(&options.rank_count,
                             {.what = "a number of ranks", .example = "4", .min = 1, .max = kMaxJobSize})),
      MakeOption("--name --job-id --rdzv-id NAME",
                 "Name the job: rondactl and the monitor show it, and rondactl takes it.", With(draft, SetName)),
      MakeOption(
          "--binding none|core|numa",
          "Which cores a rank may run on: any, one of its own, or those of\none NUMA node (default: none).",
          WordInto(&options.binding, {{"none", Binding::kNone}, {"core", Binding::kCore}, {"numa", Binding::kNuma}})),
      MakeOption("--max-restarts --max-restart N",
                 "After a failure, start the whole job again, up to N times\n(default: 0).",
                 IntegerInto(&options.max_restarts, {.what = "a number of restarts", .example = "3", .max = 1000})),
      MakeOption(
          "--grace-period --shutdown-timeout S",
          "Seconds that ranks get to end after they were told to\n(SIGTERM) and before they are killed (default: "
          "5).",
          With(draft, SetGracePeriod)),
      Adding(MakeOption("-x NAME[=VALUE]",
                        "Give the ranks this environment variable, on all hosts. May be\nrepeated. Export secrets, and "
                        "name them without a value.",
                        With(draft, ExportVariable))),
      MakeOption("--dry-run", "Print what would be started, and exit.", Assign(&options.action, Action::kDryRun)),
      MakeOption("--check", "Look whether the hosts can run a job together, and exit.",
                 Assign(&options.action, Action::kPreflight)),
      MakeOption("--config-file FILE", "Read options from a YAML file, as horovodrun does. The command\nline wins.",
                 AlreadySo()),
  };
}

Options OptionsOfElasticJobs(CommandLineDraft* draft) {
  ElasticWords& elastic = draft->elastic;
  const NumberForm ranks = {.what = "a number of ranks", .example = "2", .min = 1, .max = kMaxJobSize};
  Option cooldown =
      MakeOption("--blacklist-cooldown-range",
                 "Seconds before the place of a rank that has died, or a host that was\nlost, is used again: MIN, then "
                 "twice as long each time, up to MAX\n(default: 0.1 1, and 1 60 for a host).",
                 With(draft, SetCooldownRange));
  cooldown.value = Option::Value::kTwo;
  cooldown.value_name = "MIN MAX";
  return {
      MakeOption("--min-np --min-num-proc N",
                 "When ranks die, go on with what is left and replace them; wait\nwhile there are fewer than N.",
                 IntegerInto(&elastic.min_ranks, ranks)),
      MakeOption("--max-np --max-num-proc N", "Let the job grow to N ranks (default: as -np).",
                 IntegerInto(&elastic.max_ranks, ranks)),
      MakeOption("--elastic-timeout S", "The longest wait for ranks that are to join (default: 600).",
                 With(draft, SetElasticTimeout)),
      MakeOption("--reset-limit N", "End the job if its ranks are to change more than N times.",
                 IntegerInto(&elastic.reset_limit, {.what = "a number of changes", .example = "10", .max = 1000000})),
      std::move(cooldown),
      MakeOption(
          "--host-discovery-script PROGRAM",
          "Run it every second: it prints a line HOST:SLOTS for each host that\nranks may run on. Hosts come and "
          "go with the list.",
          TextInto(&elastic.discovery_script, {.what = "a program", .example = "./hosts.sh"})),
      MakeOption("--slots-per-host --slots N", "The slots of hosts that it lists without any.",
                 IntegerInto(&elastic.slots_per_host,
                             {.what = "a number of slots", .example = "4", .min = 1, .max = kMaxSlots})),
  };
}

Options HostOptions(CommandLineDraft* draft) {
  RemoteOptions& remote = draft->options.remote;
  return {
      MakeOption(
          "-H --hosts -hosts -host HOST:SLOTS,...",
          "Where to start them, and how many at most on each host (default:\nwhere the scheduler says, or on this "
          "host).",
          With(draft, SetHosts)),
      MakeOption("--host HOST:SLOTS,...|ADDRESS",
                 "The same, as Open MPI has it. Paddle's own address, which has no\nslots, has no effect.",
                 With(draft, SetHost)),
      MakeOption("--hostfile -hostfile FILE", "The same from a file with a line \"HOST slots=N\" for each host.",
                 With(draft, SetHostFile)),
      MakeOption(
          "--launcher auto|mpirun|ssh",
          "The program that starts them on other hosts (default: auto, which\nis rondarun itself on this host, and "
          "mpirun on several).",
          WordInto(&draft->options.launcher,
                   {{"auto", Launcher::kAutomatic}, {"mpirun", Launcher::kMpirun}, {"ssh", Launcher::kSsh}})),
      MakeOption("--network-interfaces --network-interface NAME,...",
                 "The interfaces that hosts talk over\n(RONDA_NETWORK_INTERFACE; default: any).",
                 With(draft, SetInterfaces)),
      MakeOption("--ssh-port -p PORT", "The port that ssh connects to.",
                 IntegerInto(&remote.ssh_port, {.what = "a port", .example = "22", .min = 1, .max = 65535})),
      MakeOption("--ssh-identity-file -i FILE", "The private key that ssh uses.",
                 TextInto(&remote.ssh_identity_file, {.what = "a file", .example = "~/.ssh/id_ed25519"})),
      MakeOption("--launch-agent PROGRAM", "Called as PROGRAM HOST COMMAND instead of ssh.",
                 TextInto(&remote.agent, {.what = "a program", .example = "/usr/bin/rsh"})),
      MakeOption("--mpi", "Start the ranks with mpirun, and let MPI carry data on one host\ntoo (RONDA_MPI=1).",
                 Assign(&draft->mpi, Choice::kYes)),
      Adding(MakeOption("--mpi-args \"WORDS\"", "For mpirun. May be repeated.", AddWords(&remote.mpi_arguments)),
             Option::Value::kAnyWords),
      Adding(MakeOption("--binding-args \"WORDS\"", "For mpirun, instead of \"-bind-to none -map-by slot\".",
                        AddWords(&remote.binding_arguments)),
             Option::Value::kAnyWords),
      MakeOption("--tcp", "MPI across hosts over TCP only.", Assign(&remote.transport, RemoteOptions::Transport::kTcp)),
  };
}

Options NodeOptions(CommandLineDraft* draft) {
  NodeWords& node = draft->node;
  return {
      MakeOption("--nproc-per-node N|auto|cpu|gpu",
                 "Start N ranks on this node, or one for each core or GPU\n(default: 1, or one for each of --gpus).",
                 With(draft, SetRanksPerNode)),
      MakeOption("--nnodes N|MIN:MAX",
                 "So many nodes start ranks (default: 1). With MIN:MAX nodes come and\ngo while the job runs.",
                 With(draft, SetNodes)),
      MakeOption("--node-rank --rank N", "Which of them this one is, from 0. Rank 0 is on node 0.",
                 IntegerInto(&node.node_rank, {.what = "a number of a node", .example = "0", .max = kMaxNodes - 1})),
      MakeOption("--ips ADDRESS,...",
                 "All nodes' addresses (Paddle's): says their number, which one this\nis, and that rank 0 is on the "
                 "first.",
                 With(draft, SetAddresses)),
      MakeOption("--gpus --devices N,...", "The GPUs that ranks of this node get, one each.", With(draft, SetDevices)),
      MakeOption("--master-addr ADDRESS", "Where rank 0 listens (default: 127.0.0.1).", With(draft, SetMasterAddress)),
      MakeOption("--master-port PORT", "And on which port (default: 29500).",
                 IntegerInto(&node.master_port, kPortForm)),
      MakeOption("--master --rdzv-endpoint HOST:PORT", "Both in one (Paddle's and torchrun's).",
                 With(draft, SetMaster)),
      MakeOption("--standalone", "This node alone. This is the default.", Assign(&node.standalone, true)),
      MakeOption("--signals-to-handle NAME,...", "The signals that end the job\n(default: SIGINT,SIGTERM,SIGHUP).",
                 With(draft, SetSignals)),
      MakeOption("--numa-binding node", "As --binding numa.",
                 WordInto(&draft->options.binding, {{"node", Binding::kNuma}})),
  };
}

Options OutputOptions(CommandLineDraft* draft) {
  LaunchOptions& options = draft->options;
  return {
      MakeOption("--output-filename --log-dir DIR",
                 "Also write what each rank prints to DIR/rank.N/stdout and\nDIR/rank.N/stderr.",
                 TextInto(&options.output_directory, {.what = "a directory", .example = "logs"})),
      MakeOption("--redirects -r 0|1|2|3",
                 "Write to those files only, and do not show: 1 stdout, 2 stderr,\n3 both (torchrun's).",
                 IntegerInto(&draft->redirected_streams, kStreams)),
      MakeOption("--tee -t 0|1|2|3", "Show these streams in any case, and write all to the files\n(torchrun's).",
                 IntegerInto(&draft->copied_streams, kStreams)),
      MakeOption("--prefix-output-with-timestamp -prefix-timestamp", "Begin each line of a rank with the time.",
                 Assign(&options.line_prefix, LaunchOptions::LinePrefix::kTimestampAndRank)),
      WithOptionalValue(MakeOption("--monitor PORT",
                                   "Start ronda-monitor beside the job, and print the address of its\npage and metrics "
                                   "(default: any port).",
                                   With(draft, SetMonitor))),
      MakeOption("--summary",
                 "Watch the ranks of this host: name one that holds the others up,\nand print a table when the job has "
                 "ended.",
                 Assign(&options.summary, true)),
      MakeOption("--verbose", "Say what is started, and how each rank ended.", Assign(&options.verbose, true)),
  };
}

// Returns an option that sets an environment variable of the ranks. "$" in `help` stands for the variable name.
Option Setting(absl::string_view spec, VariableName variable, absl::string_view help, VariableText text,
               CommandLineDraft* draft) {
  return MakeOption(spec, absl::StrReplaceAll(help, {{"$", variable.view()}}),
                    [draft, variable, text = std::move(text)](const OptionUse& use) -> absl::Status {
                      RONDA_ASSIGN_OR_RETURN(draft->options.settings[variable.c_str()], text(use));
                      return absl::OkStatus();
                    });
}

VariableText Always(absl::string_view text) {
  return [text](const OptionUse&) { return std::string(text); };
}

VariableText TextOf(TextForm form) {
  return [form](const OptionUse& use) { return ParseText(use, form); };
}

VariableText WordOf(WordForm<std::string> form) {
  return [form = std::move(form)](const OptionUse& use) { return ParseWord(use, form); };
}

// Parses a number of steps, which is optional and defaults to 100.
VariableText StepsBetweenChecks() {
  const VariableText number =
      NumberWithUnit({.what = "a number of steps", .example = "100", .min = 1, .max = 1 << 30}, "");
  return [number](const OptionUse& use) -> absl::StatusOr<std::string> {
    if (use.value.empty()) return "100";
    return number(use);
  };
}

Options TunableOptions(CommandLineDraft* draft) {
  return {
      Setting(
          "--fusion-threshold-mb N", "RONDA_FUSION_THRESHOLD",
          "Most MiB in a bucket of fused tensors, 0 for no fusion\n($).",
          Mebibytes({.what = "a number of MiB", .example = "64", .max = kMaxFusionThreshold, .digits = Digits::kAny}),
          draft),
      Setting("--cycle-time-ms T", "RONDA_CYCLE_TIME",
              "Longest time in milliseconds that a tensor waits for others to be\nfused with ($).",
              DurationIn(absl::Milliseconds(1),
                         {.what = "a number of milliseconds", .example = "1", .max = 3600000, .digits = Digits::kAny}),
              draft),
      Setting("--cache-capacity N", "RONDA_CACHE_CAPACITY", "Entries of the response cache, 0 for no cache\n($).",
              NumberWithUnit({.what = "a number of entries", .example = "1024", .max = 1 << 24}, ""), draft),
      MakeOption("--hierarchical-allreduce",
                 "On several hosts: shared memory within a host, MPI across\n(RONDA_BACKEND=hierarchical).",
                 Assign(&draft->hierarchical, Choice::kYes)),
      MakeOption("--no-hierarchical-allreduce", "On several hosts: MPI between all ranks (RONDA_BACKEND=mpi).",
                 Assign(&draft->hierarchical, Choice::kNo)),
      Setting("--autotune", "RONDA_AUTOTUNE", "Look for faster settings while the job runs ($=1).", Always("1"), draft),
      Setting("--no-autotune", "RONDA_AUTOTUNE", "Do not, even if $ says so.", Always("0"), draft),
      Setting("--autotune-log-file FILE", "RONDA_AUTOTUNE_LOG", "Where autotune writes its measurements, as CSV\n($).",
              TextOf({.what = "a file", .example = "tuning.csv"}), draft),
      WithOptionalValue(Setting("--check-numbers N", "RONDA_CHECK",
                                "Every N steps ranks compare their gradients and parameters\n($; default: 100).",
                                StepsBetweenChecks(), draft)),
      // The option accepts the same range as the variable.
      Setting("--autotune-steps-per-sample N", "RONDA_AUTOTUNE_STEPS_PER_SAMPLE",
              "How many steps autotune measures under the same settings\n($; default: 10).",
              NumberWithUnit({.what = "a number of steps", .example = "10", .min = 4, .max = 1000}, ""), draft),
      Setting("--timeline-filename FILE", "RONDA_TIMELINE",
              "Where each rank writes a trace of its tensors, for Perfetto:\nt.json becomes t.rank0.json ($).",
              TextOf(kFile), draft),
  };
}

Options WaitingOptions(CommandLineDraft* draft) {
  return {
      // The option accepts the same range as the variable.
      Setting("--start-timeout S", "RONDA_START_TIMEOUT",
              "Seconds that ranks wait for each other when they start,\nand that hosts may take to start theirs\n"
              "($; default: 30).",
              DurationIn(
                  absl::Seconds(1),
                  {.what = "a number of seconds", .example = "10", .min = 0.001, .max = 86400, .digits = Digits::kAny}),
              draft),
      Setting("--stall-check-warning-time-seconds S", "RONDA_STALL_WARNING",
              "Warn of a rank that others wait for so long\n($; default: 60).",
              DurationIn(absl::Seconds(1),
                         {.what = "a number of seconds", .example = "60", .min = 1, .max = kMaxStallSeconds}),
              draft),
      Setting("--stall-check-shutdown-time-seconds S", "RONDA_STALL_DEADLINE",
              "And fail after so long, 0 for never\n($; default: 600).",
              DurationIn(absl::Seconds(1), {.what = "a number of seconds", .example = "600", .max = kMaxStallSeconds},
                         absl::InfiniteDuration()),
              draft),
      MakeOption("--stall-check", "Do both. This is the default.", Assign(&draft->stall_check, Choice::kYes)),
      MakeOption("--no-stall-check", "Do neither: wait for ever, and say nothing.",
                 Assign(&draft->stall_check, Choice::kNo)),
      // Horovod has two log levels that Ronda does not have. Each is mapped to Ronda's nearest level.
      Setting("--log-level LEVEL", "RONDA_LOG_LEVEL",
              "Which messages of the runtime are printed: debug, info, warning,\nerror or off ($; default: "
              "warning).",
              WordOf({{"info", "info"},
                      {"debug", "debug"},
                      {"trace", "debug"},
                      {"warning", "warning"},
                      {"error", "error"},
                      {"fatal", "error"},
                      {"off", "off"}}),
              draft),
  };
}

Options Questions(CommandLineDraft* draft) {
  Action* const action = &draft->options.action;
  return {
      WithKind(Kind::kQuestion, MakeOption("--check-build -cb", "Show what this build of Ronda contains, and exit.",
                                           Assign(action, Action::kCheckBuild))),
      WithKind(Kind::kQuestion,
               MakeOption("--version -v", "Show the version, and exit.", Assign(action, Action::kVersion))),
      WithKind(Kind::kQuestion, MakeOption("--help -h", "Show this text, and exit.", Assign(action, Action::kHelp))),
  };
}

// Options of other launchers that rondarun recognizes but does not support: it refuses them, or accepts them without
// effect. If an accepted option asks for something other than the default, rondarun prints a note that says why the
// option has no effect.
struct ForeignOptions {
  Kind kind;
  absl::string_view reason;              // empty: the options ask for the default
  std::vector<absl::string_view> specs;  // as MakeOption's
  std::optional<NumberForm> form = {};   // of the value, if a wrong one is still an error
  absl::string_view only_value = {};     // the accepted values, separated by "|"; empty: any
};

constexpr absl::string_view kNoPaddleElasticity = "give -np N and --min-np N, and the job goes on when ranks die";
constexpr absl::string_view kNoParameterServer =
    "there are no parameter servers; all ranks are alike, and -np N says how many";
constexpr absl::string_view kOwnSearch = "Ronda's autotune searches in a way of its own (docs/autotune.md)";

constexpr NumberForm kSamples = {.what = "a number of samples", .example = "5", .max = 1e6};
constexpr NumberForm kNoise = {.what = "a number", .example = "0.8", .max = 1, .digits = Digits::kAny};
constexpr NumberForm kNcclStreams = {.what = "a number of streams", .example = "1", .max = 64};

std::vector<ForeignOptions> HorovodVocabulary() {
  return {
      {Kind::kWithoutEffect, "a timeline always has its cycles marked", {"--no-timeline-mark-cycles"}},
      {Kind::kWithoutEffect,
       kOwnSearch,
       {"--autotune-warmup-samples N", "--autotune-bayes-opt-max-samples N"},
       kSamples},
      {Kind::kWithoutEffect, kOwnSearch, {"--autotune-gaussian-process-noise X"}, kNoise},
      {Kind::kWithoutEffect,
       "one backend carries all operations; see --hierarchical-allreduce",
       {"--hierarchical-allgather", "--no-hierarchical-allgather", "--torus-allreduce"}},
      {Kind::kWithoutEffect, "Ronda uses NCCL in its own way", {"--num-nccl-streams N"}, kNcclStreams},
      {Kind::kWithoutEffect,
       "--binding core gives each rank a core of its own",
       {"--thread-affinity --ccl-bgt-affinity --mlsl-bgt-affinity N"}},
      {Kind::kWithoutEffect,
       "Ronda calls MPI as the library allows",
       {"--mpi-threads-disable", "--no-mpi-threads-disable"}},
      {Kind::kWithoutEffect,
       "the runtime's messages have no time; --prefix-output-with-timestamp shows when a line was printed",
       {"--log-with-timestamp --no-log-hide-timestamp"}},
      {Kind::kWithoutEffect,
       "",
       {"--log-without-timestamp --log-hide-timestamp", "--timeline-mark-cycles", "--no-torus-allreduce",
        "--disable-cache"}},
      {Kind::kWithoutEffect,
       "Ronda does without Gloo: shared memory carries data on a host, MPI or TCP between hosts",
       {"--gloo"}},
      {Kind::kWithoutEffect, "--start-timeout says how long ranks wait for each other", {"--gloo-timeout-seconds S"}},
      {Kind::kRefused, "under LSF, start the job with mpirun, or name the hosts with -H", {"--jsrun"}},
  };
}

std::vector<ForeignOptions> TorchrunVocabulary() {
  return {
      {Kind::kWithoutEffect, "", {"--no-python"}},
      {Kind::kWithoutEffect,
       "rondarun looks after its ranks in its own way",
       {"--monitor-interval S", "--start-method NAME", "--event-log-handler NAME", "--logs-specs NAME", "--role NAME"}},
      {Kind::kWithoutEffect,
       "the lines of all ranks are shown; --redirects hides streams",
       {"--local-ranks-filter N,..."}},
      {Kind::kWithoutEffect, "each line begins with its rank and stream", {"--log-line-prefix-template TEXT"}},
      {Kind::kWithoutEffect, "--start-timeout says how long ranks wait for each other", {"--rdzv-conf K=V,..."}},
      {Kind::kWithoutEffect, kOwnAddress, {"--local-addr ADDRESS"}},
      {Kind::kRefused,
       "it starts programs, and no Python of its own; write the whole command, for example python3 -m MODULE",
       {"--module -m", "--run-path"}},
      {Kind::kRefused,
       "--output-filename writes all that a rank prints to files of its own",
       {"--duplicate-stdout-filters WORDS", "--duplicate-stderr-filters WORDS"}},
      {Kind::kRefused,
       "LOCAL_RANK is the number of a rank on its host; a program that sees one device counts from "
       "CUDA_VISIBLE_DEVICES",
       {"--virtual-local-rank"}},
      {Kind::kWithoutEffect,
       "torchrun's stores are not used; ranks meet at --master-addr and --master-port",
       {"--rdzv-backend static|c10d"},
       std::nullopt,
       "static|c10d"},
  };
}

std::vector<ForeignOptions> PaddleVocabulary() {
  return {
      {Kind::kWithoutEffect, kNoParameterServer, {"--run-mode collective"}, std::nullopt, "collective"},
      {Kind::kRefused,
       kNoParameterServer,
       {"--servers ADDRESS,...", "--workers --trainers ADDRESS,...", "--server-num N", "--worker-num --trainer-num N"}},
      {Kind::kRefused, kNoPaddleElasticity, {"--elastic-level N", "--elastic-server ADDRESS"}},
      {Kind::kRefused, "it knows NVIDIA's GPUs, with --gpus", {"--xpus N,...", "--npus N,..."}},
  };
}

// Returns options of Open MPI's mpirun.
std::vector<ForeignOptions> OpenMpiVocabulary() {
  return {
      {Kind::kWithoutEffect, "ranks may outnumber the cores", {"--oversubscribe -oversubscribe"}},
      {Kind::kWithoutEffect, "root may start jobs", {"--allow-run-as-root -allow-run-as-root"}},
      {Kind::kWithoutEffect, "each line begins with its rank and stream", {"--tag-output -tag-output"}},
      {Kind::kRefused,
       "--binding core, numa or none says which cores a rank may run on",
       {"--bind-to -bind-to WHAT", "--report-bindings -report-bindings"}},
      {Kind::kRefused,
       "ranks fill the hosts in the order of -H; for mpirun to place them otherwise, give --binding-args \"--map-by "
       "node\"",
       {"--map-by -map-by WHAT", "--rank-by -rank-by WHAT"}},
      {Kind::kRefused, "give mpirun its parameters with --mpi-args \"--mca NAME VALUE\"", {"--mca -mca NAME VALUE"}},
  };
}

// Returns those options of Intel MPI's and MPICH's mpirun that rondarun recognizes.
std::vector<ForeignOptions> HydraVocabulary() {
  return {
      {Kind::kRefused,
       "-H says how many ranks each host takes, for example -H alpha:4,beta:4; without -H all are on this host",
       {"-ppn --ppn -perhost --perhost -npernode --npernode -N N", "-rr", "-grr N"}},
      {Kind::kRefused, "--hostfile takes a file with a line \"alpha slots=4\" for each host", {"-f -machinefile FILE"}},
      {Kind::kRefused,
       "-x NAME=VALUE gives the ranks a variable, and all others pass already",
       {"-genv NAME VALUE", "-env NAME VALUE", "-genvlist -envlist NAME,...", "-genvall", "-envall"}},
  };
}

OptionEffect Refuse(absl::string_view reason) {
  return [reason](const OptionUse& use) {
    return absl::InvalidArgumentError(absl::StrCat(use.name, " is not for rondarun: ", reason));
  };
}

// Returns an effect that accepts only values that ask for the default.
OptionEffect AcceptOnly(absl::string_view values, absl::string_view reason) {
  return [accepted = std::vector<std::string>(absl::StrSplit(values, '|')), reason](const OptionUse& use) {
    if (std::find(accepted.begin(), accepted.end(), use.value) != accepted.end()) return absl::OkStatus();
    return BadValue(use, absl::StrCat(absl::StrJoin(accepted, " or "), ", for ", reason, ": for example ", use.name,
                                      " ", accepted.front()));
  };
}

OptionEffect EffectOf(const ForeignOptions& foreign, CommandLineDraft* draft) {
  if (foreign.kind == Kind::kRefused) return Refuse(foreign.reason);
  if (!foreign.only_value.empty()) return AcceptOnly(foreign.only_value, foreign.reason);
  if (foreign.reason.empty()) return AlreadySo();
  return [form = foreign.form, note = NoteWithoutEffect(foreign.reason, draft)](const OptionUse& use) -> absl::Status {
    if (form) RONDA_RETURN_IF_ERROR(ParseNumber(use, *form).status());
    return note(use);
  };
}

void AppendForeign(const std::vector<ForeignOptions>& vocabulary, CommandLineDraft* draft, Options* all) {
  for (const ForeignOptions& foreign : vocabulary) {
    for (const absl::string_view spec : foreign.specs) {
      all->push_back(WithKind(foreign.kind, MakeOption(spec, "", EffectOf(foreign, draft))));
    }
  }
}

void AppendSection(absl::string_view title, Options options, Options* all) {
  for (Option& option : options) {
    option.section = title;
    all->push_back(std::move(option));
  }
}

std::vector<OptionConflict> Conflicts() {
  return {
      {{"-H", "--host"}, {"--hostfile"}, "both name the hosts; give one of them"},
      {{"-H"}, {"--host"}, "both name the hosts; give one of them"},
      {{"-np"}, {"--nproc-per-node"}, "one counts the ranks of the job, the other those of a node; give one of them"},
      {{"-np"},
       {"--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master", "--standalone"},
       "nodes that start their own ranks say how many with --nproc-per-node; for one rondarun that starts all ranks, "
       "give -np and -H"},
      {{"-H", "--hostfile"},
       {"--nproc-per-node", "--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master",
        "--standalone"},
       kHostsOrNodes},
      {{"--ips"}, {"--nnodes", "--node-rank"}, "the list of addresses says both; give one of them"},
      {{"--standalone"},
       {"--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master"},
       "a node alone needs none of the others; give one of them"},
      {{"--master"}, {"--master-addr", "--master-port"}, "both say where rank 0 listens; give one of them"},
      {{"--ips"}, {"--master-addr", "--master"}, "rank 0 is on the first of the addresses; give one of them"},
      {{"--binding", "--numa-binding"}, {"--binding-args"}, "both bind the ranks to cores; give one of them"},
      {{"--binding"}, {"--numa-binding"}, "both bind the ranks to cores; give one of them"},
      {{"--launch-agent"}, {"--ssh-port", "--ssh-identity-file"}, "the agent takes ssh's place; give one of them"},
      {{"--host-discovery-script"}, {"-H", "--host", "--hostfile"}, "both name the hosts; give one of them"},
      {{"--min-np", "--max-np", "--host-discovery-script"},
       {"--max-restarts"},
       "one goes on without the ranks that have died, the other starts all of them again; give one of them"},
      {{"--min-np", "--max-np", "--host-discovery-script"},
       {"--nproc-per-node", "--nnodes", "--node-rank", "--ips", "--master-addr", "--master-port", "--master",
        "--standalone"},
       "one rondarun looks after the ranks of all hosts; give -np, --min-np and -H"},
      {{"--min-np", "--max-np", "--host-discovery-script"},
       {"--mpi"},
       "MPI ends all ranks when one dies; leave --mpi out"},
      {{"--dry-run"}, {"--check"}, "each is to be done instead of the job; give one of them"},
  };
}

}  // namespace

OptionTable RondarunOptions(CommandLineDraft* draft) {
  constexpr absl::string_view kTunables = "Settings of the runtime; each replaces the variable in brackets";
  Options all;
  AppendSection("The job", JobOptions(draft), &all);
  AppendSection("Jobs that go on when ranks die", OptionsOfElasticJobs(draft), &all);
  AppendSection("Hosts", HostOptions(draft), &all);
  AppendSection("Nodes that start their own ranks, as with torchrun or Paddle", NodeOptions(draft), &all);
  AppendSection("Output", OutputOptions(draft), &all);
  AppendSection(kTunables, TunableOptions(draft), &all);
  AppendSection(kTunables, WaitingOptions(draft), &all);
  AppendSection("Questions", Questions(draft), &all);
  AppendForeign(HorovodVocabulary(), draft, &all);
  AppendForeign(TorchrunVocabulary(), draft, &all);
  AppendForeign(PaddleVocabulary(), draft, &all);
  AppendForeign(OpenMpiVocabulary(), draft, &all);
  AppendForeign(HydraVocabulary(), draft, &all);
  return OptionTable(std::move(all), Conflicts());
}

}  // namespace ronda
