#ifndef RONDA_BENCH_REPORT_FIGURE_H_
#define RONDA_BENCH_REPORT_FIGURE_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ronda::bench {

// What numbers on an axis are.
enum class Axis {
  kLinear,
  kLogarithmic,
  kLogarithmicBytes,  // labelled 64 KiB, 1 MiB
};

// Lines over a common axis: one a contestant.
struct LineChart {
  enum class Style { kLines, kSteps };  // kSteps: a histogram, whose points are where its bins begin
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;  // x ascends
  };

  std::string id;  // of its file
  std::string title;
  std::string x_label;
  std::string y_label;
  Axis x_axis = Axis::kLinear;
  Axis y_axis = Axis::kLinear;
  Style style = Style::kLines;
  std::vector<Series> series;
};

// A number for each pair of two settings; the smaller the better.
struct HeatMap {
  std::string id;
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<std::string> x_names;
  std::vector<std::string> y_names;
  std::vector<std::vector<double>> values;  // values[y][x]; NaN: was not measured
};

// What a total is made of, a bar a contestant.
struct StackedBars {
  struct Bar {
    std::string name;
    std::vector<double> parts;  // one for each of part_names; a part below 0 is drawn as none
  };

  std::string id;
  std::string title;
  std::string value_label;
  std::vector<std::string> part_names;
  std::vector<Bar> bars;
};

using Figure = std::variant<LineChart, HeatMap, StackedBars>;

inline const std::string& IdOf(const Figure& figure) {
  return std::visit([](const auto& any) -> const std::string& { return any.id; }, figure);
}
inline const std::string& TitleOf(const Figure& figure) {
  return std::visit([](const auto& any) -> const std::string& { return any.title; }, figure);
}

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_FIGURE_H_
