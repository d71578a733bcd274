// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_REPORT_FIGURE_H_
#define RONDA_BENCH_REPORT_FIGURE_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ronda::bench {

// The numbers on an axis.
enum class Axis {
  kLinear,
  kLogarithmic,
  kLogarithmicBytes,  // labelled 64 KiB, 1 MiB
};

// Positions of numbers along an axis. Immutable.
class Scale {
 public:
  // An axis that has room for all of `numbers`; a linear one begins at 0 or below. A logarithmic axis ignores numbers
  // of 0 and less, and places them at its beginning.
  Scale(Axis axis, const std::vector<double>& numbers);

  // 0 at the beginning of the axis, 1 at its end.
  double Position(double number) const;

  struct Tick {
    double number;
    std::string label;
  };
  // A handful, ascending.
  std::vector<Tick> Ticks() const;

 private:
  std::vector<double> TickNumbers() const;

  const Axis axis_;
  double low_ = 0;
  double high_ = 1;
};

// A number with three significant digits: "0.00123", "12.3", "1.23e+06"; between 1,000 and a million all of its digits.
std::string Short(double number);

// Lines over a common axis: one for each implementation.
struct LineChart {
  enum class Style { kLines, kSteps };  // kSteps: a histogram, whose points are the beginnings of its bins
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;  // x ascends
  };

  std::string id;  // the name of its file, without ".svg"
  std::string title;
  std::string x_label;
  std::string y_label;
  Axis x_axis = Axis::kLinear;
  Axis y_axis = Axis::kLinear;
  Style style = Style::kLines;
  std::vector<Series> series;
};

// The parts of a total: one bar for each implementation.
struct StackedBars {
  struct Bar {
    std::string name;
    std::vector<double> parts;  // one for each of part_names; a part below 0 is not drawn
  };

  std::string id;
  std::string title;
  std::string value_label;
  std::vector<std::string> part_names;
  std::vector<Bar> bars;
};

using Figure = std::variant<LineChart, StackedBars>;

inline const std::string& IdOf(const Figure& figure) {
  return std::visit([](const auto& any) -> const std::string& { return any.id; }, figure);
}

// The figure as an <svg> element: part of an HTML page, or the contents of a file. It has no background, and its colors
// are legible on light and on dark pages, also for people who are colorblind.
std::string SvgOf(const Figure& figure);

// `text` for HTML and XML.
std::string Escaped(const std::string& text);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_FIGURE_H_
