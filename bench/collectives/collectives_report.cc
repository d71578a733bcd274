#include "bench/collectives/collectives_report.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/statistics.h"

namespace ronda::bench {
namespace {

using Column = Table::Column;

std::vector<Column> Columns(const std::vector<std::string>& peers) {
  std::vector<Column> columns = {{.title = "size", .width = 10},
                                 {.title = "count", .width = 9},
                                 {.title = "type", .width = 8},
                                 {.title = "redop", .width = 5},
                                 {.title = "op", .width = 13, .align = Column::Align::kLeft},
                                 {.title = "place", .width = 3},
                                 {.title = "wire", .width = 4},
                                 {.title = "by", .width = 12, .align = Column::Align::kLeft},
                                 {.title = "time", .width = 10, .group = "us"},
                                 {.title = "p10", .width = 10, .group = "us"},
                                 {.title = "p90", .width = 10, .group = "us"},
                                 {.title = "algbw", .width = 7, .group = "GB/s"},
                                 {.title = "busbw", .width = 7, .group = "GB/s"},
                                 {.title = "#wrong"}};
  for (const std::string& peer : peers) columns.push_back({.title = peer, .width = 7, .group = "times as long"});
  return columns;
}

const CaseOutcome* Find(const std::vector<CaseOutcome>& outcomes, const std::string& contestant) {
  for (const CaseOutcome& outcome : outcomes) {
    if (outcome.contestant == contestant) return &outcome;
  }
  return nullptr;
}

// How many times as long `peer` took; nullopt if there is nothing to compare.
std::optional<double> Ratio(const CaseOutcome& outcome, const CaseOutcome* peer) {
  if (peer == nullptr || outcome.kind == Contestant::Kind::kPeer) return std::nullopt;
  return MedianRatio(peer->turns.microseconds, outcome.turns.microseconds);
}

std::string OperatorName(const CollectiveCase& shape) { return IsReduction(shape.op) ? "sum" : "none"; }

}  // namespace

double AlgorithmBandwidth(const CollectiveCase& shape, double microseconds) {
  if (shape.op == OpType::kBarrier) return 0;
  constexpr double kBytesPerMicrosecond = 1e3;  // in a GB/s
  return static_cast<double>(shape.bytes()) / microseconds / kBytesPerMicrosecond;
}

CollectivesReport::CollectivesReport(std::vector<std::string> peers)
    : peers_(std::move(peers)), table_(Columns(peers_)) {}

std::string CollectivesReport::Lines(const CollectiveCase& shape, const std::vector<CaseOutcome>& outcomes) const {
  std::string lines;
  for (const CaseOutcome& outcome : outcomes) {
    const Summary times = Summarize(outcome.turns.microseconds);
    const double algbw = AlgorithmBandwidth(shape, times.median);
    const bool is_barrier = shape.op == OpType::kBarrier;
    std::vector<std::string> cells = {absl::StrCat(is_barrier ? 0 : shape.bytes()),
                                      absl::StrCat(shape.count),
                                      NameOf(shape.dtype),
                                      OperatorName(shape),
                                      ronda::Name(shape.op),
                                      bench::Name(shape.placement),
                                      outcome.kind == Contestant::Kind::kPeer ? "none" : ronda::Name(shape.wire),
                                      outcome.contestant,
                                      Fixed(times.median, 2),
                                      Fixed(times.p10, 2),
                                      Fixed(times.p90, 2),
                                      Fixed(algbw, 2),
                                      Fixed(algbw * BusFactor(shape.op, shape.ranks), 2),
                                      absl::StrCat(outcome.wrong)};
    for (const std::string& peer : peers_) {
      const std::optional<double> ratio = Ratio(outcome, Find(outcomes, peer));
      cells.push_back(ratio ? Fixed(*ratio, 2) : "");
    }
    absl::StrAppend(&lines, table_.Row(cells));
  }
  return lines;
}

std::vector<ResultRow> CollectivesReport::Rows(const CollectiveCase& shape,
                                               const std::vector<CaseOutcome>& outcomes) const {
  std::vector<ResultRow> rows;
  for (const CaseOutcome& outcome : outcomes) {
    const Summary times = Summarize(outcome.turns.microseconds);
    const double algbw = AlgorithmBandwidth(shape, times.median);
    const bool is_peer = outcome.kind == Contestant::Kind::kPeer;
    ResultRow row = {{"op", ronda::Name(shape.op)},
                     {"ranks", int64_t{shape.ranks}},
                     {"bytes", static_cast<int64_t>(shape.op == OpType::kBarrier ? 0 : shape.bytes())},
                     {"count", static_cast<int64_t>(shape.count)},
                     {"dtype", NameOf(shape.dtype)},
                     {"redop", OperatorName(shape)},
                     {"placement", bench::Name(shape.placement)},
                     {"wire", is_peer ? "none" : ronda::Name(shape.wire)},
                     {"contestant", outcome.contestant},
                     {"kind", is_peer ? "peer" : "ronda"},
                     {"algorithm", outcome.algorithm},
                     {"iterations", int64_t{outcome.turns.iterations}},
                     {"median_us", times.median},
                     {"p10_us", times.p10},
                     {"p90_us", times.p90},
                     {"min_us", times.min},
                     {"algbw_gbs", algbw},
                     {"busbw_gbs", algbw * BusFactor(shape.op, shape.ranks)},
                     {"wrong", outcome.wrong},
                     {"rounds_us", outcome.turns.microseconds}};
    for (const std::string& peer : peers_) {
      const std::optional<double> ratio = Ratio(outcome, Find(outcomes, peer));
      if (ratio) row.emplace_back("ratio_" + peer, *ratio);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ronda::bench
