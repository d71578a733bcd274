#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/launch/option_effects.h"
#include "runtime/launch/option_tables.h"

namespace ronda {
namespace {

using Digits = NumberForm::Digits;

constexpr absl::string_view kMarksCycles = "a timeline always has its cycles marked";
constexpr absl::string_view kOwnSearch = "Ronda's autotune searches in a way of its own (docs/autotune.md)";
constexpr absl::string_view kBackendForAll = "one backend carries all operations; see --hierarchical-allreduce";
constexpr absl::string_view kNoLogTime =
    "the runtime's messages have no time; --prefix-output-with-timestamp shows when a line was printed";
constexpr absl::string_view kNoElasticity =
    "a job keeps its number of ranks; give -np N, and --max-restarts N to start it again after a failure";
constexpr absl::string_view kNoParameterServer =
    "there are no parameter servers; all ranks are alike, and -np N says how many";
constexpr absl::string_view kNoInterpreter =
    "it starts programs, and no Python of its own; write the whole command, for example python3 -m MODULE";
constexpr absl::string_view kNoOtherMeeting =
    "torchrun's stores are not used; ranks meet at --master-addr and --master-port";
constexpr absl::string_view kNoGloo =
    "Ronda does without Gloo; one host needs nothing, and on several --launcher mpirun starts the ranks";

// Options that all do as much.
struct Alike {
  std::vector<absl::string_view> names;
  absl::string_view value_name;
};

std::vector<Option> AllWith(OptionGroup group, const OptionEffect& effect, const std::vector<Alike>& alike) {
  std::vector<Option> options;
  for (const Alike& one : alike) options.push_back({group, one.names, one.value_name, "", effect});
  return options;
}

std::vector<Option> Ignored(const OptionEffect& effect, const std::vector<Alike>& alike) {
  return AllWith(OptionGroup::kWithoutEffect, effect, alike);
}

std::vector<Option> Refused(absl::string_view instead, const std::vector<Alike>& alike) {
  return AllWith(OptionGroup::kRefused, Refuse(instead), alike);
}

std::vector<std::vector<Option>> HorovodLists() {
  return {
      Ignored(WithoutEffect(kMarksCycles), {{{"--no-timeline-mark-cycles"}, ""}}),
      Ignored(WithoutEffect(kOwnSearch, {.what = "a number of samples", .example = "5", .max = 1e6}),
              {{{"--autotune-warmup-samples"}, "N"}, {{"--autotune-bayes-opt-max-samples"}, "N"}}),
      Ignored(WithoutEffect(kOwnSearch, {.what = "a number", .example = "0.8", .max = 1, .digits = Digits::kAny}),
              {{{"--autotune-gaussian-process-noise"}, "X"}}),
      Ignored(WithoutEffect(kBackendForAll),
              {{{"--hierarchical-allgather"}, ""}, {{"--no-hierarchical-allgather"}, ""}, {{"--torus-allreduce"}, ""}}),
      Ignored(
          WithoutEffect("Ronda uses NCCL in its own way", {.what = "a number of streams", .example = "1", .max = 64}),
          {{{"--num-nccl-streams"}, "N"}}),
      Ignored(WithoutEffect("--binding core gives each rank a core of its own"),
              {{{"--thread-affinity", "--ccl-bgt-affinity", "--mlsl-bgt-affinity"}, "N"}}),
      Ignored(WithoutEffect("Ronda calls MPI as the library allows"),
              {{{"--mpi-threads-disable"}, ""}, {{"--no-mpi-threads-disable"}, ""}}),
      Ignored(WithoutEffect(kNoLogTime), {{{"--log-with-timestamp", "--no-log-hide-timestamp"}, ""}}),
      Ignored(AlreadySo(), {{{"--log-without-timestamp", "--log-hide-timestamp"}, ""},
                            {{"--timeline-mark-cycles"}, ""},
                            {{"--no-torus-allreduce"}, ""},
                            {{"--disable-cache"}, ""}}),
      Refused(kNoGloo, {{{"--gloo"}, ""}, {{"--gloo-timeout-seconds"}, "S"}}),
      Refused("under LSF, start the job with mpirun, or name the hosts with -H", {{{"--jsrun"}, ""}}),
      Refused(kNoElasticity, {{{"--min-np", "--min-num-proc"}, "N"},
                              {{"--max-np", "--max-num-proc"}, "N"},
                              {{"--slots-per-host", "--slots"}, "N"},
                              {{"--elastic-timeout"}, "S"},
                              {{"--reset-limit"}, "N"},
                              {{"--blacklist-cooldown-range"}, "S"},
                              {{"--host-discovery-script"}, "FILE"}}),
  };
}

std::vector<std::vector<Option>> TorchrunLists() {
  return {
      Ignored(AlreadySo(), {{{"--no-python"}, ""}}),
      Ignored(WithoutEffect("rondarun looks after its ranks in its own way"), {{{"--monitor-interval"}, "S"},
                                                                               {{"--start-method"}, "NAME"},
                                                                               {{"--event-log-handler"}, "NAME"},
                                                                               {{"--logs-specs"}, "NAME"},
                                                                               {{"--role"}, "NAME"}}),
      Ignored(WithoutEffect("the lines of all ranks are shown; --redirects hides streams"),
              {{{"--local-ranks-filter"}, "N,..."}}),
      Ignored(WithoutEffect("a job has an id of its own"), {{{"--rdzv-id"}, "ID"}, {{"--job-id"}, "ID"}}),
      Ignored(WithoutEffect("--start-timeout says how long ranks wait for each other"), {{{"--rdzv-conf"}, "K=V,..."}}),
      Ignored(WithoutEffect("--network-interfaces says which address a host uses"),
              {{{"--local-addr"}, "ADDRESS"}, {{"--host"}, "ADDRESS"}}),
      Refused(kNoInterpreter, {{{"--module", "-m"}, ""}, {{"--run-path"}, ""}}),
  };
}

// What stands behind the meeting points that torchrun knows: two of its words are what rondarun does anyway.
Option RendezvousBackend() {
  return {OptionGroup::kWithoutEffect,
          {"--rdzv-backend"},
          "static|c10d",
          "",
          [](const OptionUse& use, CommandLineDraft*) -> absl::Status {
            if (use.value == "static" || use.value == "c10d") return absl::OkStatus();
            return BadValue(
                use, absl::StrCat("static or c10d, for ", kNoOtherMeeting, ": for example ", use.name, " static"));
          }};
}

Option RunMode() {
  return {OptionGroup::kWithoutEffect,
          {"--run-mode"},
          "collective",
          "",
          [](const OptionUse& use, CommandLineDraft*) -> absl::Status {
            if (use.value == "collective") return absl::OkStatus();
            return BadValue(
                use, absl::StrCat("collective, for ", kNoParameterServer, ": for example ", use.name, " collective"));
          }};
}

std::vector<std::vector<Option>> PaddleLists() {
  return {
      {RendezvousBackend(), RunMode()},
      Refused(kNoParameterServer, {{{"--servers"}, "ADDRESS,..."},
                                   {{"--workers", "--trainers"}, "ADDRESS,..."},
                                   {{"--server-num"}, "N"},
                                   {{"--worker-num", "--trainer-num"}, "N"}}),
      Refused(kNoElasticity, {{{"--elastic-level"}, "N"}, {{"--elastic-server"}, "ADDRESS"}}),
      Refused("it knows NVIDIA's GPUs, with --gpus", {{{"--xpus"}, "N,..."}, {{"--npus"}, "N,..."}}),
  };
}

}  // namespace

std::vector<Option> ForeignOptions() {
  std::vector<Option> all;
  for (std::vector<std::vector<Option>> (*lists)() : {HorovodLists, TorchrunLists, PaddleLists}) {
    for (std::vector<Option>& list : lists()) {
      for (Option& option : list) all.push_back(std::move(option));
    }
  }
  return all;
}

}  // namespace ronda
