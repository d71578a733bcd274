// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_GROUPS_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_GROUPS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/side_by_side.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Whether NCCL may move data between windows by the devices' copy engines instead of kernels. An abort does not end a
// copy that waits for another rank: the stream itself waits, and not a kernel. So use them only if the process ends
// after a failure of the job during which a stream waits for a call.
enum class NcclCopyEngines : uint8_t { kUnused, kUsed };

// Whether Ronda's own buffers are registered with NCCL as symmetric windows, whose memory has the same layout on all
// ranks. NCCL has special kernels for such memory, which use fewer multiprocessors, and add 16-bit numbers in float32.
enum class NcclWindows : uint8_t { kNone, kSymmetric };

// What communicators are for. kBuffers: calls on Ronda's buffers, and on memory that is not registered. kMemory: only
// calls on memory that the program uses and all ranks have registered together, as windows if the library has them.
// NCCL takes this memory for other memory in the calls of other communicators.
enum class NcclUse : uint8_t { kBuffers, kMemory };

// Owns one rank's NCCL communicators. Each group of ranks gets an Entry for each use when it first has data to send.
//
// A group has two communicators, the *parent* and its *child*. The parent's calls return at once, because NCCL starts a
// thread for each of them. This class waits for that thread, with a warning and a deadline. So no call to the parent
// hangs, even if a peer fails. The parent is only used to create the child (ncclCommSplit), and to abort it. All
// collective calls go to the child. Its calls block, because NCCL executes them on the calling thread instead of
// starting one. Parent and child share their resources, including the flag that notifies NCCL's threads and kernels of
// an abort. So aborting the parent ends a call that is stuck in the child, without freeing anything that the call uses.
// The child is freed when no thread is inside one of its calls. NCCL before 2.18 cannot split communicators; collective
// calls then go to the parent.
//
// Thread-compatible, except failure() and Abort(), which any thread may call. NCCL allows only one thread at a time to
// use a communicator, except for ncclCommGetAsyncError, which need not wait for a call to the child. For all other
// calls, mu_ ensures that only one thread at a time uses a communicator, and that none uses a communicator that is
// being freed.
class NcclGroups {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::vector<RankId> job_ranks;  // as in NcclCommunicator
    std::shared_ptr<Device> device;
    std::shared_ptr<const NcclLibrary> library;
    NcclWindows windows = NcclWindows::kNone;                 // of Use::kBuffers; the same on all ranks
    std::string memory_setting;                               // the first rank's, which wants memory for Use::kMemory
    NcclCopyEngines copy_engines = NcclCopyEngines::kUnused;  // the same on all ranks
    // Sends `bytes` bytes from the first member of the call's group to the other members. All `size` ranks must call
    // it.
    std::function<absl::Status(const CallInfo& info, void* data, size_t bytes)> share;
    // How long NCCL may take, at least, to connect the members once all of them have called.
    absl::Duration init_deadline = absl::Minutes(1);
    absl::Duration end_deadline = absl::Seconds(5);  // how long peers have to finalize their communicators
    std::function<absl::Status()> job_failure;
    // Records a failure of the job. RegisterInTime calls it before an abort. May be nullptr if that is not called.
    std::function<void(const absl::Status&)> fail_job;
  };

  // One group's communicators. Owned by NcclGroups.
  class Entry;

  explicit NcclGroups(Options options);

  // Returns this rank's number in the job, for messages.
  RankId self() const { return JobRank(options_.rank); }

  // Calls End.
  ~NcclGroups();

  // Finalizes the communicators together with the peers. Aborts this rank's communicators if the peers do not finalize
  // theirs within seconds. If an NCCL call does not return within seconds because a peer is stopped, leaves the call to
  // a detached thread and abandons the device. Abort() and failure() do not wait for End(). After End(), registered
  // memory may be freed. If the device is held, leaves the communicators as they are until the process exits.
  // REQUIRES: the streams have finished, or Abort() has been called.
  void End();

  // Returns the communicators of these members for this use, or nullptr if this rank is not a member or the only one.
  // All ranks of the job must make this call at the same point in the sequence of calls. Errors: DEADLINE_EXCEEDED,
  // UNAVAILABLE, the job's failure. The errors name the ranks and contain NCCL's text.
  absl::StatusOr<Entry*> For(const CallInfo& info, const Members& members, NcclUse use = NcclUse::kBuffers);

  // Runs `enqueue`, which calls NCCL functions, as one NCCL group. Returns when all of the group's work is enqueued on
  // its stream. NCCL may wait for the other members if it has to connect them first; Abort() on another thread ends
  // this wait.
  using Enqueue = absl::FunctionRef<NcclResult(const NcclFunctions& nccl, NcclHandle handle)>;
  absl::Status Run(const CallInfo& info, Entry* entry, Enqueue enqueue);

  // Registers memory with NCCL for `entry`'s collectives, so that NCCL's transports can use it directly, if they
  // support that. All members must register memory for the same calls, because how NCCL moves the data depends on it.
  // The memory must stay allocated until the communicators have ended. Errors: NCCL's errors, after which the job
  // fails.
  //
  // If the entry's use has windows, the first call for a piece of memory is collective, and waits for the other
  // members. The memory must come from NCCL's allocator, and have the same size on all members.
  absl::Status Register(Entry* entry, void* memory, size_t bytes);

  // As Register, but ends the wait for the other members itself: when the job has failed, or after the time that
  // Connect would give them. For callers whose communicators no other thread aborts yet. Errors: as Register;
  // DEADLINE_EXCEEDED, the job's failure. After an error all later calls fail.
  absl::Status RegisterInTime(Entry* entry, void* memory, size_t bytes, const WaitLimits& limits);

  // Allocates memory, which RegisterInTime() may register for kMemory. Errors: RESOURCE_EXHAUSTED if this rank has no
  // room for it; the device's errors.
  absl::StatusOr<DirectMemory> AllocateMemory(size_t bytes);

  // Returns whether memory registered for this use becomes a symmetric window: if the options do not exclude it, and
  // the library has windows.
  bool UsesWindows(NcclUse use) const {
    return (use == NcclUse::kMemory || options_.windows == NcclWindows::kSymmetric) &&
           nccl_.CommWindowRegister != nullptr && nccl_.CommWindowDeregister != nullptr;
  }

  // Returns the first failure of NCCL or of this class, or OK.
  absl::Status failure() const;

  // Aborts all communicators, unless the device is held (Device::Hold). Idempotent. If some have not ended after a few
  // seconds, the device is stuck: Abort() then leaves them to detached threads and abandons the device. If Abort()
  // throws std::bad_alloc, the caller must call it again.
  void Abort();

 private:
  // The first member's message to the other members of a group.
  struct Invitation {
    NcclUniqueId id;
    NcclResult result;
    char version[32];  // of the member's NCCL library
  };

  class Child;
  struct Deregistration;

  // Describes a wait for an NCCL operation.
  struct Wait {
    absl::string_view doing;         // for messages, such as "ending the communicator"; empty: the call itself
    const CallInfo* call = nullptr;  // the blocked call; nullptr: none
    WaitLimits limits;

    std::string What() const;
  };

  RankId JobRank(RankId rank) const {
    return options_.job_ranks.empty() ? rank : options_.job_ranks[static_cast<size_t>(rank)];
  }

  // Broadcasts NCCL's id from the first member. All ranks must call it, because `share` requires that.
  // Errors: FAILED_PRECONDITION if the members' NCCL versions differ.
  absl::StatusOr<NcclUniqueId> AgreeOnId(const CallInfo& info, const Members& members, const Entry& entry);
  absl::Status Connect(const CallInfo& info, const NcclUniqueId& id, const Members& members, Entry* entry);
  // Creates the child, if NCCL can split communicators.
  absl::Status Split(const CallInfo& info, const Members& members, Entry* entry);
  // Calls `begin`, in which NCCL starts creating a communicator, and waits until NCCL has finished.
  absl::Status Make(const CallInfo& info, Entry* entry, absl::string_view doing, absl::FunctionRef<NcclResult()> begin);
  // Run one group of NCCL calls: RunInChild() on the calling thread, and RunInThread() on a thread of NCCL's.
  absl::Status RunInChild(const CallInfo& info, Entry* entry, Enqueue enqueue);
  absl::Status RunInThread(const CallInfo& info, Entry* entry, Enqueue enqueue);
  NcclResult RunGroup(NcclHandle handle, Enqueue enqueue) const;
  // Makes one call to the child, and blocks until it has ended.
  absl::Status CallChild(Entry* entry, const Wait& wait, absl::FunctionRef<NcclResult(NcclHandle)> call);
  // Waits until NCCL has finished its current operation. Logs a wait longer than the warning timeout once.
  absl::Status AwaitReady(Entry* entry, const Wait& wait);
  // Returns whether NCCL has finished its current operation.
  absl::StatusOr<bool> IsReady(Entry* entry, const Wait& wait);
  // Returns the error for a wait that is longer than its deadline.
  absl::Status TooLong(const Entry& entry, const Wait& wait) const;
  void Report(const Entry& entry, const Wait& wait) const;
  // Records `failure` if it is the first failure. Returns the first failure.
  absl::Status Fail(absl::Status failure) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Explain(const Entry& entry, NcclHandle handle, NcclResult result, absl::string_view what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RegisterLocally(Entry* entry, void* memory, size_t bytes);
  absl::Status RegisterWindow(Entry* entry, void* memory, size_t bytes);
  // Returns when `is_over` is set. Logs a wait longer than the warning timeout once. Aborts the communicators if the
  // deadline has passed or the job has failed.
  void WatchRegistration(const Entry& entry, const Wait& wait, const std::atomic<bool>& is_over);
  // Returns the communicator with which memory is registered.
  static NcclHandle OfCalls(const Entry& entry);
  // Deregisters the memory of all communicators. Returns false if the device has been abandoned.
  bool Deregister();
  void Finalize();
  void FinalizeChildren();
  // Runs the calls, each on its own thread. They must own what they use. If some do not return in time, abandons the
  // device because of `what`, and returns false.
  bool CallInTime(SideBySide calls, absl::Duration timeout, absl::string_view what);
  // Takes all handles from the entries, and returns the calls that abort them, or nullopt if no handle is left.
  std::optional<SideBySide> TakeAborts() ABSL_LOCKS_EXCLUDED(mu_);
  void AbortAll();

  const Options options_;
  const NcclFunctions& nccl_;
  mutable Mutex mu_;
  mutable absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_GROUPS_H_
