// SPDX-License-Identifier: Apache-2.0

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/model_shapes.h"
#include "bench/harness/results.h"
#include "bench/model/predictions.h"

namespace ronda::bench {
namespace {

struct ModelOptions {
  model::SweepOptions sweep;
  absl::Duration link_latency;
  absl::Duration compute;     // zero: the assumed time of each model
  double host_gigabytes = 0;  // per second; 0: as measured
  Results::Files files;
};

void AddFlags(Flags* flags, ModelOptions* options) {
  const IntegerRange any = {.min = 1, .max = 1 << 20};
  flags->Add(
      {.names = {"--models"}, .value = "LIST", .help = "Models: resnet50,bert-large by default; all: every preset."},
      ChoiceList(&options->sweep.models, PresetNames()));
  flags->Add({.names = {"--gbit"}, .value = "LIST", .help = "Gbit/s of a host's port to the network: 25,100,400."},
             IntegerList(&options->sweep.gbit, any));
  flags->Add({.names = {"--link-gbit"},
              .value = "GBIT/S",
              .help = "Instead of --gbit: the measured rate, each way, of large messages that go both ways at once\n"
                      "over a link that the ranks' CPUs drive (TCP); in decimals."},
             Number(&options->sweep.link.gbit));
  flags->Add({.names = {"--link-latency"}, .value = "TIME", .help = "Of a small message on that link (0)."},
             Duration(&options->link_latency));
  flags->Add({.names = {"--ranks"}, .value = "LIST", .help = "Numbers of ranks: 8,64,512,4096,16384."},
             IntegerList(&options->sweep.ranks, any));
  flags->Add({.names = {"--local-size"}, .value = "N", .help = "Ranks a host: 8."},
             Integer(&options->sweep.local_size, any));
  flags->Add({.names = {"--compute"},
              .value = "TIME",
              .help = "Forward and backward pass of a step: 300ms for bert-large, 150ms for others."},
             Duration(&options->compute));
  flags->Add({.names = {"--host-gigabytes"},
              .value = "GB/S",
              .help = "Bandwidth between ranks of a host: as measured with two ranks over shared memory, 9.3."},
             Number(&options->host_gigabytes));
  AddFileFlags(flags, &options->files);
}

std::string Percent(double fraction) { return Fixed(100 * fraction, 0); }

void PrintPublished() {
  std::printf(
      "# Horovod on 4 P100 a host, 25 Gbit/s: scaling efficiency in percent, published and by the model. C: a "
      "constant\n"
      "# of the model was calibrated with this figure. The last columns are Ronda's algorithms on the same hosts.\n");
  std::vector<Table::Column> columns = {{.title = "model", .width = 10, .align = Table::Column::Align::kLeft},
                                        {.title = "GPUs", .width = 5},
                                        {.title = "published", .width = 9}};
  for (const model::Runtime runtime : model::kRuntimes) {
    columns.push_back({.title = model::Name(runtime)});
  }
  const Table table(std::move(columns));
  std::fputs(table.Header().c_str(), stdout);
  for (const model::PublishedPoint& point : model::PublishedPoints()) {
    const char* mark = point.use == model::PublishedPoint::Use::kCalibrates ? "C " : "";
    std::vector<std::string> cells = {point.model, absl::StrCat(point.gpus),
                                      absl::StrCat(mark, Percent(point.efficiency))};
    for (const model::Runtime runtime : model::kRuntimes) {
      cells.push_back(Percent(model::SimulatePublished(point, runtime).efficiency));
    }
    std::fputs(table.Row(cells).c_str(), stdout);
  }
}

Table SweepTable() {
  std::vector<Table::Column> columns = {{.title = "ranks", .width = 6}};
  for (const model::Variant& variant : model::Variants()) {
    columns.push_back({.title = variant.name, .width = 12, .group = variant.group});
  }
  return Table(std::move(columns));
}

void PrintSweep(const std::vector<model::SweepLine>& lines) {
  const Table table = SweepTable();
  std::string title;
  for (const model::SweepLine& line : lines) {
    const std::string next = absl::StrCat("\n# ", line.model, ", ", line.gbit,
                                          " Gbit/s a host: milliseconds a step (scaling efficiency in percent)\n");
    if (next != title) std::fputs((next + table.Header()).c_str(), stdout);
    title = next;
    std::vector<std::string> cells = {absl::StrCat(line.ranks)};
    for (const model::StepResult& result : line.results) {
      cells.push_back(absl::StrCat(Fixed(1e3 * result.step, 1), " (", Percent(result.efficiency), ")"));
    }
    std::fputs(table.Row(cells).c_str(), stdout);
  }
}

int RunModel(const std::vector<std::string>& words) {
  ModelOptions options;
  Flags flags("model", "Predicts training steps on clusters from measured and assumed constants (docs/scaling.md).");
  AddFlags(&flags, &options);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  options.sweep.compute = absl::ToDoubleSeconds(options.compute);
  options.sweep.link.latency = absl::ToDoubleSeconds(options.link_latency);
  options.sweep.host_bandwidth = options.host_gigabytes * 1e9;
  const absl::StatusOr<std::vector<model::SweepLine>> lines = model::Sweep(options.sweep);
  if (!lines.ok()) return Explain(lines.status());
  PrintPublished();
  PrintSweep(*lines);
  Results results("model", words);
  for (ResultRow& row : model::PublishedRows()) results.Add(std::move(row));
  for (ResultRow& row : model::SweepRows(*lines)) results.Add(std::move(row));
  const absl::Status written = results.Write(options.files);
  return written.ok() ? 0 : Explain(written);
}

}  // namespace

Command ModelCommand() {
  return {.name = "model", .summary = "predicts steps on clusters, from measured constants", .run = RunModel};
}

}  // namespace ronda::bench
