#ifndef RONDA_BENCH_MODEL_SWEEP_H_
#define RONDA_BENCH_MODEL_SWEEP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/model/training_step.h"
#include "bench/results.h"

namespace ronda::bench::model {

// What ranks on two hosts got from the link between them, which they drive themselves (TCP).
struct MeasuredLink {
  double gbit = 0;     // Gbit/s each way of large messages that go both ways at once; 0: there is none
  double latency = 0;  // s of a small message, from the call that sends to the one that has received
};

// What to predict: every model on every link with every number of ranks, each in all variants.
struct SweepOptions {
  std::vector<std::string> models = {"resnet50", "bert-large"};  // presets of shapes
  std::vector<int> gbit = {25, 100, 400};                        // of a host's port to the network
  MeasuredLink link;                                             // instead of `gbit`, if there is one
  std::vector<int> ranks = {8, 64, 512, 4096, 16384};
  int local_size = 8;
  double compute = 0;         // s of forward and backward pass; 0: ModelCompute()
  double host_bandwidth = 0;  // bytes a second between ranks of a host; 0: as measured
};

// One way to run a step.
struct Variant {
  std::string name;
  std::string group;  // what it is compared with
  Algorithm algorithm = Algorithm::kHierarchical;
  Coordination coordination = Coordination::kLocked;
  Wire wire = Wire::kNone;
};

// The algorithms, the ways to agree, and the wire formats, each beside the others that are otherwise equal.
std::vector<Variant> Variants();

// A line of a table: one number of ranks, and a result for each of Variants().
struct SweepLine {
  std::string model;
  double gbit = 0;
  int ranks = 0;
  std::vector<StepResult> results;
};

// Seconds of compute that are assumed for a model's step.
double ModelCompute(const std::string& model);

// Errors: INVALID_ARGUMENT if there is no such model.
absl::StatusOr<std::vector<SweepLine>> Sweep(const SweepOptions& options);

// For --json and --csv: a row for each variant, and a row for each published figure with what the model makes of it.
std::vector<ResultRow> SweepRows(const std::vector<SweepLine>& lines);
std::vector<ResultRow> PublishedRows();

}  // namespace ronda::bench::model

#endif  // RONDA_BENCH_MODEL_SWEEP_H_
