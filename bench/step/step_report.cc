// SPDX-License-Identifier: Apache-2.0

#include "bench/step/step_report.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "runtime/base/bytes_text.h"

namespace ronda::bench {
namespace {

double MedianOfRounds(const Rounds& rounds) {
  std::vector<double> medians;
  for (const std::vector<double>& round : rounds) medians.push_back(Median(round));
  return Median(medians);
}

std::vector<double> AllSorted(const Rounds& rounds) {
  std::vector<double> all;
  for (const std::vector<double>& round : rounds) all.insert(all.end(), round.begin(), round.end());
  std::sort(all.begin(), all.end());
  return all;
}

constexpr double kMegabyte = 1e6;

StepFigures FiguresIn(const StepCase& step_case, const std::vector<Measured>& measured,
                      const Measured& implementation) {
  return FiguresOf(implementation.steps, measured.front().steps,
                   step_case.compute == absl::ZeroDuration() ? Computes::kNothing : Computes::kSomething);
}

double ControlMessagesAStep(const Measured& implementation) {
  size_t steps = 0;
  for (const std::vector<double>& round : implementation.steps) steps += round.size();
  return static_cast<double>(implementation.control_messages) / static_cast<double>(steps);
}

bool IsPeer(const std::vector<Measured>& measured, const Measured& implementation) {
  return !implementation.setting.has_value() && &implementation != &measured.front();
}

// Of all measurements of peers, returns the one with the smallest step time; nullptr if there is no peer.
const Measured* FastestPeer(const StepCase& step_case, const std::vector<Measured>& measured) {
  const Measured* fastest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Measured& implementation : measured) {
    if (!IsPeer(measured, implementation)) continue;
    const double step = FiguresIn(step_case, measured, implementation).step;
    if (step >= least) continue;
    least = step;
    fastest = &implementation;
  }
  return fastest;
}

std::string RatioField(const Measured& peer) {
  return absl::StrCat("ratio_", absl::StrReplaceAll(peer.name, {{" ", "_"}}));
}

Table TableOf(const Measured* fastest_peer) {
  return Table({{.title = "implementation", .width = 19, .align = Table::Column::Align::kLeft, .field = "contestant"},
                {.title = "fusion", .width = 8, .field = "fusion"},
                {.title = "wire", .width = 8, .field = "wire"},
                {.title = "cycle", .width = 5, .field = "cycle"},
                {.title = "backend", .width = 9, .field = "backend"},
                {.title = "lock", .field = "lock"},
                {.title = "step ms", .width = 9, .field = "step_ms", .digits = 3},
                {.title = "p10", .width = 9, .field = "step_ms_p10", .digits = 3},
                {.title = "p90", .width = 9, .field = "step_ms_p90", .digits = 3},
                {.title = "exposed ms", .width = 9, .field = "exposed_ms", .digits = 3},
                {.title = "efficiency", .field = "efficiency", .digits = 3},
                {.title = "wire MB", .width = 8, .field = "wire_mb"},
                {.title = "messages", .field = "control_messages", .digits = 1},
                {.title = "ratio", .width = 6, .field = fastest_peer != nullptr ? RatioField(*fastest_peer) : ""},
                {.title = "#wrong", .field = "wrong"}});
}

std::string HeadLine(const StepCase& step_case, const Measured* fastest_peer) {
  std::string line =
      absl::StrFormat("\n# %s: %d tensors, %d elements, %.1f MB of fp32; %d ranks; backward pass of %s (%s)",
                      step_case.model.name, step_case.model.parameters.size(), step_case.model.count(),
                      static_cast<double>(step_case.model.count()) * sizeof(float) / kMegabyte, step_case.ranks,
                      absl::FormatDuration(step_case.compute), Name(step_case.compute_kind));
  if (fastest_peer != nullptr) absl::StrAppend(&line, "; ratio: step of \"", fastest_peer->name, "\" over this one");
  return line + "\n";
}

void AppendCase(const StepCase& step_case, ResultRow* row) {
  row->emplace_back("preset", step_case.model.name);
  row->emplace_back("tensors", static_cast<int64_t>(step_case.model.parameters.size()));
  row->emplace_back("elements", step_case.model.count());
  row->emplace_back("bytes", static_cast<int64_t>(step_case.model.count() * sizeof(float)));
  row->emplace_back("ranks", static_cast<int64_t>(step_case.ranks));
  row->emplace_back("compute_ms", absl::ToDoubleMilliseconds(step_case.compute));
  row->emplace_back("compute_kind", Name(step_case.compute_kind));
}

void AppendSetting(const StepCase& step_case, const Measured& implementation, ResultRow* row) {
  const Setting& setting = *implementation.setting;
  row->emplace_back("fusion_threshold", static_cast<int64_t>(setting.fusion_threshold));
  row->emplace_back("wire", Name(setting.wire));
  row->emplace_back("cycle_time_us", absl::ToDoubleMicroseconds(setting.cycle_time));
  row->emplace_back("backend", setting.backend);
  row->emplace_back("lock", Name(setting.locking));
  row->emplace_back("wire_bytes", WireBytes(step_case.model, setting.wire));
  row->emplace_back("control_messages", ControlMessagesAStep(implementation));
}

void AppendRatios(const std::vector<Measured>& measured, const Measured& implementation, ResultRow* row) {
  for (const Measured& other : measured) {
    if (!IsPeer(measured, other)) continue;
    row->emplace_back(RatioField(other), RatioOf(other.steps, implementation.steps));
  }
}

}  // namespace

