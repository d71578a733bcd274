// SPDX-License-Identifier: Apache-2.0

#include "bench/collectives/measurement.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/harness/machine.h"
#include "bench/harness/statistics.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

// Returns the seconds that a block takes on the slowest rank.
double TimeBlock(const Block& block, int iterations, ProcessGroup* group) {
  group->Barrier();
  return group->Max(block(iterations));
}

// Returns the number of iterations per block. The first estimate runs only a few iterations, because many would take a
// slow implementation too long.
int Calibrate(const Block& block, const InterleavingOptions& options, ProcessGroup* group) {
  constexpr int kFew = 3;
  block(1);
  const int iterations = IterationsFor(TimeBlock(block, kFew, group) / kFew, options);
  // A fast implementation was still warming up during the first estimate, so that estimate of its time is too high.
  const int enough = std::min(iterations, 10 * kFew);
  return IterationsFor(TimeBlock(block, enough, group) / enough, options);
}

}  // namespace

LocalRanks::LocalRanks(std::unique_ptr<Implementation> implementation, int rank) : name_(implementation->name()) {
  members_.push_back({.implementation = std::move(implementation), .rank = rank});
}

LocalRanks::LocalRanks(std::string name, std::vector<std::unique_ptr<Implementation>> implementations)
    : name_(std::move(name)) {
  for (std::unique_ptr<Implementation>& implementation : implementations) {
    members_.push_back({.implementation = std::move(implementation), .rank = static_cast<int>(members_.size())});
  }
}

Implementation::Kind LocalRanks::kind() const {
  return members_.empty() ? Implementation::Kind::kRonda : members_.front().implementation->kind();
}

std::string LocalRanks::algorithm() const {
  return members_.empty() ? "" : members_.front().implementation->algorithm();
}

absl::StatusOr<bool> LocalRanks::Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) {
  shape_ = shape;
  bool is_able = true;
  for (Member& member : members_) {
    std::vector<AlignedBytes> memory;
    member.buffers = buffers;
    if (&member != &members_.front()) {
      memory.emplace_back(shape.bytes());
      if (buffers.input != buffers.output) memory.emplace_back(shape.bytes());
      member.buffers = {.input = memory.front().data(), .output = memory.back().data()};
    }
    const absl::StatusOr<bool> is_member_able = member.implementation->Prepare(shape, member.buffers);
    member.memory = std::move(memory);  // only now, because the previous case has used the previous memory until here
    RONDA_RETURN_IF_ERROR(is_member_able.status());
    is_able = is_able && *is_member_able;
  }
  return is_able;
}

void LocalRanks::Clear() {
  const size_t element = SizeOf(shape_.dtype);
  for (Member& member : members_) {
    std::fill_n(static_cast<char*>(member.buffers.input), shape_.input_count() * element, char{0});
    std::fill_n(static_cast<char*>(member.buffers.output), shape_.output_count() * element, char{0});
  }
}

double LocalRanks::Run(int times) {
  std::barrier all_are_ready(static_cast<std::ptrdiff_t>(members_.size()));
  std::atomic<double> slowest = 0;
  ForEach([&](Member& member) {
    all_are_ready.arrive_and_wait();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) member.implementation->Run();
    const std::chrono::duration<double> own = std::chrono::steady_clock::now() - start;
    double before = slowest;
    while (before < own.count() && !slowest.compare_exchange_weak(before, own.count())) {
    }
  });
  return slowest;
}

int64_t LocalRanks::CountWrong() {
  std::atomic<int64_t> wrong = 0;
  ForEach([&](Member& member) {
    FillOutput(shape_, member.buffers.output);
    if (shape_.op != OpType::kBroadcast || member.rank == 0) FillInput(shape_, member.rank, member.buffers.input);
    wrong += bench::CountWrong(shape_, member.rank, member.implementation->Run());
  });
  return wrong;
}

