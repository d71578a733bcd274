#include "bench/step/figures.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ronda::bench
