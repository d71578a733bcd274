// SPDX-License-Identifier: Apache-2.0

#include "bench/step/step_options.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/bytes_text.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda::bench {
namespace {

constexpr char kDescription[] =
    "Times the communication of training steps, without the training: the gradients of a model become ready one after\n"
    "the other, last layer first, and are averaged over the ranks through Ronda's client. Every combination of the\n"
    "settings is measured, interleaved with the peers and with a step that only computes. The time of a step beyond\n"
    "that one is exposed communication. Peers add up without dividing: one blocking call for each gradient, and one "
    "for all of "
    "them\n"
    "in a flat buffer, copies included.";

void AddModelFlags(StepOptions* options, Flags* flags) {
  flags->Add({.names = {"--preset"}, .value = "LIST", .help = "Models, or all (resnet50)."},
             ChoiceList(&options->presets, PresetNames()));
  flags->Add({.names = {"--shapes"},
              .value = "FILE",
              .help = "A model of your own instead: a line a tensor, in forward order, with its name and dimensions."},
             Text(&options->shapes_file));
  flags->Add({.names = {"--compute"},
              .value = "LIST",
              .help = "Length of the backward pass, such as 0,100ms (0). Spread over the tensors in proportion to\n"
                      "their multiply-adds; for tensors from a file, to their size."},
             DurationList(&options->computes));
  flags->Add(
      {.names = {"--compute-kind"},
       .value = "KIND",
       .help = "spin (default): the trainer's thread keeps its core busy until that time has passed, as one that\n"
               "drives an accelerator. sleep: it leaves the core to others. burn: it uses so much CPU time, as\n"
               "one that computes on the CPU; the CPU time of the communication comes on top."},
      Named(&options->compute_kind, {ComputeKind::kSpin, ComputeKind::kSleep, ComputeKind::kBurn}));
}

void AddSweepFlags(Sweep* sweep, Flags* flags) {
  flags->Add({.names = {"--fusion"}, .value = "LIST", .help = "Fusion thresholds, such as 0,1MiB,64MiB (64MiB)."},
             SizeList(&sweep->fusion_thresholds));
  flags->Add({.names = {"--wire"}, .value = "LIST", .help = "Wire formats, or all (none)."},
             NamedList(&sweep->wires, CaseRanges::Everything({}).wires));
  flags->Add({.names = {"--cycle-time"}, .value = "LIST", .help = "Cycle times, such as 0,1ms (0)."},
             DurationList(&sweep->cycle_times));
  AddBackendFlag(flags, "Backends", &sweep->backends);
  flags->Add({.names = {"--lock"},
              .value = "LIST",
              .help = "Whether repeated steps lock their schedule: on, off, or all (on)."},
             NamedList(&sweep->lockings, {ScheduleLocking::kOn, ScheduleLocking::kOff}));
}

void AddRepetitionFlags(StepOptions* options, Flags* flags) {
  constexpr IntegerRange kPositive = {.min = 1, .max = 1000000};
  flags->Add({.names = {"--rounds"}, .value = "N", .help = "Rounds of one block of steps of each implementation (5)."},
             Integer(&options->rounds, kPositive));
  flags->Add({.names = {"--steps"}, .value = "N", .help = "Timed steps of a block (10)."},
             Integer(&options->steps, kPositive));
  flags->Add({.names = {"--warm-up"}, .value = "N", .help = "Steps before them (8)."},
             Integer(&options->warm_up, {.min = 0, .max = kPositive.max}));
}

}  // namespace

std::string Name(const Setting& setting) {
  return absl::StrCat("ronda fusion=", BytesText(setting.fusion_threshold), " wire=", Name(setting.wire),
                      " cycle=", absl::FormatDuration(setting.cycle_time), " ", setting.backend,
                      " lock=", Name(setting.locking));
}

std::vector<Setting> AllSettings(const Sweep& sweep) {
  std::vector<Setting> settings;
  for (size_t fusion_threshold : sweep.fusion_thresholds) {
    for (WireFormat wire : sweep.wires) {
      for (absl::Duration cycle_time : sweep.cycle_times) {
        for (const std::string& backend : sweep.backends) {
          for (ScheduleLocking locking : sweep.lockings) {
            settings.push_back({fusion_threshold, wire, cycle_time, backend, locking});
          }
        }
      }
    }
  }
  return settings;
}

int64_t WireBytes(const ModelShapes& model, WireFormat wire) {
  const WireLayout layout = LayoutOf(DType::kFloat32, wire);
  const auto elements = static_cast<int64_t>(layout.granule_elements);
  int64_t granules = 0;
  for (const Parameter& parameter : model.parameters) granules += (parameter.count() + elements - 1) / elements;
  return granules * static_cast<int64_t>(layout.granule_bytes);
}

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
