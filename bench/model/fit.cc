#include "bench/model/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ronda::bench::model {
namespace {

double RelativeSquares(const Line& line, const std::vector<Sample>& samples) {
  double sum = 0;
  for (const Sample& sample : samples) {
    const double error = line.At(sample.x) / sample.y - 1;
    sum += error * error;
  }
  return sum;
}

// The line with the least error among those through the origin (kProportional) or level (kConstant).
enum class Shape { kProportional, kConstant };

Line FitShape(Shape shape, const std::vector<Sample>& samples) {
  double numerator = 0;
  double denominator = 0;
  for (const Sample& sample : samples) {
    const double basis = (shape == Shape::kProportional ? sample.x : 1) / sample.y;
    numerator += basis;
    denominator += basis * basis;
  }
  const double factor = numerator / denominator;
  return shape == Shape::kProportional ? Line{.alpha = 0, .beta = factor} : Line{.alpha = factor, .beta = 0};
}

// The best way to fit samples[0, i) by a number of pieces.
struct Partial {
  double error = std::numeric_limits<double>::infinity();
  std::vector<size_t> begins;
};

std::vector<Sample> Range(const std::vector<Sample>& samples, size_t begin, size_t end) {
  return {samples.begin() + static_cast<std::ptrdiff_t>(begin), samples.begin() + static_cast<std::ptrdiff_t>(end)};
}

// From the best fits of every prefix by some number of pieces, those by one piece more.
std::vector<Partial> AddPiece(const std::vector<Sample>& samples, const std::vector<Partial>& shorter, size_t least) {
  std::vector<Partial> longer(shorter.size());
  for (size_t end = least; end <= samples.size(); ++end) {
    for (size_t begin = 0; begin + least <= end; ++begin) {
      if (std::isinf(shorter[begin].error)) continue;
      const std::vector<Sample> piece = Range(samples, begin, end);
      const double error = shorter[begin].error + RelativeSquares(FitLine(piece), piece);
      if (error >= longer[end].error) continue;
      longer[end] = {.error = error, .begins = shorter[begin].begins};
      longer[end].begins.push_back(begin);
    }
  }
  return longer;
}

}  // namespace

Line FitLine(const std::vector<Sample>& samples) {
  // Minimises sum (alpha u + beta v - 1)^2 with u = 1 / y and v = x / y.
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
  for (const Sample& sample : samples) {
    const double inverse = 1 / sample.y;
    const double ratio = sample.x / sample.y;
    uu += inverse * inverse;
    uv += inverse * ratio;
    vv += ratio * ratio;
    u += inverse;
    v += ratio;
  }
  const double determinant = uu * vv - uv * uv;
  const Line line = {.alpha = (u * vv - v * uv) / determinant, .beta = (v * uu - u * uv) / determinant};
  if (line.alpha >= 0 && line.beta >= 0) return line;
  const Line constant = FitShape(Shape::kConstant, samples);
  const Line proportional = FitShape(Shape::kProportional, samples);
  return RelativeSquares(constant, samples) < RelativeSquares(proportional, samples) ? constant : proportional;
}

double PiecewiseLine::At(double x) const {
  const auto after = std::upper_bound(pieces_.begin() + 1, pieces_.end(), x,
                                      [](double value, const Piece& piece) { return value < piece.from; });
  return std::prev(after)->line.At(x);
}

PiecewiseLine FitPieces(const std::vector<Sample>& samples, const PiecewiseOptions& options) {
  std::vector<Partial> partial(samples.size() + 1);
  partial[0].error = 0;
  Partial best;
  for (size_t count = 1; count <= options.most_pieces; ++count) {
    partial = AddPiece(samples, partial, options.samples_a_piece);
    if (partial.back().error < best.error) best = partial.back();
  }
  std::vector<PiecewiseLine::Piece> pieces;
  for (size_t i = 0; i < best.begins.size(); ++i) {
    const size_t begin = best.begins[i];
    const size_t end = i + 1 < best.begins.size() ? best.begins[i + 1] : samples.size();
    pieces.push_back({.from = begin == 0 ? 0 : std::sqrt(samples[begin - 1].x * samples[begin].x),
                      .line = FitLine(Range(samples, begin, end))});
  }
  return PiecewiseLine(std::move(pieces));
}

}  // namespace ronda::bench::model
