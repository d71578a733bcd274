#include "bench/step/peer_exchange.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

ronda_bench_call InPlaceSum(float* data, size_t count) {
  return {.op = RONDA_BENCH_ALLREDUCE, .dtype = RONDA_BENCH_FLOAT32, .input = data, .output = data, .count = count};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerLoop>> PeerLoop::Create(Peer* peer, Team* team, Gradients* gradients) {
  std::map<size_t, int> fastest;  // by count: tensors of one size share what the trials have found
  std::vector<std::unique_ptr<PeerCall>> calls;
  for (size_t i = 0; i < gradients->size(); ++i) {
    const auto count = static_cast<size_t>(gradients->count(i));
    const ronda_bench_call call = InPlaceSum(gradients->data(i), count);
    if (fastest.count(count) == 0) {
      RONDA_ASSIGN_OR_RETURN(fastest[count], peer->FastestAlgorithm(call, team));
    }
    RONDA_ASSIGN_OR_RETURN(calls.emplace_back(), peer->Prepare(call, fastest[count]));
  }
  return std::unique_ptr<PeerLoop>(new PeerLoop(std::move(calls)));
}

absl::StatusOr<std::unique_ptr<PeerFlat>> PeerFlat::Create(Peer* peer, Team* team, Gradients* gradients) {
  size_t count = 0;
  for (size_t i = 0; i < gradients->size(); ++i) count += static_cast<size_t>(gradients->count(i));
  std::unique_ptr<PeerFlat> flat(new PeerFlat(gradients, std::vector<float>(count)));
  const ronda_bench_call call = InPlaceSum(flat->buffer_.data(), count);
  RONDA_ASSIGN_OR_RETURN(const int fastest, peer->FastestAlgorithm(call, team));
  RONDA_ASSIGN_OR_RETURN(flat->call_, peer->Prepare(call, fastest));
  return flat;
}

void PeerFlat::Finish() {
  float* next = buffer_.data();
  for (size_t i = 0; i < gradients_->size(); ++i) next = std::copy_n(gradients_->data(i), gradients_->count(i), next);
  call_->Run();
  const float* result = buffer_.data();
  for (size_t i = 0; i < gradients_->size(); ++i) {
    std::copy_n(result, gradients_->count(i), gradients_->data(i));
    result += gradients_->count(i);
  }
}

}  // namespace ronda::bench
