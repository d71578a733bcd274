#include <optional>
#include <utility>

#include "bench/collectives/contestant.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

std::optional<int> PeerOp(OpType op) {
  switch (op) {
    case OpType::kAllreduce:
      return RONDA_BENCH_ALLREDUCE;
    case OpType::kReduce:
      return RONDA_BENCH_REDUCE;
    case OpType::kBroadcast:
      return RONDA_BENCH_BROADCAST;
    case OpType::kAllgather:
      return RONDA_BENCH_ALLGATHER;
    case OpType::kReduceScatter:
      return RONDA_BENCH_REDUCESCATTER;
    case OpType::kAlltoall:
      return RONDA_BENCH_ALLTOALL;
    case OpType::kBarrier:
      return RONDA_BENCH_BARRIER;
    default:
      return std::nullopt;
  }
}

std::optional<int> PeerDType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return RONDA_BENCH_FLOAT32;
    case DType::kFloat64:
      return RONDA_BENCH_FLOAT64;
    case DType::kFloat16:
      return RONDA_BENCH_FLOAT16;
    case DType::kInt32:
      return RONDA_BENCH_INT32;
    case DType::kInt64:
      return RONDA_BENCH_INT64;
    case DType::kUint8:
      return RONDA_BENCH_UINT8;
    default:
      return std::nullopt;
  }
}

// Peers know no wire formats: they are compared with as they are.
class PeerContestant : public Contestant {
 public:
  PeerContestant(Peer* peer, Team* team) : peer_(*peer), team_(*team) {}

  std::string name() const override { return peer_.info().name; }
  Kind kind() const override { return Kind::kPeer; }
  std::string algorithm() const override { return algorithm_; }

  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) override {
    prepared_ = nullptr;
    output_ = buffers.output;
    const std::optional<int> op = PeerOp(shape.op);
    const std::optional<int> dtype = PeerDType(shape.dtype);
    if (!op || !dtype) return false;
    const ronda_bench_call call = {
        .op = *op, .dtype = *dtype, .input = buffers.input, .output = buffers.output, .count = shape.count};
    const std::vector<std::string> algorithms = peer_.Algorithms(call);
    if (algorithms.empty()) return false;
    RONDA_ASSIGN_OR_RETURN(const int fastest, peer_.FastestAlgorithm(call, &team_));
    algorithm_ = algorithms[static_cast<size_t>(fastest)];
    RONDA_ASSIGN_OR_RETURN(prepared_, peer_.Prepare(call, fastest));
    return true;
  }

  const void* Run() override {
    prepared_->Run();
    return output_;
  }

 private:
  Peer& peer_;
  Team& team_;
  std::unique_ptr<PeerCall> prepared_;
  std::string algorithm_;
  const void* output_ = nullptr;
};

}  // namespace

std::unique_ptr<Contestant> MakePeerContestant(Peer* peer, Team* team) {
  return std::make_unique<PeerContestant>(peer, team);
}

}  // namespace ronda::bench
