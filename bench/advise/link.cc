// SPDX-License-Identifier: Apache-2.0

#include "bench/advise/link.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/harness/job.h"
#include "bench/harness/launch.h"
#include "bench/harness/output.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "bench/model/costs.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr double kKiB = 1 << 10;
constexpr double kMiB = 1 << 20;
constexpr double kSizes[] = {4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB};
constexpr double kBlockSeconds = 0.3;  // of timed calls
constexpr double kSlowSeconds = 0.25;  // if a size takes this long, larger sizes are not measured
constexpr int kWarmUp = 6;             // calls until the schedule is locked again (RONDA_LOCK_AFTER) after another one

constexpr std::pair<const char*, Compression> kWires[] = {
    {"none", Compression::none}, {"fp16", Compression::fp16}, {"fp8_e4m3", Compression::fp8_e4m3}};

// Returns the largest size to measure: the first of kSizes after the smallest that is at least `bytes`, or else the
// last.
double LargestFor(double bytes) {
  const auto found = std::lower_bound(std::begin(kSizes) + 1, std::end(kSizes), bytes);
  return found == std::end(kSizes) ? std::end(kSizes)[-1] : *found;
}

double SecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double MaxOverRanks(double value) {
  ronda::allreduce(ronda::tensor("advise/max", &value), {Op::Max});
  return value;
}

// Times allreduces of one tensor across all ranks of the job. This process is one of the ranks.
class LinkTimer {
 public:
  explicit LinkTimer(double largest) : buffer_(static_cast<size_t>(largest) / sizeof(float), 1.0f) {}

  // Must be called on every rank. Returns a result row, which rank 0 sends to the process that started the ranks.
  ResultRow Time(const std::pair<const char*, Compression>& wire, double bytes) {
    const Tensor tensor = ronda::tensor(absl::StrCat("advise/", wire.first, "/", bytes), buffer_.data(),
                                        {static_cast<int64_t>(bytes / sizeof(float))});
    const AllreduceOptions options = {.op = Op::Average, .compression = wire.second};
    Run(tensor, options, kWarmUp - 1);
    const double once = MaxOverRanks(Run(tensor, options, 1).front());
    Run(tensor, options, kWarmUp);
    const double process = SecondsOf(CLOCK_PROCESS_CPUTIME_ID), begin = SecondsOf(CLOCK_MONOTONIC);
    const int calls = static_cast<int>(std::clamp(kBlockSeconds / once, 3.0, 1000.0));
    const std::vector<double> seconds = Run(tensor, options, calls);
    // `used` counts all threads, because a trainer thread that waits does the background thread's work.
    const double used = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - process;
    const double share = std::clamp(used / (SecondsOf(CLOCK_MONOTONIC) - begin), 0.0, 1.0);
    seconds_ = MaxOverRanks(Median(seconds));
    return {
        {"wire", std::string(wire.first)}, {"bytes", bytes}, {"seconds", seconds_}, {"cpu_share", MaxOverRanks(share)}};
  }

  // Returns the median allreduce time of the last Time() call on the slowest rank, in seconds.
  double seconds() const { return seconds_; }

 private:
  static std::vector<double> Run(const Tensor& tensor, const AllreduceOptions& options, int calls) {
    std::vector<double> seconds;
    for (int i = 0; i < calls; ++i) {
      const double begin = SecondsOf(CLOCK_MONOTONIC);
      ronda::allreduce(tensor, options);
      seconds.push_back(SecondsOf(CLOCK_MONOTONIC) - begin);
    }
    return seconds;
  }

  std::vector<float> buffer_;
  double seconds_ = 0;
};

void TimeAll(double largest, Output* output) {
  LinkTimer timer(largest);
  for (const auto& wire : kWires) {
    for (const double bytes : kSizes) {
      if (bytes > largest) break;
      output->Row(EncodeRow(timer.Time(wire, bytes)));
      if (timer.seconds() > kSlowSeconds) break;
    }
  }
}

