#include "bench/report/row_labels.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "bench/arguments.h"

namespace ronda::bench {
namespace {

constexpr const char* kSettings[] = {"fusion_threshold", "wire", "cycle_time_us", "backend", "lock"};

// As people write it; "" if the row has no such setting.
std::string SettingText(const RunRow& row, const std::string& field) {
  if (!row.Has(field)) return "";
  if (field == "fusion_threshold") {
    const double threshold = row.Number(field);
    return threshold == 0 ? FusionLabel(0) : "fusion " + FusionLabel(threshold);
  }
  if (field == "cycle_time_us") return absl::StrCat("cycle ", row.Number(field), " us");
  if (field == "lock") return "lock " + row.Text(field);
  if (field == "wire" && row.Text(field) == "none") return "fp32";
  return row.Text(field);
}

}  // namespace

std::string ContestantName(const RunRow& row) {
  const std::string contestant = row.Text("contestant");
  const std::string wire = row.Text("wire");
  // Layers of Ronda's go by their own names.
  const bool needs_owner = row.Text("kind") == "ronda" && contestant.rfind("ronda", 0) != 0;
  return absl::StrCat(needs_owner ? "ronda " : "", contestant, wire.empty() || wire == "none" ? "" : ", " + wire);
}

std::string CaseLabel(const RunRow& row) {
  const double compute = row.Number("compute_ms");
  return absl::StrCat(
      row.Text("preset"), ", ", row.Number("ranks"), " ranks, ",
      compute > 0 ? absl::StrCat(compute, " ms of backward (", row.Text("compute_kind"), ")") : "no computation");
}

std::string FusionLabel(double threshold) {
  return threshold == 0 ? "no fusion" : FormatSize(static_cast<size_t>(threshold));
}

ContestantLabels::ContestantLabels(const std::vector<RunRow>& rows) {
  for (const RunRow& row : rows) {
    for (const char* field : kSettings) {
      const std::string text = SettingText(row, field);
      if (!text.empty()) values_[field].insert(text);
    }
  }
}

bool ContestantLabels::Varies(const std::string& field) const {
  const auto found = values_.find(field);
  return found != values_.end() && found->second.size() > 1;
}

std::string ContestantLabels::Of(const RunRow& row) const {
  std::string label = row.Text("contestant");
  const char* separator = " ";
  for (const char* field : kSettings) {
    const std::string text = SettingText(row, field);
    if (text.empty() || !Varies(field)) continue;
    absl::StrAppend(&label, separator, text);
    separator = ", ";
  }
  return label;
}

}  // namespace ronda::bench
