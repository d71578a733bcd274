// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "programs/options/arguments.h"
#include "programs/options/hosts.h"
#include "programs/options/option_table.h"
#include "programs/options/shell_words.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr int kMaxNodes = 65536;
constexpr int kMaxDevice = 1023;
// The longest wait is a month. A longer wait is probably a typo.
constexpr double kMaxSeconds = 30 * 86400;

bool IsVariableName(absl::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name.front())) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

template <typename T>
void AddOnce(T value, std::vector<T>* list) {
  if (std::find(list->begin(), list->end(), value) == list->end()) list->push_back(std::move(value));
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

}  // namespace

bool SoundsSecret(absl::string_view name) {
  constexpr absl::string_view kSigns[] = {"SECRET", "TOKEN", "PASSWORD", "KEY"};
  const std::string upper = absl::AsciiStrToUpper(name);
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&](absl::string_view sign) { return absl::StrContains(upper, sign); });
}

// Sets the job's name. It must be short and plain, because users pass it to rondactl, and pages show it.
absl::Status SetName(const OptionUse& use, CommandLineDraft* draft) {
  constexpr size_t kMostCharacters = 64;
  const bool is_name =
      !use.value.empty() && use.value.size() <= kMostCharacters && use.value.front() != '-' &&
      std::all_of(use.value.begin(), use.value.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (!is_name) {
    return BadValue(use,
                    absl::StrCat("a name of up to ", kMostCharacters,
                                 " letters, digits and signs without blanks, for example ", use.name, " resnet50"));
  }
  draft->options.name = use.value;
  return absl::OkStatus();
}

absl::Status SetHosts(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(draft->options.hosts, ParseHosts(use.value));
  return absl::OkStatus();
}

// Parses the value of --host, which is either Open MPI's list of hosts, or Paddle's address of this host. Node options
// can be combined with the latter, but not with the former.
absl::Status SetHost(const OptionUse& use, CommandLineDraft* draft) {
  const bool is_ipv6 = std::count(use.value.begin(), use.value.end(), ':') > 1 && use.value.front() != '[';
  const bool is_list =
      use.value.empty() || absl::StrContains(use.value, ',') || (absl::StrContains(use.value, ':') && !is_ipv6);
  return is_list ? SetHosts(use, draft) : NoteWithoutEffect(kOwnAddress, draft)(use);
}

absl::Status SetHostFile(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(const std::string path, ParseText(use, {.what = "a file", .example = "hosts.txt"}));
  const auto content = draft->sources->read_file(path);
  if (!content.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(use.name, " ", content.status().message()));
  }
  RONDA_ASSIGN_OR_RETURN(draft->options.hosts, ParseHostFile(path, *content));
  return absl::OkStatus();
}

absl::Status SetInterfaces(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(draft->options.remote.network_interfaces,
                         ParseList(use, {.what = "interfaces separated by commas", .example = "eth0,eth1"}));
  draft->options.settings["RONDA_NETWORK_INTERFACE"] = use.value;
  return absl::OkStatus();
}

absl::Status SetElasticTimeout(const OptionUse& use, CommandLineDraft* draft) {
  const NumberForm form = {.what = "a number of seconds",
                           .example = "600",
                           .min = 0.1,
                           .max = kMaxSeconds,
                           .digits = NumberForm::Digits::kAny};
  RONDA_ASSIGN_OR_RETURN(const double seconds, ParseNumber(use, form));
  draft->elastic.timeout = absl::Seconds(seconds);
  return absl::OkStatus();
}

// Parses a range, which is two words on a command line and a list in a file.
absl::Status SetCooldownRange(const OptionUse& use, CommandLineDraft* draft) {
  const std::vector<std::string> words = absl::StrSplit(use.value, absl::ByAnyChar(" ,"), absl::SkipEmpty());
  const NumberForm form = {
      .what = "two numbers of seconds", .example = "10 100", .max = kMaxSeconds, .digits = NumberForm::Digits::kAny};
  if (words.size() != 2) return BadValue(use, absl::StrCat(form.what, ", for example ", use.name, " ", form.example));
  RONDA_ASSIGN_OR_RETURN(const double least, ParseNumber({.name = use.name, .value = words[0]}, form));
  RONDA_ASSIGN_OR_RETURN(const double most, ParseNumber({.name = use.name, .value = words[1]}, form));
  if (least > most) {
    return BadValue(use, absl::StrCat("the smaller number first, for example ", use.name, " ", form.example));
  }
  draft->elastic.cooldown = {absl::Seconds(least), absl::Seconds(most)};
  return absl::OkStatus();
}

absl::Status SetGracePeriod(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(
      const double seconds,
      ParseNumber(use,
                  {.what = "a number of seconds", .example = "10", .max = 86400, .digits = NumberForm::Digits::kAny}));
  draft->options.grace_period = absl::Seconds(seconds);
  return absl::OkStatus();
}

