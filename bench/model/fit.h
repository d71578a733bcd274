#ifndef RONDA_BENCH_MODEL_FIT_H_
#define RONDA_BENCH_MODEL_FIT_H_

#include <cstddef>
#include <vector>

namespace ronda::bench::model {

// A measured point, such as bytes and seconds.
struct Sample {
  double x = 0;
  double y = 0;
};

// y = alpha + beta x.
struct Line {
  double alpha = 0;
  double beta = 0;

  double At(double x) const { return alpha + beta * x; }
};

// The line with the least sum of squared *relative* errors, so that 4 bytes count as much as 64 MiB. Neither alpha nor
// beta is negative: times are not, nor do they fall with size.
// REQUIRES: two samples with different x, every y > 0.
Line FitLine(const std::vector<Sample>& samples);

// A line for each range of x, in rising order: caches and the protocols for small and for large messages each have a
// slope of their own (Kielmann, Bal and Verstoep, "Fast measurement of LogP parameters", 2000, let all parameters
// depend on the size for this reason).
class PiecewiseLine {
 public:
  struct Piece {
    double from = 0;  // the first begins at 0
    Line line;
  };

  // REQUIRES: at least one piece, `from` ascends.
  explicit PiecewiseLine(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}

  double At(double x) const;
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::vector<Piece> pieces_;
};

struct PiecewiseOptions {
  size_t most_pieces = 4;
  size_t samples_a_piece = 3;  // at least: two fit any line
};

// The pieces with the least sum of squared relative errors, found by trying all of them (dynamic programming). A piece
// begins half-way, on a logarithmic scale, between its first sample and the one before.
// REQUIRES: samples sorted by x, all x > 0 and different, all y > 0; enough of them for one piece.
PiecewiseLine FitPieces(const std::vector<Sample>& samples, const PiecewiseOptions& options);

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_FIT_H_
