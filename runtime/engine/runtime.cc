#include "runtime/engine/runtime.h"

#include <unistd.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/coordinator_loop.h"

namespace ronda {
namespace {

std::string Identity(const Topology& topology) { return absl::StrCat("host ", topology.hostname, ", pid ", getpid()); }

// Runs `submit`: that there is no memory is an error like others.
template <typename Result, typename Function>
Result CatchOutOfMemory(const Function& submit) {
  try {
    return submit();
  } catch (const std::bad_alloc&) {
    // Even this text may be too much; a status without one needs no memory.
    try {
      return absl::ResourceExhaustedError("out of memory: nothing was submitted; free some memory and try again");
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
  }
}

}  // namespace

Runtime::Runtime(Options options, Topology topology, Transport transport)
    : topology_(std::move(topology)),
      timeline_bytes_(options.timeline_bytes),
      loop_(std::make_unique<CoordinatorLoop>(
          RankEngine::Options{.tunables = options.tunables, .clock = options.clock, .identity = Identity(topology_)},
          topology_, std::move(transport))) {}

std::unique_ptr<Runtime> Runtime::Create(Options options, Topology topology, Transport transport) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(options), std::move(topology), std::move(transport)));
  runtime->thread_ = std::thread([self = runtime.get()] {
    absl::Status result = self->loop_->Run();
    self->StopTimeline();
    MutexLock lock(&self->mu_);
    self->result_ = std::move(result);
    self->ended_ = true;
    self->job_ended_.NotifyAll();
  });
  return runtime;
}

Runtime::~Runtime() {
  Abandon(absl::AbortedError("ended without shutdown()"));
  if (thread_.joinable()) thread_.join();  // unless Create has failed to start it
  loop_->StopCallbacks();
}

void Runtime::Abandon(const absl::Status& cause) { loop_->Abandon(cause); }

Submitter Runtime::submitter() const {
  return {.rank = topology_.rank, .world_size = topology_.size, .process_sets = &loop_->process_sets()};
}

absl::StatusOr<std::shared_ptr<const Group>> Runtime::ProcessSet(ProcessSetId id) const {
  return loop_->process_sets().Find(id);
}

std::vector<ProcessSetId> Runtime::ProcessSetIds() const { return loop_->process_sets().Ids(); }

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Submit(const Submission& submission) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>([&]() -> Result {
    RONDA_RETURN_IF_ERROR(CheckSubmission(submission, submitter()));
    return loop_->Submit(submission);
  });
}

absl::StatusOr<std::vector<std::shared_ptr<Handle>>> Runtime::SubmitAll(absl::Span<const Submission> submissions) {
  std::vector<std::shared_ptr<Handle>> handles;
  RONDA_RETURN_IF_ERROR(SubmitAll(submissions, &handles));
  return handles;
}

absl::Status Runtime::SubmitAll(absl::Span<const Submission> submissions,
                                std::vector<std::shared_ptr<Handle>>* handles) {
  handles->clear();
  return CatchOutOfMemory<absl::Status>([&] {
    RONDA_RETURN_IF_ERROR(CheckSubmissions(submissions, submitter()));
    return loop_->SubmitAll(submissions, handles);
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Run(const Submission& submission) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>([&]() -> Result {
    RONDA_RETURN_IF_ERROR(CheckSubmission(submission, submitter()));
    return loop_->Run(submission);
  });
}

absl::Status Runtime::RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
  return CatchOutOfMemory<absl::Status>([&] {
    RONDA_RETURN_IF_ERROR(CheckSubmissions(submissions, submitter()));
    return loop_->RunAll(submissions, handles);
  });
}

absl::Status Runtime::FillZeroOnDevice(void* memory, size_t bytes, void* stream) {
  return loop_->device().FillZero(memory, bytes, stream);
}

absl::Status Runtime::StartTimeline(const std::string& path) {
  return loop_->timeline().Start(
      {.path = path, .rank = topology_.rank, .host = topology_.hostname, .most_bytes = timeline_bytes_});
}

void Runtime::StopTimeline() { loop_->timeline().Stop(); }

Statistics Runtime::statistics() const { return loop_->statistics(); }

bool Runtime::InCallback() const { return loop_->IsCallbackThread(); }

absl::Status Runtime::Shutdown() {
  if (InCallback()) {
    return absl::FailedPreconditionError("shutdown from a callback, which it would wait for: call it elsewhere");
  }
  loop_->RequestShutdown();
  MutexLock lock(&mu_);
  while (!ended_) job_ended_.Wait(&mu_);
  return result_;
}

}  // namespace ronda