StepFigures FiguresOf(const Rounds& steps, const Rounds& compute_only, Computes computes) {
  const std::vector<double> all = AllSorted(steps);
  const double compute = MedianOfRounds(compute_only);
  StepFigures figures;
  figures.step = MedianOfRounds(steps);
  figures.step_p10 = Quantile(all, 0.1);
  figures.step_p90 = Quantile(all, 0.9);
  figures.exposed = figures.step - compute;
  if (computes == Computes::kSomething) figures.efficiency = compute / figures.step;
  return figures;
}

double RatioOf(const Rounds& other, const Rounds& own) { return MedianOfRounds(other) / MedianOfRounds(own); }

std::string StepTable(const StepCase& step_case, const std::vector<Measured>& measured) {
  const Measured* const fastest_peer = FastestPeer(step_case, measured);
  const Table table = TableOf(fastest_peer);
  std::string text = absl::StrCat(HeadLine(step_case, fastest_peer), table.Header());
  std::vector<ResultRow> rows = StepRows(step_case, measured);
  for (size_t i = 0; i < rows.size(); ++i) {
    // The table shows the setting in human-readable form.
    if (const std::optional<Setting>& setting = measured[i].setting) {
      rows[i].emplace_back("fusion", BytesText(setting->fusion_threshold));
      rows[i].emplace_back("cycle", absl::FormatDuration(setting->cycle_time));
      rows[i].emplace_back("wire_mb", static_cast<double>(WireBytes(step_case.model, setting->wire)) / kMegabyte);
    }
    absl::StrAppend(&text, table.RowOf(rows[i]));
  }
  return text;
}

std::vector<ResultRow> StepRows(const StepCase& step_case, const std::vector<Measured>& measured) {
  std::vector<ResultRow> rows;
  for (const Measured& implementation : measured) {
    const StepFigures figures = FiguresIn(step_case, measured, implementation);
    ResultRow& row = rows.emplace_back();
    AppendCase(step_case, &row);
    row.emplace_back("contestant", implementation.name);
    if (implementation.setting.has_value()) AppendSetting(step_case, implementation, &row);
    row.emplace_back("step_ms", figures.step);
    row.emplace_back("step_ms_p10", figures.step_p10);
    row.emplace_back("step_ms_p90", figures.step_p90);
    row.emplace_back("compute_only_ms", figures.step - figures.exposed);
    row.emplace_back("exposed_ms", figures.exposed);
    if (figures.efficiency.has_value()) row.emplace_back("efficiency", *figures.efficiency);
    if (implementation.setting.has_value()) AppendRatios(measured, implementation, &row);
    row.emplace_back("wrong", implementation.wrong);
  }
  return rows;
}

}  // namespace ronda::bench
