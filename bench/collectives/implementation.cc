// SPDX-License-Identifier: Apache-2.0

#include "bench/collectives/implementation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ronda.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"

namespace ronda::bench {
namespace {

void ExitUnlessOk(ronda_status status) {
  if (status != RONDA_OK) ExitIfError(absl::InternalError(ronda_last_error()));
}

// Submits each case as a one-dimensional tensor. Releases an output that Ronda has allocated only at the next call, as
// a training program would.
class ClientImplementation : public Implementation {
 public:
  explicit ClientImplementation(const CallPattern& pattern) : pattern_(pattern) {}
  ~ClientImplementation() override { Release(); }

  std::string name() const override { return "client"; }
  Kind kind() const override { return Kind::kRonda; }

  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) override {
    Release();
    shape_ = shape;
    buffers_ = buffers;
    label_ = shape.label();
    rows_ = static_cast<int64_t>(shape.input_count());
    names_ = {label_};
    for (int i = 1; i < pattern_.names; ++i) names_.push_back(absl::StrCat(label_, "/", i));
    other_name_ = absl::StrCat(label_, "/other");
    view_ = {label_, buffers.input, static_cast<ronda_dtype>(shape.dtype), {rows_}};
    reduce_.op = Op::Sum;
    reduce_.compression = static_cast<Compression>(shape.wire);
    return true;
  }

  const void* Run() override {
    switch (shape_.op) {
      case OpType::kAllreduce:
        view_.name = NextName();
        ronda::allreduce(view_, buffers_.output, reduce_, call_);
        return buffers_.output;
      case OpType::kReduce:
        ronda::reduce(view_, buffers_.output, 0, reduce_, call_);
        return buffers_.output;
      case OpType::kBroadcast:
        ronda::broadcast(view_, 0, call_);
        return buffers_.output;
      case OpType::kBarrier:
        ronda::barrier();
        return nullptr;
      default:
        return RunWithOutput();
    }
  }

 private:
  const std::string& NextName() {
    const int64_t call = calls_++;
    if (pattern_.other_every > 0 && call % pattern_.other_every == pattern_.other_every - 1) return other_name_;
    return names_[static_cast<size_t>(call) % names_.size()];
  }

  ronda_status Submit(ronda_handle* handle) const {
    const ronda_tensor tensor = {label_.c_str(), view_.dtype, 1, &rows_};
    if (shape_.op == OpType::kReduceScatter) {
      ronda_reducescatter_args args = RONDA_REDUCESCATTER_ARGS_INIT;
      args.tensor = tensor;
      args.input = buffers_.input;
      args.op = RONDA_SUM;
      args.compression = static_cast<ronda_compression>(shape_.wire);
      return ronda_reducescatter_async(&args, handle);
    }
    if (shape_.op == OpType::kAllgather) {
      ronda_allgather_args args = RONDA_ALLGATHER_ARGS_INIT;
      args.tensor = tensor;
      args.input = buffers_.input;
      return ronda_allgather_async(&args, handle);
    }
    ronda_alltoall_args args = RONDA_ALLTOALL_ARGS_INIT;
    args.tensor = tensor;
    args.input = buffers_.input;
    return ronda_alltoall_async(&args, handle);
  }

  const void* RunWithOutput() {
    Release();
    ExitUnlessOk(Submit(&handle_));
    ExitUnlessOk(ronda_synchronize(handle_));
    const void* data = nullptr;
    const int64_t* rows_per_rank = nullptr;
    int64_t rows = 0;
    int members = 0;
    ExitUnlessOk(ronda_output(handle_, &data, &rows, &rows_per_rank, &members));
    return data;
  }

  void Release() {
    if (handle_ != 0) ExitUnlessOk(ronda_release(handle_));
    handle_ = 0;
  }

