// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness/arguments.h"
#include "bench/harness/results.h"
#include "bench/report/presentation.h"
#include "bench/report/run_document.h"
#include "bench/step/step_options.h"

namespace ronda::bench {
namespace {

std::string FusionText(double bytes) {
  return bytes == 0 ? "no fusion" : absl::StrCat("fusion ", FormatSize(static_cast<size_t>(bytes)));
}

std::string WireText(const std::string& wire) { return wire == "none" ? "fp32" : wire; }

// The rows of Ronda in one case of one run that differ by nothing but fusion and wire format. Thread-compatible.
class FusionSweep {
 public:
  // Rows that differ from the first one by other settings are left out.
  void Add(const RunRow& row) {
    const std::string others =
        absl::StrCat(row.Number("cycle_time_us"), " ", row.Text("backend"), " ", row.Text("lock"));
    if (others_.empty()) others_ = others;
    if (others != others_) return;
    const std::string wire = row.Text("wire");
    if (milliseconds_.insert({{row.Number("fusion_threshold"), wire}, row.Number("step_ms")}).second &&
        !HasWire(wire)) {
      wires_.push_back(wire);
    }
  }

  bool has_choice() const { return milliseconds_.size() > 1; }

  ReportTable Table(const std::string& name) const {
    ReportTable table = {.title = absl::StrCat("fusion x compression, ", name, ": ms of a step; ", Verdict()),
                         .header = {""}};
    for (const std::string& wire : wires_) table.header.push_back(WireText(wire));
    double last = -1;
    for (const auto& [setting, step] : milliseconds_) {
      if (setting.first == last) continue;
      last = setting.first;
      table.rows.push_back({FusionText(last)});
      for (const std::string& wire : wires_) table.rows.back().push_back(Cell({last, wire}));
    }
    return table;
  }

 private:
  using Key = std::pair<double, std::string>;  // fusion threshold, wire format

  static Key DefaultKey() {
    const Setting setting;
    return {static_cast<double>(setting.fusion_threshold), Name(setting.wire)};
  }

  bool HasWire(const std::string& wire) const {
    for (const std::string& known : wires_) {
      if (known == wire) return true;
    }
    return false;
  }

  Key Best() const {
    Key best = milliseconds_.begin()->first;
    for (const auto& [setting, step] : milliseconds_) {
      if (step < milliseconds_.at(best)) best = setting;
    }
    return best;
  }

  // How many times as fast as the default; "" if the run has not measured that.
  std::string Ratio(const Key& setting) const {
    const auto standard = milliseconds_.find(DefaultKey());
    if (standard == milliseconds_.end()) return "";
    return absl::StrCat(Fixed(standard->second / milliseconds_.at(setting), 2), "x");
  }

  std::string Verdict() const {
    const Key best = Best();
    const std::string ratio = Ratio(best);
    return absl::StrCat("best: ", FusionText(best.first), ", ", WireText(best.second), ", ",
                        ratio.empty() ? "the run has not measured the default" : ratio + " the speed of the default");
  }

  std::string Cell(const Key& setting) const {
    const auto found = milliseconds_.find(setting);
    if (found == milliseconds_.end()) return "";
    const std::string ratio = Ratio(setting);
    return absl::StrCat(Fixed(found->second, 2), ratio.empty() ? "" : ", ", ratio, setting == Best() ? ", best" : "",
                        setting == DefaultKey() ? ", default" : "");
  }

  std::string others_;                  // the other settings of all rows
  std::vector<std::string> wires_;      // in the order of the run
  std::map<Key, double> milliseconds_;  // of a step
};

}  // namespace

std::vector<ReportTable> SweepTables(const std::vector<RunDocument>& runs) {
  std::vector<ReportTable> tables;
  for (const RunDocument& run : runs) {
    if (run.command != "step") continue;
    std::vector<std::pair<std::string, FusionSweep>> sweeps;  // by case
    for (const RunRow& row : run.rows) {
      if (row.Text("wire").empty()) continue;  // a peer, or the computation alone
      const std::string label = CaseLabel(row);
      if (sweeps.empty() || sweeps.back().first != label) sweeps.emplace_back(label, FusionSweep());
      sweeps.back().second.Add(row);
    }
    const std::string noise = NoiseIn(run).empty() ? "" : ", spoilt by noise";
    for (const auto& [label, sweep] : sweeps) {
      if (sweep.has_choice()) tables.push_back(sweep.Table(absl::StrCat(label, " (", run.name, noise, ")")));
    }
  }
  return tables;
}

}  // namespace ronda::bench
