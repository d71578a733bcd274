#include "bench/report/gnuplot.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "bench/report/palette.h"
#include "bench/report/scale.h"

namespace ronda::bench {
namespace {

// In single quotes nothing is special but the quote.
std::string Quoted(const std::string& text) { return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'"); }

std::string Number(double number) { return std::isfinite(number) ? absl::StrFormat("%.9g", number) : "NaN"; }

std::string Head(const std::string& title, const std::string& png) {
  return absl::StrCat("set terminal pngcairo noenhanced size 1100,620 font 'sans,11'\nset output ", Quoted(png),
                      "\nset title ", Quoted(title), "\nset encoding utf8\n");
}

std::string BytesTics(const LineChart& chart) {
  std::vector<double> numbers;
  for (const LineChart::Series& series : chart.series) {
    for (const auto& point : series.points) numbers.push_back(point.first);
  }
  std::string tics = "set xtics (";
  const char* separator = "";
  for (const Scale::Tick& tick : Scale(chart.x_axis, numbers).Ticks()) {
    absl::StrAppend(&tics, separator, Quoted(tick.label), " ", Number(tick.number));
    separator = ", ";
  }
  return tics + ")\n";
}

std::string AxesOf(const LineChart& chart) {
  std::string text = absl::StrCat("set xlabel ", Quoted(chart.x_label), "\nset ylabel ", Quoted(chart.y_label),
                                  "\nset grid\nset key below\nset format y '%g'\n");
  if (chart.x_axis != Axis::kLinear) absl::StrAppend(&text, "set logscale x\n");
  if (chart.y_axis != Axis::kLinear) absl::StrAppend(&text, "set logscale y\n");
  if (chart.x_axis == Axis::kLogarithmicBytes) absl::StrAppend(&text, BytesTics(chart));
  return text;
}

struct Script {
  const std::string& png;

  std::string operator()(const LineChart& chart) const {
    std::string text = Head(chart.title, png) + AxesOf(chart);
    std::string plot = "plot ";
    for (size_t i = 0; i < chart.series.size(); ++i) {
      absl::StrAppend(&text, "$series", i, " << EOD\n");
      for (const auto& [x, y] : chart.series[i].points) absl::StrAppend(&text, Number(x), " ", Number(y), "\n");
      absl::StrAppend(&text, "EOD\n");
      absl::StrAppend(&plot, i == 0 ? "" : ", ", "$series", i, " with ",
                      chart.style == LineChart::Style::kSteps ? "steps lw 2" : "linespoints lw 2 pt 7", " lc rgb ",
                      Quoted(ColorOf(i)), " dt ", static_cast<int>(DashOf(i)) + 1, " title ",
                      Quoted(chart.series[i].name));
    }
    return absl::StrCat(text, plot, "\n");
  }

  std::string operator()(const HeatMap& map) const {
    std::string text = absl::StrCat(Head(map.title, png), "set xlabel ", Quoted(map.x_label), "\nset ylabel ",
                                    Quoted(map.y_label), "\nunset key\nset yrange [*:*] reverse\n",
                                    "set palette defined (0 ", Quoted(HeatColor(0)), ", 1 ", Quoted(HeatColor(1)),
                                    ")\n", Names("xtics", map.x_names), Names("ytics", map.y_names), "$map << EOD\n");
    const auto [least, most] = Extremes(map);
    for (size_t y = 0; y < map.values.size(); ++y) {
      for (size_t x = 0; x < map.values[y].size(); ++x) {
        const double value = map.values[y][x];
        absl::StrAppend(&text, x, " ", y, " ", Number(value), " ", std::isfinite(value) ? Short(value) : "-", " ",
                        HeatOf(value, least, most) > 0.6 ? "0xffffff" : "0x222222", "\n");
      }
    }
    return absl::StrCat(text, "EOD\nplot $map using 1:2:3 with image, ",
                        "$map using 1:2:(stringcolumn(4)):5 with labels tc rgb variable\n");
  }

  std::string operator()(const StackedBars& bars) const {
    std::string text = absl::StrCat(Head(bars.title, png),
                                    "set style data histograms\nset style histogram rowstacked\nset boxwidth 0.7\n"
                                    "set style fill solid\nset grid y\nset key below\nset yrange [0:*]\n"
                                    "set xtics rotate by -25\nset ylabel ",
                                    Quoted(bars.value_label), "\n$bars << EOD\n");
    for (const StackedBars::Bar& bar : bars.bars) {
      absl::StrAppend(&text, "\"", absl::StrReplaceAll(bar.name, {{"\"", "'"}}), "\"");
      for (double part : bar.parts) absl::StrAppend(&text, " ", Number(std::max(0.0, part)));
      absl::StrAppend(&text, "\n");
    }
    absl::StrAppend(&text, "EOD\nplot ");
    for (size_t part = 0; part < bars.part_names.size(); ++part) {
      absl::StrAppend(&text, part == 0 ? "" : ", ", "$bars using ", part + 2, ":xtic(1) lc rgb ", Quoted(ColorOf(part)),
                      " title ", Quoted(bars.part_names[part]));
    }
    return text + "\n";
  }

 private:
  static std::string Names(const std::string& axis, const std::vector<std::string>& names) {
    std::string text = absl::StrCat("set ", axis, " (");
    for (size_t i = 0; i < names.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", Quoted(names[i]), " ", i);
    return text + ")\n";
  }
};

absl::Status RunGnuplot(const std::string& script) {
  std::string program = "gnuplot";
  std::string argument = script;
  char* const words[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, program.c_str(), nullptr, nullptr, words, environ) != 0) {
    return absl::NotFoundError("gnuplot is not installed (Debian's gnuplot-nox): there are no PNG files");
  }
  int status = 0;
  if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("gnuplot has failed on ", script));
}

}  // namespace

std::string GnuplotOf(const Figure& figure, const std::string& png) { return std::visit(Script{png}, figure); }

absl::Status DrawPngs(const std::vector<Figure>& figures, const std::string& directory) {
  const std::string script = directory + "/figure.gnuplot";
  absl::Status status;
  for (const Figure& figure : figures) {
    std::ofstream(script) << GnuplotOf(figure, absl::StrCat(directory, "/", IdOf(figure), ".png"));
    status = RunGnuplot(script);
    if (!status.ok()) break;
  }
  // What has failed stays to be looked at.
  if (!absl::IsInternal(status)) unlink(script.c_str());
  return status;
}

}  // namespace ronda::bench
