#ifndef RONDA_BENCH_LATENCY_HISTOGRAM_H_
#define RONDA_BENCH_LATENCY_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ronda::bench {

// How many values lie where, in steps that grow with the value: four to each doubling. Thread-compatible.
class Histogram {
 public:
  struct Bucket {
    double begin = 0;  // its smallest value; it ends where the next one begins
    double end = 0;
    int64_t count = 0;
  };

  // REQUIRES: value > 0.
  void Add(double value);

  // From the first to the last one that is not empty, ascending, without gaps.
  std::vector<Bucket> Buckets() const;

  // A line for each bucket that is not empty: where it begins and ends, its count, its part of all, and a bar as long
  // as that part. "..." stands for empty ones.
  std::string Text() const;

 private:
  std::vector<int64_t> counts_;
  int first_ = 0;  // the step of counts_[0]
  int64_t total_ = 0;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_LATENCY_HISTOGRAM_H_
