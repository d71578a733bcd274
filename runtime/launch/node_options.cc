#include <signal.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/host_name.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/option_effects.h"
#include "runtime/launch/option_tables.h"

namespace ronda {
namespace {

using Binding = LaunchOptions::Binding;

constexpr int kMaxNodes = 65536;
constexpr int kMaxDevice = 1023;

// torchrun's nodes may be a range, which is for jobs that change their size.
absl::Status SetNodes(const OptionUse& use, CommandLineDraft* draft) {
  const NumberForm form = {.what = "a number of nodes", .example = "2", .min = 1, .max = kMaxNodes};
  const std::pair<absl::string_view, absl::string_view> range = absl::StrSplit(use.value, absl::MaxSplits(':', 1));
  const bool is_one_number = range.first == range.second;
  const std::string number = is_one_number ? std::string(range.first) : use.value;
  const auto nodes = ParseInteger({.name = use.name, .value = number}, form);
  if (!nodes.ok() && absl::StrContains(use.value, ':')) {
    return BadValue(use, "one number of nodes, for a job keeps its size: for example --nnodes 2");
  }
  RONDA_RETURN_IF_ERROR(nodes.status());
  draft->node.nodes = *nodes;
  return absl::OkStatus();
}

absl::StatusOr<int> CountGpus(const OptionUse& use, const ArgumentSources& sources) {
  const int gpus = sources.count_gpus();
  if (gpus > 0) return gpus;
  return absl::InvalidArgumentError(absl::StrCat(
      use.name, " ", use.value, ": there is no NVIDIA GPU on this host; give a number, for example ", use.name, " 2"));
}

absl::StatusOr<int> CountRanksPerNode(const OptionUse& use, const ArgumentSources& sources) {
  const int cores = std::min(sources.count_cores(), kMaxSlots);
  if (use.value == "cpu") return cores;
  if (use.value == "gpu") return CountGpus(use, sources);
  if (use.value == "auto") return sources.count_gpus() > 0 ? sources.count_gpus() : cores;
  return ParseInteger(use, {.what = "auto, cpu, gpu or a number of ranks", .example = "2", .min = 1, .max = kMaxSlots});
}

absl::Status SetRanksPerNode(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(draft->node.ranks_per_node, CountRanksPerNode(use, *draft->sources));
  return absl::OkStatus();
}

absl::Status SetMasterAddress(const OptionUse& use, CommandLineDraft* draft) {
  if (!IsHostName(use.value)) return BadValue(use, absl::StrCat("an address, for example ", use.name, " node0"));
  draft->node.master_address = use.value;
  return absl::OkStatus();
}

absl::Status SetMaster(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(const Endpoint master, ParseEndpoint(use));
  draft->node.master_address = master.address;
  draft->node.master_port = master.port;
  return absl::OkStatus();
}

absl::Status SetAddresses(const OptionUse& use, CommandLineDraft* draft) {
  const TextForm form = {.what = "the addresses of all hosts", .example = "10.0.0.1,10.0.0.2"};
  RONDA_ASSIGN_OR_RETURN(std::vector<std::string> addresses, ParseList(use, form));
  if (!std::all_of(addresses.begin(), addresses.end(), [](const std::string& host) { return IsHostName(host); })) {
    return BadValue(use, absl::StrCat(form.what, ", for example ", use.name, " ", form.example));
  }
  std::vector<std::string> sorted = addresses;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return BadValue(use, absl::StrCat("each host once, and ", *twice, " is there twice"));
  draft->node.addresses = std::move(addresses);
  return absl::OkStatus();
}

absl::Status SetDevices(const OptionUse& use, CommandLineDraft* draft) {
  const TextForm form = {.what = "numbers of GPUs separated by commas", .example = "0,1"};
  RONDA_ASSIGN_OR_RETURN(const std::vector<std::string> elements, ParseList(use, form));
  std::vector<int> devices;
  for (const std::string& element : elements) {
    const auto device =
        ParseInteger({.name = use.name, .value = element}, {.what = "GPUs", .example = "0,1", .max = kMaxDevice});
    if (!device.ok() || std::find(devices.begin(), devices.end(), *device) != devices.end()) {
      return BadValue(use, absl::StrCat("different numbers of GPUs, for example ", use.name, " 0,1"));
    }
    devices.push_back(*device);
  }
  draft->options.devices = std::move(devices);
  return absl::OkStatus();
}

absl::Status SetSignals(const OptionUse& use, CommandLineDraft* draft) {
  const WordForm<int> form = {{"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},   {"SIGHUP", SIGHUP},
                              {"SIGQUIT", SIGQUIT}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}};
  std::vector<int> signals;
  for (absl::string_view name : absl::StrSplit(use.value, ',')) {
    RONDA_ASSIGN_OR_RETURN(const int number, ParseWord({.name = use.name, .value = std::string(name)}, form));
    if (std::find(signals.begin(), signals.end(), number) == signals.end()) signals.push_back(number);
  }
  draft->options.signals_to_pass = std::move(signals);
  return absl::OkStatus();
}

std::vector<Option> PlaceOptions() {
  return {
      {OptionGroup::kNodes,
       {"--nproc-per-node"},
       "N|auto|cpu|gpu",
       "Start N ranks on this node, or one for each core or GPU\n(default: 1, or one for each of --gpus).",
       SetRanksPerNode},
      {OptionGroup::kNodes, {"--nnodes"}, "N", "So many nodes start ranks (default: 1).", SetNodes},
      {OptionGroup::kNodes,
       {"--node-rank", "--rank"},
       "N",
       "Which of them this one is, from 0. Rank 0 is on node 0.",
       StoreInteger([](auto* draft) -> auto& { return draft->node.node_rank; },
                    {.what = "a number of a node", .example = "0", .max = kMaxNodes - 1})},
      {OptionGroup::kNodes,
       {"--ips"},
       "ADDRESS,...",
       "All nodes' addresses (Paddle's): says their number, which one this\nis, and that rank 0 is on the first.",
       SetAddresses},
      {OptionGroup::kNodes,
       {"--gpus", "--devices"},
       "N,...",
       "The GPUs that ranks of this node get, one each.",
       SetDevices},
  };
}

std::vector<Option> MeetingOptions() {
  return {
      {OptionGroup::kNodes,
       {"--master-addr"},
       "ADDRESS",
       "Where rank 0 listens (default: 127.0.0.1).",
       SetMasterAddress},
      {OptionGroup::kNodes,
       {"--master-port"},
       "PORT",
       "And on which port (default: 29500).",
       StoreInteger(
           [](auto* draft) -> auto& { return draft->node.master_port; }, kPortForm)},
      {OptionGroup::kNodes,
       {"--master", "--rdzv-endpoint"},
       "HOST:PORT",
       "Both in one (Paddle's and torchrun's).",
       SetMaster},
      {OptionGroup::kNodes,
       {"--standalone"},
       "",
       "This node alone. This is the default.",
       Store(
           [](auto* draft) -> auto& { return draft->node.standalone; }, true)},
      {OptionGroup::kNodes,
       {"--signals-to-handle"},
       "NAME,...",
       "The signals that end the job\n(default: SIGINT,SIGTERM,SIGHUP).",
       SetSignals},
      {OptionGroup::kNodes,
       {"--numa-binding"},
       "node",
       "As --binding numa.",
       StoreWord(
           [](auto* draft) -> auto& { return draft->options.binding; }, WordForm<Binding>{{"node", Binding::kNuma}})},
  };
}

}  // namespace

std::vector<Option> NodeOptions() {
  std::vector<Option> all = PlaceOptions();
  for (Option& option : MeetingOptions()) all.push_back(std::move(option));
  return all;
}

}  // namespace ronda
