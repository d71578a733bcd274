#include "bench/report/svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "bench/report/palette.h"
#include "bench/report/scale.h"

namespace ronda::bench {
namespace {

constexpr double kWidth = 860;
constexpr double kLegendLine = 18;

// What is drawn in: pixels, from the upper left.
struct Area {
  double left = 70;
  double top = 34;
  double width = 760;
  double height = 300;

  double X(double place) const { return left + width * place; }
  double Y(double place) const { return top + height * (1 - place); }
  double bottom() const { return top + height; }
};

std::string DashAttribute(Dash dash) {
  constexpr const char* kAttributes[] = {"", " stroke-dasharray=\"9,4\"", " stroke-dasharray=\"2,3\"",
                                         " stroke-dasharray=\"9,3,2,3\""};
  return kAttributes[static_cast<int>(dash)];
}

enum class Anchor { kStart, kMiddle, kEnd };

// Puts an SVG document together. Thread-compatible.
class Canvas {
 public:
  explicit Canvas(double height) : height_(height) {}

  void Line(double x1, double y1, double x2, double y2, const std::string& color) {
    absl::StrAppendFormat(&body_, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2,
                          y2, color);
  }

  void Rectangle(double x, double y, double width, double height, const std::string& color) {
    absl::StrAppendFormat(&body_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
                          width, height, color);
  }

  void Text(double x, double y, const std::string& text, Anchor anchor, const std::string& color = "#222") {
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    absl::StrAppendFormat(&body_, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y,
                          kAnchors[static_cast<int>(anchor)], color, Escaped(text));
  }

  void TextUpwards(double x, double y, const std::string& text) {
    absl::StrAppendFormat(&body_,
                          "<text transform=\"translate(%.1f,%.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", x,
                          y, Escaped(text));
  }

  // As the line of the n-th series is drawn.
  void Polyline(const std::vector<std::pair<double, double>>& points, size_t index) {
    absl::StrAppend(&body_, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", ColorOf(index), "\"",
                    DashAttribute(DashOf(index)), " points=\"");
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
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n%s</svg>\n",
        kWidth, height_, kWidth, height_, body_);
  }

