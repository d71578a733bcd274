// What it costs to agree on a training step, for jobs of up to 10,240 ranks that are all simulated in this process: the
// negotiation is a state machine without threads or I/O, so every message is real and only its way is left out.
//
//   bench/negotiation_bench [ranks...]      (default: 2 64 1024 10240)
//
// A step is the 161 gradients of ResNet-50, submitted by every rank. The first step spells everything out, later ones
// are answered by the response cache; "other orders" is a cached step in which every rank submits in an order of its
// own; "one new" is a cached step with one tensor that was never seen. CPU is the thread's time: on rank 0 for decoding
// all reports, negotiating, fusing and encoding the list; on another rank for its report and for applying the list.
// Bytes are those of the encoded messages.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/negotiation/codec.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {
namespace {

double ThreadMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// The gradients of ResNet-50 in the order in which backpropagation makes them ready.
std::vector<TensorRequest> ResNet50() {
  std::vector<TensorRequest> tensors;
  const auto add = [&](const std::string& name, Shape shape) {
    tensors.push_back(
        {.name = absl::StrCat("gradient/", name), .shape = std::move(shape), .reduction = Reduction::kAverage});
  };
  const auto convolution = [&](const std::string& name, int64_t out, int64_t in, int64_t size) {
    add(absl::StrCat(name, ".weight"), {out, in, size, size});
    add(absl::StrCat(name, ".norm.weight"), {out});
    add(absl::StrCat(name, ".norm.bias"), {out});
  };
  convolution("stem", 64, 3, 7);
  constexpr int kBlocks[] = {3, 4, 6, 3};
  int64_t in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = absl::StrCat("layer", stage + 1, ".", block);
      convolution(name + ".conv1", width, in, 1);
      convolution(name + ".conv2", width, width, 3);
      convolution(name + ".conv3", 4 * width, width, 1);
      if (block == 0) convolution(name + ".shortcut", 4 * width, in, 1);
      in = 4 * width;
    }
  }
  add("classifier.weight", {1000, 2048});
  add("classifier.bias", {1000});
  std::reverse(tensors.begin(), tensors.end());
  return tensors;
}

struct Cost {
  double coordinator = 0;  // us
  double other = 0;        // us, of one rank
  size_t report = 0;       // bytes, the largest
  size_t list = 0;         // bytes
};

class Job {
 public:
  explicit Job(int ranks) : negotiator_({.world_size = ranks}) {
    for (RankId rank = 0; rank < ranks; ++rank) {
      reporters_.push_back(std::make_unique<Reporter>(Reporter::Options{.rank = rank, .world_size = ranks}));
    }
    ResponseList first;
    first.settings = {.cache_capacity = 1024};
    for (const auto& reporter : reporters_) RONDA_CHECK(reporter->Apply(first).ok());
  }

  // `submit` has rank r submit what is ready on it.
  template <typename Submit>
  Cost Step(Submit submit) {
    Cost cost;
    std::vector<std::string> reports;
    const double before_reports = ThreadMicroseconds();
    for (size_t rank = 0; rank < reporters_.size(); ++rank) {
      submit(static_cast<RankId>(rank), reporters_[rank].get());
      reports.push_back(Encode(reporters_[rank]->TakeReport()));
    }
    const double before_taking = ThreadMicroseconds();
    const std::string list = Coordinate(reports);
    const double before_applying = ThreadMicroseconds();
    for (const auto& reporter : reporters_) RONDA_CHECK(reporter->Apply(*DecodeResponseList(list)).ok());
    const double end = ThreadMicroseconds();
    cost.coordinator = before_applying - before_taking;
    cost.other = (before_taking - before_reports + end - before_applying) / static_cast<double>(reporters_.size());
    for (const std::string& report : reports) cost.report = std::max(cost.report, report.size());
    cost.list = list.size();
    return cost;
  }

 private:
  std::string Coordinate(const std::vector<std::string>& reports) {
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const auto report = DecodeRankReport(reports[rank]);
      RONDA_CHECK(report.ok() && negotiator_.Add(static_cast<RankId>(rank), *report, absl::UnixEpoch()).ok());
    }
    ResponseList list = negotiator_.TakeResponses();
    RONDA_CHECK(!negotiator_.anything_waits());
    return Encode(list);
  }

  Negotiator negotiator_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
};

void Print(int ranks, const char* step, const Cost& cost) {
  std::printf("| %d | %s | %.0f | %.2f | %.1f | %zu | %zu | %zu | %zu |\n", ranks, step, cost.coordinator,
              cost.coordinator / ranks, cost.other, cost.report, cost.list, cost.report * (ranks - 1),
              cost.list * (ranks - 1));
}

// The one with the median cost on rank 0.
template <typename Run>
Cost MedianOf(int runs, Run run) {
  std::vector<Cost> costs;
  for (int i = 0; i < runs; ++i) costs.push_back(run());
  std::sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.coordinator < b.coordinator; });
  return costs[costs.size() / 2];
}

void Measure(int ranks) {
  constexpr int kRuns = 7;
  const std::vector<TensorRequest> tensors = ResNet50();
  const auto all = [&](RankId, Reporter* reporter) {
    for (const TensorRequest& tensor : tensors) reporter->Submit(tensor);
  };
  Job job(ranks);
  Print(ranks, "first", job.Step(all));
  Print(ranks, "cached", MedianOf(kRuns, [&] { return job.Step(all); }));
  Print(ranks, "other orders", MedianOf(kRuns, [&] {
          return job.Step([&](RankId rank, Reporter* reporter) {
            std::vector<size_t> order(tensors.size());
            std::iota(order.begin(), order.end(), 0);
            std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<uint32_t>(rank) + 1));
            for (size_t i : order) reporter->Submit(tensors[i]);
          });
        }));
  int number = 0;
  Print(ranks, "one new", MedianOf(kRuns, [&] {
          const std::string name = absl::StrCat("new", number++);
          return job.Step([&](RankId rank, Reporter* reporter) {
            all(rank, reporter);
            reporter->Submit({.name = name, .shape = {10}});
          });
        }));
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {2, 64, 1024, 10240};
  std::printf(
      "| ranks | step | rank 0, us of CPU | a rank's share | another rank, us of CPU | report, bytes | list, bytes "
      "| rank 0 receives | rank 0 sends |\n|---|---|---|---|---|---|---|---|---|\n");
  for (int ranks : sizes) ronda::Measure(ranks);
  return 0;
}
