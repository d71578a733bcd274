#ifndef RONDA_BENCH_STEP_CONTESTANTS_H_
#define RONDA_BENCH_STEP_CONTESTANTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/job.h"
#include "bench/peers/peer_library.h"
#include "bench/shapes/shapes.h"
#include "bench/step/gradients.h"
#include "bench/step/settings.h"
#include "bench/step/step_loop.h"

namespace ronda::bench {

// What all contestants of one measurement share. Must outlive them.
struct Arena {
  const ModelShapes& model;
  const StepLoop& loop;
  Gradients& gradients;  // this rank's
  Rank& rank;
};

enum class Checking { kOff, kOn };

// One way to do the steps, which takes turns with the others. Every rank makes the same calls. Thread-compatible.
class StepContestant {
 public:
  virtual ~StepContestant() = default;
  StepContestant() = default;
  StepContestant(const StepContestant&) = delete;
  StepContestant& operator=(const StepContestant&) = delete;

  // What it is, for tables: "ronda", "openmpi per tensor", "compute only".
  virtual std::string name() const = 0;

  // Ronda's setting; null of a peer.
  virtual const Setting* setting() const { return nullptr; }

  // A block of steps on this rank, as many times as the loop has steps; setting up is not timed. Throws ronda::Error.
  virtual BlockResult RunBlock(Checking checking) = 0;
};

// Computes and does not communicate.
std::unique_ptr<StepContestant> ComputeOnly(const Arena& arena);

// Joins a job of Ronda's with `setting` for each block, so that nothing is left of what other settings did.
std::unique_ptr<StepContestant> RondaWith(const Setting& setting, const Arena& arena);

// A loop over the tensors, and a flat buffer. Errors: the peer's.
absl::StatusOr<std::vector<std::unique_ptr<StepContestant>>> FormsOf(Peer* peer, const Arena& arena);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_CONTESTANTS_H_
