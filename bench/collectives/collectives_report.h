#ifndef RONDA_BENCH_COLLECTIVES_COLLECTIVES_REPORT_H_
#define RONDA_BENCH_COLLECTIVES_COLLECTIVES_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collectives/collective_case.h"
#include "bench/collectives/contestant.h"
#include "bench/results.h"
#include "bench/table.h"
#include "bench/turns.h"

namespace ronda::bench {

// How one contestant did in one case.
struct CaseOutcome {
  std::string contestant;
  Contestant::Kind kind = Contestant::Kind::kRonda;
  std::string algorithm;
  Turns turns;
  int64_t wrong = 0;  // elements, on all ranks
};

// Decimal gigabytes a second: the message's bytes over the time.
double AlgorithmBandwidth(const CollectiveCase& shape, double microseconds);

// The table of ronda-bench collectives: a line for each case and contestant, with a column for each peer that says how
// many times as long the peer took (the median of the rounds' ratios).
class CollectivesReport {
 public:
  // `peers`: the names of the contestants that are peers.
  explicit CollectivesReport(std::vector<std::string> peers);

  std::string Header() const { return table_.Header(); }

  // `outcomes` are of one case.
  std::string Lines(const CollectiveCase& shape, const std::vector<CaseOutcome>& outcomes) const;
  std::vector<ResultRow> Rows(const CollectiveCase& shape, const std::vector<CaseOutcome>& outcomes) const;

 private:
  const std::vector<std::string> peers_;
  const Table table_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_COLLECTIVES_REPORT_H_