void LocalRanks::ForEach(absl::FunctionRef<void(Member& member)> body) {
  if (members_.size() == 1) return body(members_.front());
  std::vector<std::thread> threads;
  for (Member& member : members_) {
    threads.emplace_back([&member, body] {
      // A launcher that takes this process for a single rank may have bound it to one core.
      Bind(Binding::kNone, member.rank);
      body(member);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int IterationsFor(double seconds_each, const InterleavingOptions& options) {
  const double fitting = absl::ToDoubleSeconds(options.block_time) / std::max(seconds_each, 1e-9);
  return static_cast<int>(std::clamp(fitting, 2.0, static_cast<double>(std::max(2, options.max_iterations))));
}

std::vector<Timing> TimeInterleaved(const std::vector<Block>& blocks, const InterleavingOptions& options,
                                    ProcessGroup* group) {
  constexpr double kMicroseconds = 1e6;
  std::vector<Timing> timings(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    timings[i].iterations = options.iterations > 0 ? options.iterations : Calibrate(blocks[i], options, group);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    TimeBlock(blocks[i], options.warm_up >= 0 ? options.warm_up : timings[i].iterations, group);
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const double seconds = TimeBlock(blocks[i], timings[i].iterations, group);
      timings[i].microseconds.push_back(kMicroseconds * seconds / timings[i].iterations);
    }
  }
  return timings;
}

double AlgorithmBandwidth(const CollectiveCase& shape, double microseconds) {
  if (shape.op == OpType::kBarrier) return 0;
  constexpr double kBytesPerMicrosecond = 1e3;  // in a GB/s
  return static_cast<double>(shape.bytes()) / microseconds / kBytesPerMicrosecond;
}

std::vector<ResultRow> RowsOf(const CollectiveCase& shape, const std::vector<CaseOutcome>& outcomes) {
  std::vector<ResultRow> rows;
  for (const CaseOutcome& outcome : outcomes) {
    const Summary times = Summarize(outcome.timing.microseconds);
    const double algbw = AlgorithmBandwidth(shape, times.median);
    const bool is_peer = outcome.kind == Implementation::Kind::kPeer;
    ResultRow& row = rows.emplace_back();
    row = {{"op", Name(shape.op)},
           {"ranks", int64_t{shape.ranks}},
           {"bytes", static_cast<int64_t>(shape.op == OpType::kBarrier ? 0 : shape.bytes())},
           {"count", static_cast<int64_t>(shape.count)},
           {"dtype", Name(shape.dtype)},
           {"redop", TraitsOf(shape.op).reduces ? "sum" : "none"},
           {"placement", Name(shape.placement)},
           {"wire", is_peer ? "none" : Name(shape.wire)},
           {"contestant", outcome.implementation},
           {"kind", is_peer ? "peer" : "ronda"},
           {"algorithm", outcome.algorithm},
           {"iterations", int64_t{outcome.timing.iterations}},
           {"median_us", times.median},
           {"p10_us", times.p10},
           {"p90_us", times.p90},
           {"min_us", times.min},
           {"algbw_gbs", algbw},
           {"busbw_gbs", algbw * BusFactor(shape.op, shape.ranks)},
           {"wrong", outcome.wrong},
           {"rounds_us", outcome.timing.microseconds}};
    for (const CaseOutcome& other : outcomes) {
      if (is_peer || other.kind != Implementation::Kind::kPeer) continue;
      row.emplace_back("ratio_" + other.implementation,
                       MedianRatio(other.timing.microseconds, outcome.timing.microseconds));
    }
  }
  return rows;
}

std::string AverageBandwidths(const std::vector<ResultRow>& rows) {
  std::vector<std::pair<std::string, std::vector<double>>> bandwidths;  // in the order of the table
  for (const ResultRow& row : rows) {
    std::string name;
    double bandwidth = 0;
    for (const auto& [field, value] : row) {
      if (field == "contestant") name = std::get<std::string>(value);
      if (field == "busbw_gbs") bandwidth = std::get<double>(value);
    }
    if (bandwidth <= 0) continue;
    auto known =
        std::find_if(bandwidths.begin(), bandwidths.end(), [&](const auto& each) { return each.first == name; });
    if (known == bandwidths.end()) known = bandwidths.insert(known, {name, {}});
    known->second.push_back(bandwidth);
  }
  std::string text;
  for (const auto& [name, each] : bandwidths) {
    const double mean = std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    absl::StrAppend(&text, "# Avg bus bandwidth    : ", Fixed(mean, 3), "  ", name, "\n");
  }
  return text;
}

Table CollectivesTable(const std::vector<std::string>& peers) {
  using Column = Table::Column;
  std::vector<Column> columns = {{.title = "size", .width = 10, .field = "bytes"},
                                 {.title = "count", .width = 9, .field = "count"},
                                 {.title = "type", .width = 8, .field = "dtype"},
                                 {.title = "redop", .width = 5, .field = "redop"},
                                 {.title = "op", .width = 13, .align = Column::Align::kLeft, .field = "op"},
                                 {.title = "place", .width = 3, .field = "placement"},
                                 {.title = "wire", .width = 4, .field = "wire"},
                                 {.title = "by", .width = 12, .align = Column::Align::kLeft, .field = "contestant"},
                                 {.title = "time", .width = 10, .group = "us", .field = "median_us"},
                                 {.title = "p10", .width = 10, .group = "us", .field = "p10_us"},
                                 {.title = "p90", .width = 10, .group = "us", .field = "p90_us"},
                                 {.title = "algbw", .width = 7, .group = "GB/s", .field = "algbw_gbs"},
                                 {.title = "busbw", .width = 7, .group = "GB/s", .field = "busbw_gbs"},
                                 {.title = "#wrong", .field = "wrong"}};
  for (const std::string& peer : peers) {
    columns.push_back({.title = peer, .width = 7, .group = "times as long", .field = "ratio_" + peer});
  }
  return Table(std::move(columns));
}

}  // namespace ronda::bench
