#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/collectives/contestant.h"
#include "client/ronda.h"
#include "client/ronda.hpp"

namespace ronda::bench {
namespace {

void ExitUnlessOk(ronda_status status) {
  if (status != RONDA_OK) ExitIfError(absl::InternalError(ronda_last_error()));
}

// A case is a tensor of one dimension. What Ronda allocates stays until the next call, as a trainer would keep it.
class ClientContestant : public Contestant {
 public:
  ~ClientContestant() override { Release(); }

  std::string name() const override { return "client"; }
  Kind kind() const override { return Kind::kRonda; }

  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) override {
    Release();
    shape_ = shape;
    buffers_ = buffers;
    label_ = shape.label();
    rows_ = static_cast<int64_t>(shape.input_count());
    view_ = {label_, buffers.input, static_cast<ronda_dtype>(shape.dtype), {rows_}};
    reduce_.op = Op::Sum;
    reduce_.compression = static_cast<Compression>(shape.wire);
    return true;
  }

  const void* Run() override {
    switch (shape_.op) {
      case OpType::kAllreduce:
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

  CollectiveCase shape_;
  CaseBuffers buffers_;
  std::string label_;
  int64_t rows_ = 0;
  Tensor view_;
  ReduceOptions reduce_;
  const CallOptions call_;
  ronda_handle handle_ = 0;  // whose output the last call returned; 0: none
};

}  // namespace

std::unique_ptr<Contestant> MakeClientContestant() { return std::make_unique<ClientContestant>(); }

}  // namespace ronda::bench