template <typename T>
T FieldOf(const ResultRow& row, const std::string& name) {
  for (const auto& [field, value] : row) {
    if (field != name) continue;
    if (const T* const found = std::get_if<T>(&value)) return *found;
    if constexpr (std::is_same_v<T, double>) {
      if (const int64_t* const whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
    }
  }
  return {};
}

absl::StatusOr<std::vector<WireOnLink>> WiresOf(const std::vector<ResultRow>& rows, int members) {
  std::vector<WireOnLink> wires;
  for (const auto& [name, compression] : kWires) {
    std::vector<AllreduceCurve::Point> points;
    double cpu_share = 0;
    for (const ResultRow& row : rows) {
      if (FieldOf<std::string>(row, "wire") != name) continue;
      points.push_back({FieldOf<double>(row, "bytes"), FieldOf<double>(row, "seconds")});
      cpu_share = FieldOf<double>(row, "cpu_share");  // of the largest size, in which there is most to do
    }
    if (points.size() < 2) return absl::InternalError("the ranks that measure the link have sent no times");
    wires.push_back({.name = name, .curve = AllreduceCurve(std::move(points), members), .cpu_share = cpu_share});
  }
  return wires;
}

}  // namespace

absl::StatusOr<std::vector<WireOnLink>> MeasureLink(const LinkRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const LaunchCommand command,
                         PlanLaunch({.ranks = request.ranks,
                                     .command = {OwnProgram(), "advise", absl::StrCat(LargestFor(request.largest))},
                                     .options = request.rondarun_options},
                                    FindInstalledProgram()));
  std::vector<ResultRow> rows;
  RONDA_ASSIGN_OR_RETURN(const int exit_code, RunLaunch(command, [&](const OutputMessage& message) {
                           absl::StatusOr<ResultRow> row = DecodeRow(message.text);
                           if (message.kind == OutputMessage::Kind::kRow && row.ok()) rows.push_back(*std::move(row));
                         }));
  if (exit_code != 0) {
    return absl::InternalError(absl::StrCat("the ranks that measure the link failed with exit code ", exit_code));
  }
  return WiresOf(rows, request.members);
}

int RunAsLinkRank(const std::vector<std::string>& words) {
  double largest = 0;
  const std::optional<std::string> pipe = ProcessVariables()(kOutputVariable);
  if (words.size() != 1 || !absl::SimpleAtod(words.front(), &largest) || !pipe.has_value()) {
    return Explain(absl::InvalidArgumentError("advise starts its ranks itself: call it without a launcher"));
  }
  try {
    ronda::init();
    Output output(ronda::rank(), *pipe);
    TimeAll(largest, &output);
    ronda::shutdown();
  } catch (const std::exception& error) {
    return Explain(absl::InternalError(error.what()));
  }
  return 0;
}

std::vector<WireOnLink> LinkFromNumbers(const model::MeasuredLink& link, int local_size) {
  std::vector<WireOnLink> wires;
  for (const auto& [name, wire] : {std::pair("none", model::Wire::kNone), std::pair("fp16", model::Wire::kFp16),
                                   std::pair("fp8_e4m3", model::Wire::kFp8)}) {
    const model::WireCost cost = model::CostOf(wire);
    model::Cluster hosts = {.local_size = local_size, .host = model::MeasuredHost()};
    hosts.host.gap_per_byte *= cost.host_factor;
    hosts.network = {.latency = link.latency, .gap_per_byte = 8 / (link.gbit * 1e9) * cost.network_ratio};
    std::vector<AllreduceCurve::Point> points;
    for (const double bytes : kSizes) {
      const double seconds = model::AllreduceTime(model::Algorithm::kHierarchical, hosts, 2 * local_size, bytes);
      points.push_back({bytes, seconds + cost.work_per_byte * bytes});
    }
    wires.push_back({.name = name, .curve = AllreduceCurve(std::move(points), 2)});
  }
  return wires;
}

}  // namespace ronda::bench
