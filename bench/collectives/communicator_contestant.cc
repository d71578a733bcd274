#include <utility>
#include <vector>

#include "bench/collectives/contestant.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"

namespace ronda::bench {
namespace {

class CommunicatorContestant : public Contestant {
 public:
  explicit CommunicatorContestant(Transport transport) : transport_(std::move(transport)) {}
  ~CommunicatorContestant() override { transport_.control->Depart(); }

  std::string name() const override { return "communicator"; }
  Kind kind() const override { return Kind::kRonda; }

  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) override {
    shape_ = shape;
    buffers_ = buffers;
    label_ = shape.label();
    const auto ranks = static_cast<size_t>(shape.ranks);
    const size_t share_bytes = shape.count * SizeOf(shape.dtype);
    bytes_.assign(shape.op == OpType::kAlltoall ? ranks * ranks : ranks, share_bytes);
    return true;
  }

  const void* Run() override {
    ExitIfError(Carry());
    return buffers_.output;
  }

 private:
  absl::Status Carry() {
    const CallInfo info = {.label = label_, .op = shape_.op};
    Communicator& communicator = *transport_.communicator;
    switch (shape_.op) {
      case OpType::kBroadcast:
        return communicator.Broadcast({.info = info, .data = buffers_.output, .bytes = shape_.bytes(), .root = 0});
      case OpType::kAllgather:
        return communicator.Allgather(
            {.info = info, .input = buffers_.input, .output = buffers_.output, .bytes_per_rank = bytes_});
      case OpType::kAlltoall:
        return communicator.Alltoall(
            {.info = info, .input = buffers_.input, .output = buffers_.output, .bytes = bytes_});
      case OpType::kBarrier:
        return communicator.Barrier(info);
      default:
        return Reduce(info);
    }
  }

  absl::Status Reduce(const CallInfo& info) {
    Segment segment = {.input = buffers_.input, .output = buffers_.output, .count = shape_.input_count()};
    const auto rank = static_cast<size_t>(transport_.communicator->rank());
    if (shape_.op == OpType::kReduceScatter) {
      segment.part_begin = rank * shape_.count;
      segment.part_count = shape_.count;
    } else if (shape_.op == OpType::kReduce && rank == 0) {
      segment.part_count = shape_.count;
    }
    return transport_.communicator->Reduce(
        {.info = info,
         .segments = {&segment, 1},
         .dtype = shape_.dtype,
         .wire = shape_.wire,
         .delivery = shape_.op == OpType::kAllreduce ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts});
  }

  const Transport transport_;
  CollectiveCase shape_;
  CaseBuffers buffers_;
  std::string label_;
  std::vector<size_t> bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> ConnectCommunicatorContestant(const Place& place,
                                                                          const ConnectOptions& options) {
  RONDA_ASSIGN_OR_RETURN(Transport transport, Connect(place, options));
  return std::make_unique<CommunicatorContestant>(std::move(transport));
}

std::vector<std::unique_ptr<Contestant>> MakeInProcessContestants(int ranks) {
  const std::unique_ptr<InProcessWorld> world = InProcessWorld::Create({.size = ranks});
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (RankId rank = 0; rank < ranks; ++rank) {
    contestants.push_back(std::make_unique<CommunicatorContestant>(world->Connect(rank)));
  }
  return contestants;
}

}  // namespace ronda::bench
