#ifndef RONDA_RUNTIME_ENGINE_RUNTIME_H_
#define RONDA_RUNTIME_ENGINE_RUNTIME_H_

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"
#include "runtime/monitor/statistics.h"

namespace ronda {

class RankEngine;

// One rank's membership in a job: accepts named tensors from any thread, and has them carried out in an order that all
// ranks agree on. The work is done by a background thread, or by a thread that waits for it (progress_engine.h).
// Nothing here is global: several ranks can live in one process.
//
//   std::unique_ptr<Runtime> runtime = Runtime::Create({}, topology, std::move(transport));
//   RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime->Submit({.name = "loss", ...}));
//   RONDA_RETURN_IF_ERROR(handle->Wait());
//
// Thread-safe. Destroying a runtime that was not shut down counts as a failure of this rank for the others.
class Runtime {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock = Clock::Real();               // not owned
    size_t timeline_bytes = size_t{256} << 20;  // how large the file of a timeline may become
  };

  // Starts the background thread.
  static std::unique_ptr<Runtime> Create(Options options, Topology topology, Transport transport);

  ~Runtime();

  const Topology& topology() const { return topology_; }

  // The ranks of a process set, ascending, as ranks of the job; of set 0, all.
  // Errors: INVALID_ARGUMENT if there is no such set (any more).
  absl::StatusOr<std::shared_ptr<const Group>> ProcessSet(ProcessSetId id) const;

  // The process sets that there are, ascending.
  std::vector<ProcessSetId> ProcessSetIds() const;

  // The set whose ranks remove set `id` together: set 0, or the set itself if its members have created it.
  ProcessSetId RemoversOf(ProcessSetId id) const;

  // Hands a tensor over; never waits for other ranks. The buffers stay the caller's and must remain valid until the
  // handle is complete.
  //
  // Process sets are added and removed by submissions too, of every rank of the job or of the set's members alone.
  //
  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS (name in flight in the process set), CANCELLED (after Shutdown),
  // RESOURCE_EXHAUSTED (no memory to submit it), or the job's failure.
  // The handle's errors: FAILED_PRECONDITION (ranks disagree about the tensor, or it needs a rank that has joined, or
  // its process set was removed), DEADLINE_EXCEEDED (some rank did not submit it), UNAVAILABLE (a rank has shut down);
  // the job goes on. Or the job's failure.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);

  // Hands over all of `submissions` or, after an error, none; the handles are in their order. Tensors of a group (see
  // TensorRequest::group) are handed over in one call, and run as a whole or fail as a whole.
  // Errors: as Submit.
  absl::StatusOr<std::vector<std::shared_ptr<Handle>>> SubmitAll(absl::Span<const Submission> submissions);

  // The same. `handles`, which is cleared first and may bring its memory along, receives the handles.
  absl::Status SubmitAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Whether Submit would accept these.
  // Errors: as Submit's INVALID_ARGUMENT.
  absl::Status Check(absl::Span<const Submission> submissions) const;

  // SubmitAll of tensors without groups that Check() has accepted, and that have not changed since. Their process set
  // may be gone: then the handles end with that error.
  absl::Status SubmitChecked(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Submits and waits until the operation is complete; the calling thread carries it out itself if no other drives,
  // which spares two wake-ups, of the background thread and back. Or until MonotonicTime() has come to `deadline`; then
  // the operation is in flight.
  // Errors: as Submit; the operation's own are the handle's. The runtime must outlive the call.
  absl::StatusOr<std::shared_ptr<Handle>> Run(const Submission& submission,
                                              absl::Duration deadline = absl::InfiniteDuration());

  // The same for all of `submissions`; `*handles` becomes theirs, all of them complete, in their order.
  // Errors: as SubmitAll.
  absl::Status RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Has this rank's GPU set memory of its own to zero, after the work that `stream` (a cudaStream_t) has been given so
  // far; does not wait for that.
  // Errors: INVALID_ARGUMENT (memory of the host or of another GPU), FAILED_PRECONDITION (no GPU), INTERNAL.
  absl::Status FillZeroOnDevice(void* memory, size_t bytes, void* stream);

  // Has this rank write a timeline from now on, as a trace for Perfetto (docs/timeline.md), to a file of its own:
  // `path` with the rank inserted.
  // Errors: FAILED_PRECONDITION if it writes one already; that of the operating system, with the path.
  absl::Status StartTimeline(const std::string& path);

  // Ends the file. So does the end of the job. Nothing happens if there is none.
  void StopTimeline();

  // The counts of this rank so far.
  Statistics statistics() const;

  // Completes all operations in flight on this rank, waits for its callbacks, tells the others, and waits until all of
  // them have shut down too. Idempotent. Errors: the job's failure, if it failed; DEADLINE_EXCEEDED naming the ranks
  // that did not shut down; FAILED_PRECONDITION if called from a callback, which it would have to wait for.
  absl::Status Shutdown();

  // Whether the calling thread runs a callback, where Shutdown would refuse.
  bool InCallback() const;

  // This rank gives up: the job fails with `cause`, for all ranks, unless it has ended.
  void Abandon(const absl::Status& cause);

 private:
  Runtime(Options options, Topology topology, Transport transport);

  // Checks the tensors and adds them to the queue. An error or an exception leaves none of them there.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now);
  absl::Status AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);
  // The same without the checks.
  absl::Status AddChecked(absl::Span<const Submission> submissions, absl::Time now,
                          std::vector<std::shared_ptr<Handle>>* handles);
  Submitter submitter() const;
  void RunBackgroundThread();

  const Topology topology_;
  const Options options_;
  const std::unique_ptr<RankEngine> engine_;
  std::thread background_thread_;

  mutable Mutex mu_;
  CondVar job_ended_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RUNTIME_H_
