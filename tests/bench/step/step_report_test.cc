// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/step/step_report.h"

namespace ronda::bench {
namespace {

TEST(StepFigures, ExposedIsWhatCommunicationAddsToTheStepThatOnlyComputes) {
  const StepFigures figures =
      FiguresOf({{110, 112, 130}, {111, 111, 111}, {90, 113, 114}}, {{100}, {99}, {101}}, Computes::kSomething);
  EXPECT_DOUBLE_EQ(figures.step, 112);
  EXPECT_DOUBLE_EQ(figures.exposed, 12);
  ASSERT_TRUE(figures.efficiency.has_value());
  EXPECT_DOUBLE_EQ(*figures.efficiency, 100.0 / 112);
}

TEST(StepFigures, OneSlowRoundDoesNotMoveTheMedian) {
  const StepFigures figures = FiguresOf({{10, 10}, {500, 500}, {10, 10}}, {{0}, {0}, {0}}, Computes::kNothing);
  EXPECT_DOUBLE_EQ(figures.step, 10);
  EXPECT_GT(figures.step_p90, 10);
}

TEST(StepFigures, SpreadIsThatOfAllSteps) {
  const StepFigures figures = FiguresOf({{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}}, {{0}}, Computes::kNothing);
  EXPECT_DOUBLE_EQ(figures.step_p10, 2);
  EXPECT_DOUBLE_EQ(figures.step_p90, 10);
}

TEST(StepFigures, WithoutComputationThereIsNoEfficiency) {
  const StepFigures figures = FiguresOf({{7}}, {{0.5}}, Computes::kNothing);
  EXPECT_FALSE(figures.efficiency.has_value());
  EXPECT_DOUBLE_EQ(figures.exposed, 6.5);
}

TEST(StepFigures, RatioIsAboveOneForTheFaster) {
  EXPECT_DOUBLE_EQ(RatioOf({{30}, {20}, {10}}, {{10}, {10}, {10}}), 2);
  EXPECT_DOUBLE_EQ(RatioOf({{5}}, {{10}}), 0.5);
}

using ::testing::HasSubstr;
using ::testing::Not;

ModelShapes Model() { return {.name = "tiny", .parameters = {{.name = "w", .shape = {1000, 1000}, .work = 1}}}; }

std::vector<Measured> MeasuredWith(double compute_ms) {
  std::vector<Measured> measured(4);
  measured[0] = {.name = "compute only", .steps = {{compute_ms, compute_ms}}};
  measured[1] = {.name = "ronda",
                 .setting = Setting{.fusion_threshold = 0, .wire = WireFormat::kFloat16},
                 .steps = {{12, 12}},
                 .control_messages = 3,
                 .wrong = 0};
  measured[2] = {.name = "openmpi per tensor", .steps = {{24, 24}}};
  measured[3] = {.name = "openmpi flat", .steps = {{18, 18}}, .wrong = 7};
  return measured;
}

std::optional<Value> Find(const ResultRow& row, const std::string& name) {
  for (const auto& [key, value] : row) {
    if (key == name) return value;
  }
  return std::nullopt;
}

double NumberIn(const ResultRow& row, const std::string& name) {
  const std::optional<Value> value = Find(row, name);
  if (!value.has_value() || !std::holds_alternative<double>(*value)) {
    ADD_FAILURE() << name << " is no number of this row";
    return 0;
  }
  return std::get<double>(*value);
}

TEST(StepReport, TableComparesWithTheFastestFormOfAPeer) {
  const ModelShapes model = Model();
  const std::string text = StepTable({.model = model, .compute = absl::Milliseconds(10), .ranks = 2}, MeasuredWith(10));
  EXPECT_THAT(text, HasSubstr("# tiny: 1 tensors, 1000000 elements, 4.0 MB of fp32; 2 ranks; backward pass of 10ms "
                              "(spin); ratio: step of \"openmpi flat\" over this one\n"));
  const auto row_of = [&](const std::string& name) {
    const size_t begin = text.find("\n " + name) + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_THAT(row_of("ronda"), HasSubstr("fp16"));
  EXPECT_THAT(row_of("ronda"), HasSubstr("12.000"));
  EXPECT_THAT(row_of("ronda"), HasSubstr("0.833"));                        // efficiency
  EXPECT_THAT(row_of("ronda"), HasSubstr("2.00      1.5   1.50      0"));  // wire MB, messages a step, ratio, wrong
  EXPECT_THAT(row_of("openmpi flat"), HasSubstr("18.000"));
  EXPECT_THAT(row_of("openmpi flat"), Not(HasSubstr("1.50")));
}

TEST(StepReport, WithoutComputationThereIsNoEfficiency) {
  const ModelShapes model = Model();
  const StepCase nothing = {.model = model, .compute = absl::ZeroDuration(), .ranks = 2};
  EXPECT_THAT(StepTable(nothing, MeasuredWith(0.001)), HasSubstr("backward pass of 0 (spin)"));
  for (const ResultRow& row : StepRows(nothing, MeasuredWith(0.001))) {
    EXPECT_FALSE(Find(row, "efficiency").has_value());
  }
}

TEST(StepReport, RowsHoldWhatTheTableShows) {
  const ModelShapes model = Model();
  const std::vector<ResultRow> rows =
      StepRows({.model = model, .compute = absl::Milliseconds(10), .ranks = 2}, MeasuredWith(10));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(Find(rows[1], "preset"), Value("tiny"));
  EXPECT_EQ(Find(rows[1], "contestant"), Value("ronda"));
  EXPECT_EQ(Find(rows[1], "wire_bytes"), Value(int64_t{2000000}));
  EXPECT_EQ(NumberIn(rows[1], "step_ms"), 12);
  EXPECT_EQ(NumberIn(rows[1], "compute_only_ms"), 10);
  EXPECT_EQ(NumberIn(rows[1], "exposed_ms"), 2);
  EXPECT_EQ(NumberIn(rows[1], "control_messages"), 1.5);
  EXPECT_EQ(NumberIn(rows[1], "ratio_openmpi_per_tensor"), 2);
  EXPECT_EQ(NumberIn(rows[1], "ratio_openmpi_flat"), 1.5);
  EXPECT_FALSE(Find(rows[2], "wire").has_value());
  EXPECT_FALSE(Find(rows[2], "ratio_openmpi_flat").has_value());
  EXPECT_EQ(Find(rows[3], "wrong"), Value(int64_t{7}));
}

}  // namespace
}  // namespace ronda::bench
