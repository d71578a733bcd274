// SPDX-License-Identifier: Apache-2.0

#include "bench/report/figure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "bench/harness/arguments.h"

namespace ronda::bench {
namespace {

constexpr double kWidth = 860;
constexpr double kLegendLine = 18;
constexpr char kTextColor[] = "#6e7781";

// The color of the n-th implementation: one of seven, six of which are Okabe and Ito's; after that they repeat.
std::string ColorOf(size_t index) {
  constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c959f"};
  return kColors[index % std::size(kColors)];
}

// Lines of the same color differ by their dashes. There are four kinds; after that they repeat.
std::string DashOf(size_t index) {
  constexpr size_t kColorCount = 7;
  constexpr const char* kDashes[] = {"", "9,4", "2,3", "9,3,2,3"};
  const size_t kind = index / kColorCount % std::size(kDashes);
  return kind == 0 ? "" : absl::StrCat(" stroke-dasharray=\"", kDashes[kind], "\"");
}

// The smallest number of the form 1, 2 or 5 times a power of ten that is not below `number`.
double RoundUp(double number) {
  const double power = std::pow(10, std::floor(std::log10(number)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= number * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// The rectangle of a drawing, in pixels from the upper left.
struct Area {
  double left = 70;
  double top = 34;
  double width = 760;
  double height = 300;

  double X(double position) const { return left + width * position; }
  double Y(double position) const { return top + height * (1 - position); }
  double bottom() const { return top + height; }
};

enum class Anchor { kStart, kMiddle, kEnd };

// Puts an SVG document together. Thread-compatible.
class Canvas {
 public:
  explicit Canvas(double height) : height_(height) {}

  void GridLine(double x1, double y1, double x2, double y2) {
    absl::StrAppendFormat(&body_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#8c959f\" "
                          "stroke-opacity=\"0.3\"/>\n",
                          x1, y1, x2, y2);
  }

  void Rectangle(const Area& area, const std::string& color) {
    absl::StrAppendFormat(&body_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
                          area.left, area.top, area.width, area.height, color);
  }

  void Text(double x, double y, const std::string& text, Anchor anchor) {
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    absl::StrAppendFormat(&body_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                          kAnchors[static_cast<int>(anchor)], Escaped(text));
  }

  void TextUpwards(double x, double y, const std::string& text) {
    absl::StrAppendFormat(&body_,
                          "<text transform=\"translate(%.1f,%.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", x,
                          y, Escaped(text));
  }

  // The line of the n-th series.
  void Polyline(const std::vector<std::pair<double, double>>& points, size_t index) {
    absl::StrAppend(&body_, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", ColorOf(index), "\"", DashOf(index),
                    " points=\"");
    for (const auto& [x, y] : points) absl::StrAppendFormat(&body_, "%.1f,%.1f ", x, y);
    absl::StrAppend(&body_, "\"/>\n");
  }

  void Dot(double x, double y, const std::string& color, const std::string& hint) {
    absl::StrAppendFormat(&body_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>%s</title></circle>\n", x,
                          y, color, Escaped(hint));
  }

  std::string Finish() const {
    return absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
        "font-family=\"sans-serif\" font-size=\"13\" fill=\"%s\">\n%s</svg>\n",
        kWidth, height_, kWidth, height_, kTextColor, body_);
  }

 private:
  const double height_;
  std::string body_;
};

void DrawTitle(const std::string& title, Canvas* canvas) { canvas->Text(kWidth / 2, 20, title, Anchor::kMiddle); }

void DrawXAxis(const Scale& scale, const std::string& label, const Area& area, Canvas* canvas) {
  for (const Scale::Tick& tick : scale.Ticks()) {
    const double x = area.X(scale.Position(tick.number));
    canvas->GridLine(x, area.top, x, area.bottom());
    canvas->Text(x, area.bottom() + 18, tick.label, Anchor::kMiddle);
  }
  canvas->Text(area.X(0.5), area.bottom() + 38, label, Anchor::kMiddle);
}

void DrawYAxis(const Scale& scale, const std::string& label, const Area& area, Canvas* canvas) {
  for (const Scale::Tick& tick : scale.Ticks()) {
    const double y = area.Y(scale.Position(tick.number));
    canvas->GridLine(area.left, y, area.X(1), y);
    canvas->Text(area.left - 6, y + 4, tick.label, Anchor::kEnd);
  }
  canvas->TextUpwards(16, area.Y(0.5), label);
}

// The mark before a name in a legend.
enum class Sample { kLine, kBox };

void DrawLegend(const std::vector<std::string>& names, Sample sample, double top, Canvas* canvas) {
  for (size_t i = 0; i < names.size(); ++i) {
    const double y = top + kLegendLine * static_cast<double>(i);
    if (sample == Sample::kBox) {
      canvas->Rectangle({.left = 80, .top = y - 9, .width = 14, .height = 10}, ColorOf(i));
    } else {
      canvas->Polyline({{60, y - 4}, {94, y - 4}}, i);
    }
    canvas->Text(100, y, names[i], Anchor::kStart);
  }
}

template <typename Read>
std::vector<double> NumbersOf(const LineChart& chart, Read read) {
  std::vector<double> numbers;
  for (const LineChart::Series& series : chart.series) {
    for (const auto& point : series.points) numbers.push_back(read(point));
  }
  return numbers;
}

// The corners of the line through a series' points.
std::vector<std::pair<double, double>> Corners(const LineChart::Series& series, LineChart::Style style, const Scale& x,
                                               const Scale& y, const Area& area) {
  std::vector<std::pair<double, double>> corners;
  for (const auto& point : series.points) {
    const double left = area.X(x.Position(point.first));
    if (style == LineChart::Style::kSteps && !corners.empty()) corners.emplace_back(left, corners.back().second);
    corners.emplace_back(left, area.Y(y.Position(point.second)));
  }
  return corners;
}

std::string Draw(const LineChart& chart) {
  const Area area;
  const double legend = area.bottom() + 64;
  Canvas canvas(legend + kLegendLine * static_cast<double>(chart.series.size()));
  const Scale x(chart.x_axis, NumbersOf(chart, [](const auto& point) { return point.first; }));
  const Scale y(chart.y_axis, NumbersOf(chart, [](const auto& point) { return point.second; }));
  DrawTitle(chart.title, &canvas);
  DrawXAxis(x, chart.x_label, area, &canvas);
  DrawYAxis(y, chart.y_label, area, &canvas);
  std::vector<std::string> names;
  for (const LineChart::Series& series : chart.series) {
    const std::string color = ColorOf(names.size());
    canvas.Polyline(Corners(series, chart.style, x, y, area), names.size());
    names.push_back(series.name);
    if (chart.style == LineChart::Style::kSteps) continue;
    for (const auto& point : series.points) {
      canvas.Dot(area.X(x.Position(point.first)), area.Y(y.Position(point.second)), color,
                 absl::StrCat(series.name, ": ", Short(point.second)));
    }
  }
  DrawLegend(names, Sample::kLine, legend, &canvas);
  return canvas.Finish();
}

double TotalOf(const StackedBars::Bar& bar) {
  double total = 0;
  for (double part : bar.parts) total += std::max(0.0, part);
  return total;
}

void DrawBar(const StackedBars::Bar& bar, const Scale& scale, const Area& area, Canvas* canvas) {
  double done = 0;
  for (size_t part = 0; part < bar.parts.size(); ++part) {
    const double end = done + std::max(0.0, bar.parts[part]);
    Area rectangle = area;
    rectangle.left = area.X(scale.Position(done));
    rectangle.width = area.X(scale.Position(end)) - rectangle.left;
    canvas->Rectangle(rectangle, ColorOf(part));
    done = end;
  }
  canvas->Text(area.X(scale.Position(done)) + 4, area.top + area.height / 2 + 4, Short(done), Anchor::kStart);
}

std::string Draw(const StackedBars& bars) {
  constexpr double kRow = 26;
  Area area = {.left = 250, .width = 560};
  area.height = kRow * static_cast<double>(bars.bars.size());
  const double legend = area.bottom() + 64;
  Canvas canvas(legend + kLegendLine * static_cast<double>(bars.part_names.size()));
  DrawTitle(bars.title, &canvas);
  std::vector<double> totals;
  for (const StackedBars::Bar& bar : bars.bars) totals.push_back(TotalOf(bar));
  const Scale scale(Axis::kLinear, totals);
  DrawXAxis(scale, bars.value_label, area, &canvas);
  for (size_t i = 0; i < bars.bars.size(); ++i) {
    const double top = area.top + kRow * static_cast<double>(i);
    canvas.Text(area.left - 6, top + kRow / 2 + 4, bars.bars[i].name, Anchor::kEnd);
    DrawBar(bars.bars[i], scale, {.left = area.left, .top = top + 4, .width = area.width, .height = kRow - 8}, &canvas);
  }
  DrawLegend(bars.part_names, Sample::kBox, legend, &canvas);
  return canvas.Finish();
}

}  // namespace

Scale::Scale(Axis axis, const std::vector<double>& numbers) : axis_(axis) {
  double low = axis == Axis::kLinear ? 0 : std::numeric_limits<double>::infinity();
  double high = 0;
  for (double number : numbers) {
    if (!std::isfinite(number) || (axis != Axis::kLinear && number <= 0)) continue;
    low = std::min(low, number);
    high = std::max(high, number);
  }
  if (axis == Axis::kLinear) {
    low_ = low;
    high_ = high > low ? high : low + 1;
    return;
  }
  if (high == 0) low = high = 1;
  const double base = axis == Axis::kLogarithmic ? 10 : 4;
  low_ = std::pow(base, std::floor(std::log(low) / std::log(base) + 1e-9));
  high_ = std::pow(base, std::ceil(std::log(high) / std::log(base) - 1e-9));
  if (high_ <= low_) high_ = low_ * base;
}

double Scale::Position(double number) const {
  if (axis_ == Axis::kLinear) return (number - low_) / (high_ - low_);
  if (!(number > low_)) return 0;
  return std::log(number / low_) / std::log(high_ / low_);
}

std::vector<double> Scale::TickNumbers() const {
  constexpr double kIntervals = 6;
  std::vector<double> numbers;
  if (axis_ == Axis::kLinear) {
    const double step = RoundUp((high_ - low_) / kIntervals);
    for (double i = std::ceil(low_ / step); i * step <= high_ * (1 + 1e-9); ++i) numbers.push_back(i * step);
    return numbers;
  }
  const double base = axis_ == Axis::kLogarithmic ? 10 : 4;
  const double powers = std::round(std::log(high_ / low_) / std::log(base));
  const double each = std::max(1.0, std::ceil(powers / (2 * kIntervals)));
  for (double i = 0; i <= powers; i += each) numbers.push_back(low_ * std::pow(base, i));
  return numbers;
}

std::vector<Scale::Tick> Scale::Ticks() const {
  std::vector<Tick> ticks;
  for (double number : TickNumbers()) {
    const bool is_bytes = axis_ == Axis::kLogarithmicBytes;
    ticks.push_back({number, is_bytes ? FormatSize(static_cast<size_t>(std::llround(number))) : Short(number)});
  }
  return ticks;
}

std::string Short(double number) {
  constexpr double kLeastWithExponent = 1e6;
  const bool is_whole = std::abs(number) >= 1000 && std::abs(number) < kLeastWithExponent;
  return is_whole ? absl::StrFormat("%.0f", number) : absl::StrFormat("%.3g", number);
}

std::string SvgOf(const Figure& figure) {
  return std::visit([](const auto& any) { return Draw(any); }, figure);
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace ronda::bench