  const CallPattern pattern_;
  CollectiveCase shape_;
  CaseBuffers buffers_;
  std::string label_;
  std::vector<std::string> names_;
  std::string other_name_;
  int64_t calls_ = 0;
  int64_t rows_ = 0;
  Tensor view_;
  ReduceOptions reduce_;
  const CallOptions call_;
  ronda_handle handle_ = 0;  // of the output that the last call returned; 0: none
};

class CommunicatorImplementation : public Implementation {
 public:
  explicit CommunicatorImplementation(Transport transport) : transport_(std::move(transport)) {}
  ~CommunicatorImplementation() override { transport_.control->Depart(); }

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
    const auto part_of = [this](size_t, int member) {
      return PartRange{.begin = static_cast<size_t>(member) * shape_.count, .count = shape_.count};
    };
    const ReduceCall::PartOf known_parts = part_of;
    return transport_.communicator->Reduce(
        {.info = info,
         .segments = {&segment, 1},
         .dtype = shape_.dtype,
         .wire = shape_.wire,
         .delivery = shape_.op == OpType::kAllreduce ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts,
         .part_of = shape_.op == OpType::kReduceScatter ? &known_parts : nullptr});
  }

  const Transport transport_;
  CollectiveCase shape_;
  CaseBuffers buffers_;
  std::string label_;
  std::vector<size_t> bytes_;
};

// Peers number operations and dtypes (peer.h) by their positions in these lists.
constexpr OpType kPeerOps[] = {OpType::kAllreduce,     OpType::kReduce,   OpType::kBroadcast, OpType::kAllgather,
                               OpType::kReduceScatter, OpType::kAlltoall, OpType::kBarrier};
constexpr DType kPeerDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                 DType::kInt32,   DType::kInt64,   DType::kUint8};
static_assert(kPeerOps[RONDA_BENCH_BARRIER] == OpType::kBarrier && kPeerDTypes[RONDA_BENCH_UINT8] == DType::kUint8);

// Returns the position of `value` in `values`, or nullopt if peers do not support `value`.
template <typename T, size_t kCount>
std::optional<int> PositionIn(const T (&values)[kCount], T value) {
  const T* const found = std::find(std::begin(values), std::end(values), value);
  if (found == std::end(values)) return std::nullopt;
  return static_cast<int>(found - std::begin(values));
}

// A peer cannot choose a wire format, so it makes the same calls for every wire format.
class PeerImplementation : public Implementation {
 public:
  PeerImplementation(Peer* peer, ProcessGroup* group) : peer_(*peer), group_(*group) {}

  std::string name() const override { return peer_.info().name; }
  Kind kind() const override { return Kind::kPeer; }
  std::string algorithm() const override { return algorithm_; }

  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) override {
    prepared_ = nullptr;
    output_ = buffers.output;
    const std::optional<int> op = PositionIn(kPeerOps, shape.op);
    const std::optional<int> dtype = PositionIn(kPeerDTypes, shape.dtype);
    if (!op || !dtype) return false;
    const ronda_bench_call call = {
        .op = *op, .dtype = *dtype, .input = buffers.input, .output = buffers.output, .count = shape.count};
    const std::vector<std::string> algorithms = peer_.Algorithms(call);
    if (algorithms.empty()) return false;
    RONDA_ASSIGN_OR_RETURN(const int fastest, peer_.FastestAlgorithm(call, &group_));
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
  ProcessGroup& group_;
  std::unique_ptr<PeerCall> prepared_;
  std::string algorithm_;
  const void* output_ = nullptr;
};

}  // namespace

std::unique_ptr<Implementation> MakeClient(const CallPattern& pattern) {
  return std::make_unique<ClientImplementation>(pattern);
}

absl::StatusOr<std::unique_ptr<Implementation>> ConnectCommunicator(const LaunchedRank& launched,
                                                                    const ConnectOptions& options) {
  RONDA_ASSIGN_OR_RETURN(Transport transport, Connect(launched, options));
  return std::make_unique<CommunicatorImplementation>(std::move(transport));
}

std::vector<std::unique_ptr<Implementation>> MakeInProcessRanks(int ranks) {
  const std::unique_ptr<InProcessWorld> world = InProcessWorld::Create({.size = ranks});
  std::vector<std::unique_ptr<Implementation>> implementations;
  for (RankId rank = 0; rank < ranks; ++rank) {
    implementations.push_back(std::make_unique<CommunicatorImplementation>(world->Connect(rank)));
  }
  return implementations;
}

std::unique_ptr<Implementation> MakePeer(Peer* peer, ProcessGroup* group) {
  return std::make_unique<PeerImplementation>(peer, group);
}

}  // namespace ronda::bench
