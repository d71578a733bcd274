#ifndef RONDA_BENCH_REPORT_SCALE_H_
#define RONDA_BENCH_REPORT_SCALE_H_

#include <string>
#include <vector>

#include "bench/report/figure.h"

namespace ronda::bench {

// Where numbers lie along an axis. Immutable.
class Scale {
 public:
  // An axis that has room for all of `numbers`; a linear one begins at 0 or below. Numbers that a logarithmic axis
  // cannot have (0 and less) are not looked at, and lie at its beginning.
  Scale(Axis axis, const std::vector<double>& numbers);

  // 0 at the beginning of the axis, 1 at its end.
  double Place(double number) const;

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

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_SCALE_H_
