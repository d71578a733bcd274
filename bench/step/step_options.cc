#include "bench/step/step_options.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/backend.h"
#include "bench/shapes/presets.h"
#include "bench/shapes/shape_file.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda::bench {
namespace {

constexpr char kDescription[] =
    "Times the communication of training steps, without the training: the gradients of a model become ready one after\n"
    "the other, last layer first, and are averaged over the ranks through Ronda's client. Every combination of the\n"
    "settings is measured, in turns with the peers and with a step that only computes. What a step takes beyond that "
    "is\n"
    "exposed communication. Peers add up without dividing: one blocking call for each gradient, and one for all of "
    "them\n"
    "in a flat buffer, copies included.";

// A name for each value that an option can take.
template <typename T>
struct Names {
  std::vector<std::string> names;
  std::vector<T> values;

  T ValueOf(const std::string& name) const {
    return values[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
  }
};

Names<WireFormat> Wires() {
  Names<WireFormat> wires;
  for (int i = 0; i < kWireFormatCount; ++i) {
    wires.values.push_back(static_cast<WireFormat>(i));
    wires.names.push_back(Name(wires.values.back()));
  }
  return wires;
}

Names<ScheduleLocking> Lockings() { return {{"on", "off"}, {ScheduleLocking::kOn, ScheduleLocking::kOff}}; }

Names<ComputeKind> ComputeKinds() {
  return {{"spin", "sleep", "burn"}, {ComputeKind::kSpin, ComputeKind::kSleep, ComputeKind::kBurn}};
}

// Reads a list of names, each once or "all".
template <typename T>
Flags::Reader NamedList(std::vector<T>* values, Names<T> names) {
  return [values, names = std::move(names)](const std::string& text) {
    std::vector<std::string> words;
    RONDA_RETURN_IF_ERROR(ChoiceList(&words, names.names)(text));
    values->clear();
    for (const std::string& word : words) values->push_back(names.ValueOf(word));
    return absl::OkStatus();
  };
}

template <typename T>
Flags::Reader Named(T* value, Names<T> names) {
  return [value, names = std::move(names)](const std::string& text) {
    std::string word;
    RONDA_RETURN_IF_ERROR(Choice(&word, names.names)(text));
    *value = names.ValueOf(word);
    return absl::OkStatus();
  };
}

void AddModelFlags(StepOptions* options, Flags* flags) {
  flags->Add({.names = {"--preset"}, .value = "LIST", .help = "Models, or all (resnet50)."},
             ChoiceList(&options->presets, PresetNames()));
  flags->Add({.names = {"--shapes"},
              .value = "FILE",
              .help = "A model of your own instead: a line a tensor, in forward order, with its name and dimensions."},
             Text(&options->shapes_file));
  flags->Add(
      {.names = {"--compute"},
       .value = "LIST",
       .help = "How long the backward pass takes, such as 0,100ms (0). Spread over the tensors in proportion to\n"
               "their multiply-adds; for tensors from a file, to their size."},
      DurationList(&options->computes));
  flags->Add(
      {.names = {"--compute-kind"},
       .value = "KIND",
       .help = "spin (default): the trainer's thread keeps its core busy until that time has passed, as one that\n"
               "drives an accelerator. sleep: it leaves the core to others. burn: it uses so much CPU time, as\n"
               "one that computes on the CPU; what the communication uses comes on top."},
      Named(&options->compute_kind, ComputeKinds()));
}

void AddSweepFlags(Sweep* sweep, Flags* flags) {
  flags->Add({.names = {"--fusion"}, .value = "LIST", .help = "Fusion thresholds, such as 0,1MiB,64MiB (64MiB)."},
             SizeList(&sweep->fusion_thresholds));
  flags->Add({.names = {"--wire"}, .value = "LIST", .help = "Wire formats, or all (none)."},
             NamedList(&sweep->wires, Wires()));
  flags->Add({.names = {"--cycle-time"}, .value = "LIST", .help = "Cycle times, such as 0,1ms (0)."},
             DurationList(&sweep->cycle_times));
  AddBackendFlag(flags, "Backends", &sweep->backends);
  flags->Add({.names = {"--lock"},
              .value = "LIST",
              .help = "Whether repeated steps lock their schedule: on, off, or all (on)."},
             NamedList(&sweep->lockings, Lockings()));
}

void AddRepetitionFlags(StepOptions* options, Flags* flags) {
  constexpr IntegerRange kPositive = {.min = 1, .max = 1000000};
  flags->Add({.names = {"--rounds"}, .value = "N", .help = "How often each contestant has its turn (5)."},
             Integer(&options->rounds, kPositive));
  flags->Add({.names = {"--steps"}, .value = "N", .help = "Timed steps a turn (10)."},
             Integer(&options->steps, kPositive));
  flags->Add({.names = {"--warm-up"}, .value = "N", .help = "Steps before them (8)."},
             Integer(&options->warm_up, {.min = 0, .max = kPositive.max}));
}

}  // namespace

Flags StepFlags(StepOptions* options) {
  Flags flags("step", kDescription);
  AddModelFlags(options, &flags);
  AddSweepFlags(&options->sweep, &flags);
  AddRepetitionFlags(options, &flags);
  AddJobFlags(&flags, &options->job);
  return flags;
}

absl::StatusOr<std::vector<ModelShapes>> ModelsOf(const StepOptions& options) {
  std::vector<ModelShapes> models;
  if (!options.shapes_file.empty()) {
    RONDA_ASSIGN_OR_RETURN(models.emplace_back(), ReadShapes(options.shapes_file));
    return models;
  }
  for (const std::string& name : options.presets) {
    RONDA_ASSIGN_OR_RETURN(models.emplace_back(), PresetShapes(name));
  }
  return models;
}

}  // namespace ronda::bench
