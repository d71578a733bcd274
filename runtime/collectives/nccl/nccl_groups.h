// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_GROUPS_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_GROUPS_H_

#include <cstddef>
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
#include "runtime/cuda/device.h"

namespace ronda {

// NCCL's communicators of one rank. Each group of ranks gets an Entry when the group first has data to move.
//
// A group has two communicators. The first communicator, the parent, does not block, because NCCL starts a thread for
// each of its calls. So no call hangs, whatever happens to the peers. This class waits for NCCL's thread, with a
// warning and a deadline. The only use of the parent is to make, and later to abort, the second communicator, its child
// (ncclCommSplit). The child blocks and gets the collective calls. NCCL carries these calls out in the calling thread
// and starts no thread. Parent and child share their resources, including the flag that notifies NCCL's threads and
// kernels of an abort. So aborting the parent ends a call that is stuck in the child, and frees nothing that the call
// uses. The child is freed when no thread is inside one of its calls. If NCCL cannot split (before 2.18), the first
// communicator also gets the collective calls.
//
// Thread-compatible, except failure() and Abort(), which any thread may call. NCCL allows one thread at a time on a
// communicator. The exception is ncclCommGetAsyncError, which does not have to wait for a call of the child. For all
// other calls mu_ ensures that one thread at a time uses a communicator, and that no thread uses a communicator that is
// being freed.
class NcclGroups {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::vector<RankId> job_ranks;  // as in NcclCommunicator
    std::shared_ptr<Device> device;
    std::shared_ptr<const NcclLibrary> library;
    // Brings `bytes` bytes from the first member of the call's group to the others. All of the `size` ranks call it.
    std::function<absl::Status(const CallInfo& info, void* data, size_t bytes)> share;
    // The least time that NCCL gets to connect members that have all arrived.
    absl::Duration init_deadline = absl::Minutes(1);
    absl::Duration end_deadline = absl::Seconds(5);  // how long peers have to end their communicators
    std::function<absl::Status()> job_failure;
  };

  // One communicator. Belongs to NcclGroups.
  class Entry;

  explicit NcclGroups(Options options);

  // This rank's number in the job, for messages.
  RankId self() const { return JobRank(options_.rank); }

  // Like End.
  ~NcclGroups();

  // Ends the communicators together with the peers. If the peers do not end their communicators within seconds, End
  // aborts the communicators of this rank. If NCCL does not return from a call within seconds, because a peer is
  // stopped, End leaves the call to a detached thread and abandons the device. Abort and failure() do not wait for End.
  // Registered memory may be freed afterwards. If the device is held, End leaves the communicators to the end of the
  // process.
  // REQUIRES: all work on the streams has ended, or Abort has been called.
  void End();

  // Returns the communicator of these members; nullptr if this rank is not a member or is the only member. All ranks of
  // the job call it at the same point in the sequence of calls. Errors: DEADLINE_EXCEEDED, UNAVAILABLE, the job's
  // failure. The errors name the ranks and contain NCCL's text.
  absl::StatusOr<Entry*> For(const CallInfo& info, const Members& members);

  // Runs `enqueue`, which calls NCCL's functions, as one NCCL group. Returns when all of the group's work is on its
  // stream. NCCL may wait for the other members, if they have to be connected first. Abort by another thread ends this
  // wait.
  using Enqueue = absl::FunctionRef<NcclResult(const NcclFunctions& nccl, NcclHandle handle)>;
  absl::Status Run(const CallInfo& info, Entry* entry, Enqueue enqueue);

  // Registers memory with NCCL for `entry`'s collectives. NCCL's transports can then use the memory directly, if they
  // support direct use. All members must register memory for the same calls, because NCCL's choice of how to move the
  // data depends on the registration. The memory must be kept until the communicators have ended. Errors: NCCL's
  // errors, which end the job.
  absl::Status Register(Entry* entry, void* memory, size_t bytes);

  // Returns the first failure that NCCL or this class has found, or OK.
  absl::Status failure() const;

  // Aborts all communicators, unless the device is held (Device::Hold). Idempotent. If some communicators have not
  // ended after seconds, Abort leaves them to detached threads and abandons the device, which is stuck. If the standard
  // library throws std::bad_alloc, Abort throws it too, and the next call of Abort aborts.
  void Abort();

 private:
  // The first member's message to the other members of a group.
  struct Invitation {
    NcclUniqueId id;
    NcclResult result;
    char version[32];  // version of the member's NCCL library
  };

  class Child;
  struct Deregistration;

  // A wait for NCCL to finish an operation that it has begun.
  struct Wait {
    absl::string_view doing;         // "ending the communicator", for messages; empty: the call itself
    const CallInfo* call = nullptr;  // the call that is blocked; nullptr: none
    WaitLimits limits;

    std::string What() const;
  };

  RankId JobRank(RankId rank) const {
    return options_.job_ranks.empty() ? rank : options_.job_ranks[static_cast<size_t>(rank)];
  }

  // Brings the id from the first member to the others. All ranks take part, because `share` requires this. Errors:
  // FAILED_PRECONDITION if the members' versions of NCCL differ.
  absl::StatusOr<NcclUniqueId> AgreeOnId(const CallInfo& info, const Members& members, const Entry& entry);
  absl::Status Connect(const CallInfo& info, const NcclUniqueId& id, const Members& members, Entry* entry);
  // Makes the child, if NCCL can split communicators.
  absl::Status Split(const CallInfo& info, const Members& members, Entry* entry);
  // Waits for what `begin(handle slot)` has begun.
  absl::Status Make(const CallInfo& info, Entry* entry, absl::string_view doing, absl::FunctionRef<NcclResult()> begin);
  // Run one group of NCCL's calls. RunInChild does this in the calling thread, RunInThread in a thread of NCCL.
  absl::Status RunInChild(const CallInfo& info, Entry* entry, Enqueue enqueue);
  absl::Status RunInThread(const CallInfo& info, Entry* entry, Enqueue enqueue);
  NcclResult RunGroup(NcclHandle handle, Enqueue enqueue) const;
  // Waits until NCCL has finished what it began. A wait longer than the warning time is logged once.
  absl::Status AwaitReady(Entry* entry, const Wait& wait);
  // Whether NCCL has finished what it began.
  absl::StatusOr<bool> IsReady(Entry* entry, const Wait& wait);
  void Report(const Entry& entry, const Wait& wait) const;
  // Records `failure` if it is the first, and returns the first.
  absl::Status Fail(absl::Status failure) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Explain(const Entry& entry, NcclHandle handle, NcclResult result, absl::string_view what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The communicator that memory is registered with.
  static NcclHandle OfCalls(const Entry& entry);
  // Takes the memory back from all communicators. Returns false if the device has been abandoned.
  bool Deregister();
  void Finalize();
  void FinalizeChildren();
  // Makes the calls, each on its own thread. The calls must own what they use. If some calls do not end in time,
  // abandons the device because of `what`, and returns false.
  bool CallInTime(SideBySide calls, absl::Duration timeout, absl::string_view what);
  // Takes all handles from the entries and returns the calls that abort them; nullopt if no handle is left.
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
