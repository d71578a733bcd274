// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_NEGOTIATION_SIMULATED_JOB_H_
#define RONDA_BENCH_NEGOTIATION_SIMULATED_JOB_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/harness/model_shapes.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/reporter.h"
#include "runtime/step/locked_schedule.h"

namespace ronda::bench {

// The cost of agreeing on one step's tensors. CPU times are those of the calling thread, in microseconds.
struct NegotiationCost {
  double coordinator_us = 0;  // rank 0: decoding all reports, negotiating, fusing, encoding the list
  double other_us = 0;        // of one rank: its report, and applying the list
  size_t report_bytes = 0;    // the largest report; 0 if none was sent
  size_t list_bytes = 0;
  int messages_up = 0;    // that a rank sends to rank 0
  int messages_down = 0;  // that it receives from rank 0
};

enum class Locking { kOff, kOn };

// The negotiation of a job with all its ranks simulated in this process. It is a state machine without threads or I/O:
// every message is encoded and decoded, but none is sent. Thread-compatible.
class SimulatedJob {
 public:
  SimulatedJob(int ranks, Locking locking);

  // Returns the requests that `rank` submits in a step, in submission order.
  using Submissions = std::function<std::vector<const TensorRequest*>(RankId rank)>;

  // Runs one step on all ranks, either with one negotiated list of tensors or with the locked schedule. If the locked
  // schedule does not match the tensors of the step, the ranks first unlock the schedule.
  NegotiationCost Step(const Submissions& submissions);

  bool locked() const { return ranks_.front()->schedule.locked(); }

 private:
  struct Rank {
    Reporter reporter;
    LockedSchedule schedule;

    void Submit(const TensorRequest& request);
    void Apply(const ResponseList& list, absl::Time now);
  };

  void SubmitAll(const Submissions& submissions);
  void CarryOutBuckets();
  void Unlock(const Submissions& submissions);
  void Negotiate(NegotiationCost* cost);
  std::string Coordinate(const std::vector<std::string>& reports);

  Negotiator negotiator_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  absl::Time now_ = absl::UnixEpoch();
};

// Returns the gradients of `model` as a trainer submits them: averaged, in backward order.
std::vector<TensorRequest> GradientsOf(const ModelShapes& model);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_NEGOTIATION_SIMULATED_JOB_H_