 private:
  const double height_;
  std::string body_;
};

void DrawTitle(const std::string& title, Canvas* canvas) { canvas->Text(kWidth / 2, 20, title, Anchor::kMiddle); }

void DrawXAxis(const Scale& scale, const std::string& label, const Area& area, Canvas* canvas) {
  for (const Scale::Tick& tick : scale.Ticks()) {
    const double x = area.X(scale.Place(tick.number));
    canvas->Line(x, area.top, x, area.bottom(), "#e4e4e4");
    canvas->Text(x, area.bottom() + 16, tick.label, Anchor::kMiddle);
  }
  canvas->Text(area.X(0.5), area.bottom() + 34, label, Anchor::kMiddle);
}

void DrawYAxis(const Scale& scale, const std::string& label, const Area& area, Canvas* canvas) {
  for (const Scale::Tick& tick : scale.Ticks()) {
    const double y = area.Y(scale.Place(tick.number));
    canvas->Line(area.left, y, area.X(1), y, "#e4e4e4");
    canvas->Text(area.left - 6, y + 4, tick.label, Anchor::kEnd);
  }
  canvas->TextUpwards(16, area.Y(0.5), label);
}

// What stands before a name: what it is the name of.
enum class Sample { kLine, kBox };

void DrawLegend(const std::vector<std::string>& names, Sample sample, double top, Canvas* canvas) {
  for (size_t i = 0; i < names.size(); ++i) {
    const double y = top + kLegendLine * static_cast<double>(i);
    if (sample == Sample::kBox) canvas->Rectangle(80, y - 9, 14, 10, ColorOf(i));
    if (sample == Sample::kLine) canvas->Polyline({{60, y - 4}, {94, y - 4}}, i);
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
    const double left = area.X(x.Place(point.first));
    if (style == LineChart::Style::kSteps && !corners.empty()) corners.emplace_back(left, corners.back().second);
    corners.emplace_back(left, area.Y(y.Place(point.second)));
  }
  return corners;
}

struct Draw {
  std::string operator()(const LineChart& chart) const {
    const Area area;
    const double legend = area.bottom() + 58;
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
        canvas.Dot(area.X(x.Place(point.first)), area.Y(y.Place(point.second)), color,
                   absl::StrCat(series.name, ": ", Short(point.second)));
      }
    }
    DrawLegend(names, Sample::kLine, legend, &canvas);
    return canvas.Finish();
  }

  std::string operator()(const HeatMap& map) const {
    constexpr double kRow = 34;
    Area area = {.left = 110, .width = 700};
    area.height = kRow * static_cast<double>(map.y_names.size());
    Canvas canvas(area.bottom() + 50);
    DrawTitle(map.title, &canvas);
    const double cell = area.width / static_cast<double>(map.x_names.size());
    const auto [least, most] = Extremes(map);
    for (size_t y = 0; y < map.y_names.size(); ++y) {
      const double top = area.top + kRow * static_cast<double>(y);
      canvas.Text(area.left - 6, top + kRow / 2 + 4, map.y_names[y], Anchor::kEnd);
      for (size_t x = 0; x < map.x_names.size(); ++x) {
        DrawCell(map.values[y][x], HeatOf(map.values[y][x], least, most),
                 {.left = area.left + cell * static_cast<double>(x), .top = top, .width = cell, .height = kRow},
                 &canvas);
      }
    }
    for (size_t x = 0; x < map.x_names.size(); ++x) {
      canvas.Text(area.left + cell * (static_cast<double>(x) + 0.5), area.bottom() + 16, map.x_names[x],
                  Anchor::kMiddle);
    }
    canvas.Text(area.X(0.5), area.bottom() + 34, map.x_label, Anchor::kMiddle);
    canvas.TextUpwards(16, area.Y(0.5), map.y_label);
    return canvas.Finish();
  }

  std::string operator()(const StackedBars& bars) const {
    constexpr double kRow = 26;
    Area area = {.left = 250, .width = 560};
    area.height = kRow * static_cast<double>(bars.bars.size());
    const double legend = area.bottom() + 58;
    Canvas canvas(legend + kLegendLine * static_cast<double>(bars.part_names.size()));
    DrawTitle(bars.title, &canvas);
    std::vector<double> totals;
    for (const StackedBars::Bar& bar : bars.bars) totals.push_back(TotalOf(bar));
    const Scale scale(Axis::kLinear, totals);
    DrawXAxis(scale, bars.value_label, area, &canvas);
    for (size_t i = 0; i < bars.bars.size(); ++i) {
      const double top = area.top + kRow * static_cast<double>(i);
      canvas.Text(area.left - 6, top + kRow / 2 + 4, bars.bars[i].name, Anchor::kEnd);
      DrawBar(bars.bars[i], scale, {.left = area.left, .top = top + 4, .width = area.width, .height = kRow - 8},
              &canvas);
    }
    DrawLegend(bars.part_names, Sample::kBox, legend, &canvas);
    return canvas.Finish();
  }

 private:
  static void DrawCell(double value, double heat, const Area& cell, Canvas* canvas) {
    const std::string color = std::isfinite(value) ? HeatColor(heat) : "#ffffff";
    canvas->Rectangle(cell.left, cell.top, cell.width - 1, cell.height - 1, color);
    canvas->Text(cell.X(0.5), cell.Y(0.5) + 4, std::isfinite(value) ? Short(value) : "-", Anchor::kMiddle,
                 heat > 0.6 ? "#fff" : "#222");
  }

  static void DrawBar(const StackedBars::Bar& bar, const Scale& scale, const Area& area, Canvas* canvas) {
    double done = 0;
    for (size_t part = 0; part < bar.parts.size(); ++part) {
      const double end = done + std::max(0.0, bar.parts[part]);
      const double left = area.X(scale.Place(done));
      canvas->Rectangle(left, area.top, area.X(scale.Place(end)) - left, area.height, ColorOf(part));
      done = end;
    }
    canvas->Text(area.X(scale.Place(done)) + 4, area.top + area.height / 2 + 4, Short(done), Anchor::kStart);
  }
};

}  // namespace

std::string SvgOf(const Figure& figure) { return std::visit(Draw(), figure); }

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace ronda::bench
