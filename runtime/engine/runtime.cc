#include "runtime/engine/runtime.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/coordinator_loop.h"

namespace ronda {
namespace {

std::string Identity(const Topology& topology) { return absl::StrCat("host ", topology.hostname, ", pid ", getpid()); }

absl::Status Check(const Submission& submission, int size) {
  const TensorRequest& request = submission.request;
  const auto invalid = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", request.name, "': ", what));
  };
  if (request.name.empty()) return absl::InvalidArgumentError("a tensor needs a name, the same on every rank");
  if (request.op == OpType::kBarrier) return absl::OkStatus();
  for (int64_t dim : request.shape) {
    if (dim < 0) return invalid(absl::StrCat("shape ", ToString(request.shape), " has a negative dimension"));
  }
  const bool has_data = ElementCount(request.shape) > 0;
  if (has_data && request.op != OpType::kBroadcast && submission.input == nullptr) return invalid("input is null");
  if (has_data && request.op != OpType::kAllgather && submission.output == nullptr) return invalid("output is null");
  if (request.op == OpType::kAllgather && request.shape.empty()) {
    return invalid("a scalar cannot be gathered; give it the shape [1]");
  }
  if (request.op == OpType::kBroadcast && (request.root < 0 || request.root >= size)) {
    return invalid(absl::StrCat("root ", request.root, " is not a rank of this job, which has ", size));
  }
  if (request.reduction == Reduction::kAverage && request.dtype == DType::kBool) {
    return invalid("bool cannot be averaged; use sum (logical or) or product (logical and)");
  }
  return absl::OkStatus();
}

}  // namespace

Runtime::Runtime(Options options, Topology topology, Transport transport)
    : topology_(std::move(topology)),
      loop_(std::make_unique<CoordinatorLoop>(
          CoordinatorLoop::Options{
              .tunables = options.tunables, .clock = options.clock, .identity = Identity(topology_)},
          topology_, std::move(transport))) {}

std::unique_ptr<Runtime> Runtime::Create(Options options, Topology topology, Transport transport) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(options), std::move(topology), std::move(transport)));
  runtime->thread_ = std::thread([self = runtime.get()] {
    absl::Status result = self->loop_->Run();
    MutexLock lock(&self->mu_);
    self->result_ = std::move(result);
    self->ended_ = true;
    self->job_ended_.NotifyAll();
  });
  return runtime;
}

Runtime::~Runtime() {
  // Once this rank's job has ended, the others may still be reading that theirs has: nothing may be recorded any more.
  if (!ended()) loop_->Abandon(absl::AbortedError("ended without shutdown()"));
  thread_.join();
}

bool Runtime::ended() const {
  MutexLock lock(&mu_);
  return ended_;
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Submit(Submission submission) {
  RONDA_RETURN_IF_ERROR(Check(submission, topology_.size));
  return loop_->Submit(std::move(submission));
}

absl::Status Runtime::Shutdown() {
  loop_->RequestShutdown();
  MutexLock lock(&mu_);
  while (!ended_) job_ended_.Wait(&mu_);
  return result_;
}

}  // namespace ronda
