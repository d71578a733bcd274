#ifndef RONDA_BENCH_STEP_PEER_EXCHANGE_H_
#define RONDA_BENCH_STEP_PEER_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/peers/peer_library.h"
#include "bench/step/gradients.h"
#include "bench/step/step_loop.h"
#include "bench/team.h"

namespace ronda::bench {

// A peer's allreduce of each gradient by itself, as soon as it is ready: a loop of blocking calls. Thread-compatible.
class PeerLoop : public GradientExchange {
 public:
  // Every rank calls it. `gradients` and `peer` must outlive the exchange. Errors: the peer's.
  static absl::StatusOr<std::unique_ptr<PeerLoop>> Create(Peer* peer, Team* team, Gradients* gradients);

  void Ready(size_t parameter) override { calls_[parameter]->Run(); }
  void Finish() override {}

 private:
  explicit PeerLoop(std::vector<std::unique_ptr<PeerCall>> calls) : calls_(std::move(calls)) {}

  const std::vector<std::unique_ptr<PeerCall>> calls_;  // of each gradient
};

// A peer's allreduce of all gradients at once, when the last is ready: copied into one buffer, and back.
// Thread-compatible.
class PeerFlat : public GradientExchange {
 public:
  // As PeerLoop's.
  static absl::StatusOr<std::unique_ptr<PeerFlat>> Create(Peer* peer, Team* team, Gradients* gradients);

  void Ready(size_t) override {}
  void Finish() override;

 private:
  PeerFlat(Gradients* gradients, std::vector<float> buffer) : gradients_(gradients), buffer_(std::move(buffer)) {}

  Gradients* const gradients_;
  std::vector<float> buffer_;
  std::unique_ptr<PeerCall> call_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_PEER_EXCHANGE_H_