// Parses the value of -x. `-x NAME` passes the launcher's value of the variable NAME to the ranks; `-x NAME=VALUE`
// passes VALUE.
absl::Status ExportVariable(const OptionUse& use, CommandLineDraft* draft) {
  const size_t equals = use.value.find('=');
  const std::string name = use.value.substr(0, equals);
  if (!IsVariableName(name)) {
    // A malformed assignment may contain a secret, so the error shows only the text before "=".
    return BadValue({.name = use.name, .value = name},
                    absl::StrCat("NAME or NAME=VALUE, for example ", use.name, " PATH or ", use.name, " DEBUG=1"));
  }
  AddOnce(name, &draft->options.remote.exports);
  if (equals == std::string::npos) {
    draft->options.settings.erase(name);
    if (!draft->sources->variable(name)) {
      draft->options.notes.push_back(absl::StrCat(use.name, " ", name,
                                                  " has no effect: the variable is not set here; give ", use.name, " ",
                                                  name, "=VALUE, or export it"));
    }
    return absl::OkStatus();
  }
  draft->options.settings[name] = use.value.substr(equals + 1);
  if (SoundsSecret(name) && use.origin == OptionUse::Origin::kCommandLine) {
    draft->options.notes.push_back(absl::StrCat(use.name, " ", name,
                                                "=...: other users of this machine can read the value in the list of "
                                                "processes; export ",
                                                name, " instead, and give ", use.name, " ", name));
  }
  return absl::OkStatus();
}

// Parses a number of nodes, or torchrun's range MIN:MAX for jobs whose size changes.
absl::Status SetNodes(const OptionUse& use, CommandLineDraft* draft) {
  const NumberForm form = {.what = "a number of nodes, or MIN:MAX", .example = "2", .min = 1, .max = kMaxNodes};
  const size_t colon = use.value.find(':');
  const std::string least = use.value.substr(0, colon);
  const std::string most = colon == std::string::npos ? least : use.value.substr(colon + 1);
  const auto min_nodes = ParseInteger({.name = use.name, .value = least}, form);
  const auto max_nodes = ParseInteger({.name = use.name, .value = most}, form);
  if (!min_nodes.ok() || !max_nodes.ok()) return ParseInteger(use, form).status();
  if (*min_nodes > *max_nodes) {
    return BadValue(use, absl::StrCat("the smaller number first, for example ", use.name, " ", most, ":", least));
  }
  draft->node.nodes = *min_nodes;
  draft->node.max_nodes.reset();
  if (*min_nodes < *max_nodes) draft->node.max_nodes = *max_nodes;
  return absl::OkStatus();
}

absl::Status SetRanksPerNode(const OptionUse& use, CommandLineDraft* draft) {
  RONDA_ASSIGN_OR_RETURN(draft->node.ranks_per_node, CountRanksPerNode(use, *draft->sources));
  return absl::OkStatus();
}

absl::Status SetMasterAddress(const OptionUse& use, CommandLineDraft* draft) {
  if (SplitHost(use.value)) {
    return BadValue(use,
                    absl::StrCat("an address without a port, for example ", use.name, " node0 --master-port 29500"));
  }
  if (!IsHostName(use.value)) return BadValue(use, absl::StrCat("an address, for example ", use.name, " node0"));
  draft->node.master_address = use.value;
  return absl::OkStatus();
}

absl::Status SetMaster(const OptionUse& use, CommandLineDraft* draft) {
  const auto parts = SplitHost(use.value);
  int port = 0;
  if (!parts || !absl::SimpleAtoi(parts->second, &port) || port < 1 || port > 65535) {
    return BadValue(
        use, absl::StrCat("HOST:PORT, for example ", use.name, " node0:29500 or ", use.name, " [fd00::1]:29500"));
  }
  draft->node.master_address = std::string(parts->first);
  draft->node.master_port = port;
  draft->node.has_endpoint = true;
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

absl::Status SetMonitor(const OptionUse& use, CommandLineDraft* draft) {
  draft->options.monitor_port = 0;
  if (use.value.empty()) return absl::OkStatus();
  return IntegerInto(&draft->options.monitor_port, kPortForm)(use);
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

OptionEffect AddWords(std::vector<std::string>* list) {
  return [list](const OptionUse& use) -> absl::Status {
    const auto words = SplitShellWords(use.value);
    if (!words.ok() || words->empty()) {
      const absl::string_view why = words.ok() ? "is empty" : words.status().message();
      return BadValue(use, absl::StrCat("words as a shell takes them, and what was given ", why));
    }
    list->insert(list->end(), words->begin(), words->end());
    return absl::OkStatus();
  };
}

OptionEffect NoteWithoutEffect(absl::string_view reason, CommandLineDraft* draft) {
  return [reason, draft](const OptionUse& use) {
    draft->options.notes.push_back(absl::StrCat(use.name, " has no effect: ", reason));
    return absl::OkStatus();
  };
}

VariableText Mebibytes(NumberForm form) {
  return [form](const OptionUse& use) -> absl::StatusOr<std::string> {
    RONDA_ASSIGN_OR_RETURN(const double number, ParseNumber(use, form));
    if (number == std::floor(number)) return absl::StrCat(static_cast<int64_t>(number), "MiB");
    return absl::StrCat(std::llround(number * (1 << 20)));
  };
}

VariableText NumberWithUnit(NumberForm form, absl::string_view unit) {
  return [form, unit](const OptionUse& use) -> absl::StatusOr<std::string> {
    RONDA_ASSIGN_OR_RETURN(const int number, ParseInteger(use, form));
    return absl::StrCat(number, unit);
  };
}

VariableText DurationIn(absl::Duration unit, NumberForm form, std::optional<absl::Duration> zero) {
  return [unit, form, zero](const OptionUse& use) -> absl::StatusOr<std::string> {
    RONDA_ASSIGN_OR_RETURN(const double number, ParseNumber(use, form));
    return absl::FormatDuration(number == 0 && zero ? *zero : number * unit);
  };
}

}  // namespace ronda
