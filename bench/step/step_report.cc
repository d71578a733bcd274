#include "bench/step/step_report.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "bench/arguments.h"
#include "bench/step/figures.h"
#include "bench/step/settings.h"
#include "bench/table.h"

namespace ronda::bench {
namespace {

constexpr double kMegabyte = 1e6;

StepFigures FiguresIn(const StepCase& step_case, const std::vector<Measured>& measured, const Measured& contestant) {
  return FiguresOf(contestant.steps, measured.front().steps,
                   step_case.compute == absl::ZeroDuration() ? Computes::kNothing : Computes::kSomething);
}

double ControlMessagesAStep(const Measured& contestant) {
  size_t steps = 0;
  for (const std::vector<double>& round : contestant.steps) steps += round.size();
  return static_cast<double>(contestant.control_messages) / static_cast<double>(steps);
}

bool IsPeer(const std::vector<Measured>& measured, const Measured& contestant) {
  return !contestant.setting.has_value() && &contestant != &measured.front();
}

// The peers' form with the smallest step time; nullptr if there is no peer.
const Measured* FastestPeer(const StepCase& step_case, const std::vector<Measured>& measured) {
  const Measured* fastest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Measured& contestant : measured) {
    if (!IsPeer(measured, contestant)) continue;
    const double step = FiguresIn(step_case, measured, contestant).step;
    if (step >= least) continue;
    least = step;
    fastest = &contestant;
  }
  return fastest;
}

Table TableOf() {
  using Align = Table::Column::Align;
  return Table({{.title = "contestant", .width = 19, .align = Align::kLeft},
                {.title = "fusion", .width = 8},
                {.title = "wire", .width = 8},
                {.title = "cycle", .width = 5},
                {.title = "backend", .width = 9},
                {.title = "lock"},
                {.title = "step ms", .width = 9},
                {.title = "p10", .width = 9},
                {.title = "p90", .width = 9},
                {.title = "exposed ms", .width = 9},
                {.title = "efficiency"},
                {.title = "wire MB", .width = 8},
                {.title = "messages"},
                {.title = "ratio", .width = 6},
                {.title = "#wrong"}});
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

std::vector<std::string> SettingCells(const Measured& contestant) {
  if (!contestant.setting.has_value()) return {"", "", "", "", ""};
  const Setting& setting = *contestant.setting;
  return {FormatSize(setting.fusion_threshold), Name(setting.wire), absl::FormatDuration(setting.cycle_time),
          Name(setting.backend), Name(setting.locking)};
}

std::vector<std::string> Cells(const StepCase& step_case, const std::vector<Measured>& measured,
                               const Measured& contestant, const Measured* fastest_peer) {
  const StepFigures figures = FiguresIn(step_case, measured, contestant);
  const bool is_rondas = contestant.setting.has_value();
  std::vector<std::string> cells = {contestant.name};
  for (std::string& cell : SettingCells(contestant)) cells.push_back(std::move(cell));
  for (double number : {figures.step, figures.step_p10, figures.step_p90, figures.exposed}) {
    cells.push_back(Fixed(number, 3));
  }
  cells.push_back(figures.efficiency.has_value() ? Fixed(*figures.efficiency, 3) : "-");
  cells.push_back(
      is_rondas ? Fixed(static_cast<double>(WireBytes(step_case.model, contestant.setting->wire)) / kMegabyte, 2) : "");
  cells.push_back(is_rondas ? Fixed(ControlMessagesAStep(contestant), 1) : "");
  cells.push_back(is_rondas && fastest_peer != nullptr ? Fixed(RatioOf(fastest_peer->steps, contestant.steps), 2) : "");
  cells.push_back(absl::StrCat(contestant.wrong));
  return cells;
}

void AppendCase(const StepCase& step_case, ResultRow* row) {
  row->emplace_back("preset", step_case.model.name);
  row->emplace_back("tensors", static_cast<int64_t>(step_case.model.parameters.size()));
  row->emplace_back("elements", step_case.model.count());
  row->emplace_back("bytes", static_cast<int64_t>(step_case.model.count() * sizeof(float)));
  row->emplace_back("ranks", static_cast<int64_t>(step_case.ranks));
  row->emplace_back("compute_ms", absl::ToDoubleMilliseconds(step_case.compute));
  row->emplace_back("compute_kind", std::string(Name(step_case.compute_kind)));
}

void AppendSetting(const StepCase& step_case, const Measured& contestant, ResultRow* row) {
  const Setting& setting = *contestant.setting;
  row->emplace_back("fusion_threshold", static_cast<int64_t>(setting.fusion_threshold));
  row->emplace_back("wire", std::string(Name(setting.wire)));
  row->emplace_back("cycle_time_us", absl::ToDoubleMicroseconds(setting.cycle_time));
  row->emplace_back("backend", Name(setting.backend));
  row->emplace_back("lock", std::string(Name(setting.locking)));
  row->emplace_back("wire_bytes", WireBytes(step_case.model, setting.wire));
  row->emplace_back("control_messages", ControlMessagesAStep(contestant));
}

void AppendRatios(const std::vector<Measured>& measured, const Measured& contestant, ResultRow* row) {
  for (const Measured& other : measured) {
    if (!IsPeer(measured, other)) continue;
    row->emplace_back(absl::StrCat("ratio_", absl::StrReplaceAll(other.name, {{" ", "_"}})),
                      RatioOf(other.steps, contestant.steps));
  }
}

}  // namespace

const char* Name(ComputeKind kind) {
  constexpr const char* kNames[] = {"spin", "sleep", "burn"};
  return kNames[static_cast<int>(kind)];
}

std::string StepTable(const StepCase& step_case, const std::vector<Measured>& measured) {
  const Measured* const fastest_peer = FastestPeer(step_case, measured);
  const Table table = TableOf();
  std::string text = absl::StrCat(HeadLine(step_case, fastest_peer), table.Header());
  for (const Measured& contestant : measured) {
    absl::StrAppend(&text, table.Row(Cells(step_case, measured, contestant, fastest_peer)));
  }
  return text;
}

std::vector<ResultRow> StepRows(const StepCase& step_case, const std::vector<Measured>& measured) {
  std::vector<ResultRow> rows;
  for (const Measured& contestant : measured) {
    const StepFigures figures = FiguresIn(step_case, measured, contestant);
    ResultRow& row = rows.emplace_back();
    AppendCase(step_case, &row);
    row.emplace_back("contestant", contestant.name);
    if (contestant.setting.has_value()) AppendSetting(step_case, contestant, &row);
    row.emplace_back("step_ms", figures.step);
    row.emplace_back("step_ms_p10", figures.step_p10);
    row.emplace_back("step_ms_p90", figures.step_p90);
    row.emplace_back("compute_only_ms", figures.step - figures.exposed);
    row.emplace_back("exposed_ms", figures.exposed);
    if (figures.efficiency.has_value()) row.emplace_back("efficiency", *figures.efficiency);
    if (contestant.setting.has_value()) AppendRatios(measured, contestant, &row);
    row.emplace_back("wrong", contestant.wrong);
  }
  return rows;
}

}  // namespace ronda::bench
