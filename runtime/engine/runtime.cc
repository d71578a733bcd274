#include "runtime/engine/runtime.h"

#include <unistd.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/rank_engine.h"

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
      options_(std::move(options)),
      engine_(std::make_unique<RankEngine>(
          RankEngine::Options{.tunables = options_.tunables, .clock = options_.clock, .identity = Identity(topology_)},
          topology_, std::move(transport))) {}

std::unique_ptr<Runtime> Runtime::Create(Options options, Topology topology, Transport transport) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(options), std::move(topology), std::move(transport)));
  runtime->background_thread_ = std::thread([self = runtime.get()] { self->RunBackgroundThread(); });
  return runtime;
}

void Runtime::RunBackgroundThread() {
  absl::Status result = engine_->Run();
  StopTimeline();
  MutexLock lock(&mu_);
  result_ = std::move(result);
  ended_ = true;
  job_ended_.NotifyAll();
}

Runtime::~Runtime() {
  Abandon(absl::AbortedError("ended without shutdown()"));
  if (background_thread_.joinable()) background_thread_.join();  // unless Create has failed to start it
  engine_->StopCallbacks();
}

void Runtime::Abandon(const absl::Status& cause) { engine_->Abandon(cause); }

Submitter Runtime::submitter() const {
  return {.rank = topology_.rank, .world_size = topology_.size, .process_sets = &engine_->process_sets()};
}

absl::StatusOr<std::shared_ptr<const Group>> Runtime::ProcessSet(ProcessSetId id) const {
  return engine_->process_sets().Find(id);
}

std::vector<ProcessSetId> Runtime::ProcessSetIds() const { return engine_->process_sets().Ids(); }

ProcessSetId Runtime::RemoversOf(ProcessSetId id) const { return engine_->process_sets().RemoversOf(id); }

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Add(const Submission& submission, absl::Time now) {
  RONDA_RETURN_IF_ERROR(CheckSubmission(submission, submitter()));
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankDevice::Ready> ready, engine_->device().Admit({&submission, 1}));
  return engine_->queue().Add(submission, now, ready.empty() ? nullptr : ready.front());
}

absl::Status Runtime::AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_RETURN_IF_ERROR(Check(submissions));
  return AddChecked(submissions, options_.clock->Now(), handles);
}

absl::Status Runtime::AddChecked(absl::Span<const Submission> submissions, absl::Time now,
                                 std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankDevice::Ready> ready, engine_->device().Admit(submissions));
  return engine_->queue().AddAll(submissions, now, handles, ready);
}

absl::Status Runtime::Check(absl::Span<const Submission> submissions) const {
  return CheckSubmissions(submissions, submitter());
}

absl::Status Runtime::SubmitChecked(absl::Span<const Submission> submissions,
                                    std::vector<std::shared_ptr<Handle>>* handles) {
  return CatchOutOfMemory<absl::Status>([&]() -> absl::Status {
    const absl::Time now = options_.clock->Now();
    RONDA_RETURN_IF_ERROR(AddChecked(submissions, now, handles));
    engine_->Announce(now);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Submit(const Submission& submission) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>([&]() -> Result {
    const absl::Time now = options_.clock->Now();
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Add(submission, now));
    engine_->Announce(now);
    return handle;
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
  return CatchOutOfMemory<absl::Status>([&]() -> absl::Status {
    RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
    engine_->Wake();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Run(const Submission& submission, absl::Duration deadline) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>([&]() -> Result {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Add(submission, options_.clock->Now()));
    engine_->CarryOut(*handle, deadline);
    return handle;
  });
}

absl::Status Runtime::RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
  return CatchOutOfMemory<absl::Status>([&]() -> absl::Status {
    RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
    for (const std::shared_ptr<Handle>& handle : *handles) engine_->CarryOut(*handle);
    return absl::OkStatus();
  });
}

absl::Status Runtime::FillZeroOnDevice(void* memory, size_t bytes, void* stream) {
  return engine_->device().FillZero(memory, bytes, stream);
}

absl::Status Runtime::StartTimeline(const std::string& path) {
  return engine_->timeline().Start(
      {.path = path, .rank = topology_.rank, .host = topology_.hostname, .most_bytes = options_.timeline_bytes});
}

void Runtime::StopTimeline() { engine_->timeline().Stop(); }

Statistics Runtime::statistics() const { return engine_->statistics(); }

bool Runtime::InCallback() const { return engine_->IsCallbackThread(); }

absl::Status Runtime::Shutdown() {
  if (InCallback()) {
    return absl::FailedPreconditionError("shutdown from a callback, which it would wait for: call it elsewhere");
  }
  engine_->RequestShutdown();
  MutexLock lock(&mu_);
  while (!ended_) job_ended_.Wait(&mu_);
  return result_;
}

}  // namespace ronda
