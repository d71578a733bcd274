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

// NCCL's communicators of one rank: one a group of ranks, made when the group first has something to do.
//
// They do not block: NCCL starts a thread for every call, which costs some microseconds of the host's time, and in
// return no call of NCCL's can hang, whatever has become of the peers. What NCCL has not yet put onto the stream when a
// call returns is waited for here, with a warning and a deadline (docs/design.md: why it is done so).
//
// Thread-compatible but for failure() and Abort(), which any thread may call. NCCL itself wants one thread at a time on
// a communicator: mu_ sees to that, and to nobody using one that is being freed.
class NcclGroups {
 public:
  struct Options {
    RankId rank = 0;
    int size = 1;
    std::vector<RankId> job_ranks;  // as of NcclCommunicator
    std::shared_ptr<Device> device;
    std::shared_ptr<const NcclLibrary> library;
    Communicator* host = nullptr;
    absl::Duration init_deadline = absl::Minutes(1);  // for NCCL to connect members that have all come to it, at least
    std::function<absl::Status()> job_failure;
  };

  // One of them. Belongs to NcclGroups.
  class Entry;

  explicit NcclGroups(Options options);

  // What messages call this rank.
  RankId self() const { return JobRank(options_.rank); }

  // Ends the communicators together with the peers or, if these do not come to that within seconds, without them.
  ~NcclGroups();

  // The communicator of these members; nullptr: this rank is none, or the only one. All ranks of the job call it, at
  // the same place in the sequence of calls. Errors: DEADLINE_EXCEEDED, UNAVAILABLE, the job's failure; they name the
  // ranks, and say what NCCL said.
  absl::StatusOr<Entry*> For(const CallInfo& info, const Members& members);

  // Calls `enqueue`, which calls NCCL's functions, as one of NCCL's groups, and returns when all of it is on its
  // stream.
  using Enqueue = absl::FunctionRef<NcclResult(const NcclFunctions& nccl, NcclHandle handle)>;
  absl::Status Run(const CallInfo& info, Entry* entry, Enqueue enqueue);

  // Lets NCCL's transports use this memory directly, if they can, in `entry`'s collectives.
  void Register(Entry* entry, void* memory, size_t bytes);
  // The memory is about to be freed.
  void Deregister(void* memory);

  // What went wrong first, as far as NCCL or we have noticed; OK if nothing.
  absl::Status failure() const;

  // Idempotent. Once communicators have not come to their ends for seconds, they are left to threads that nobody waits
  // for, and the device is abandoned: it is stuck. Throws std::bad_alloc where the standard library does; the next call
  // aborts then.
  void Abort();

 private:
  // What the first member of a group tells the others.
  struct Invitation {
    NcclUniqueId id;
    NcclResult result;
    char version[32];  // of its NCCL
  };

  // For NCCL to do what it has begun.
  struct Wait {
    absl::string_view doing;         // "ending the communicator", for messages; empty: the call itself
    const CallInfo* call = nullptr;  // that cannot go on; nullptr: none
    WaitLimits limits;

    std::string What() const;
  };

  RankId JobRank(RankId rank) const {
    return options_.job_ranks.empty() ? rank : options_.job_ranks[static_cast<size_t>(rank)];
  }

  // Brings the id from the first member to the others. All ranks of the job take part, as `host` wants it.
  // Errors: FAILED_PRECONDITION if their versions of NCCL differ.
  absl::StatusOr<NcclUniqueId> AgreeOnId(const CallInfo& info, const Members& members, const Entry& entry);
  absl::Status Connect(const CallInfo& info, const NcclUniqueId& id, const Members& members, Entry* entry);
  // Waits until NCCL has done what it began. A wait beyond the warning time is logged and, if the call is voted on,
  // told to who makes it, once.
  absl::Status AwaitReady(Entry* entry, const Wait& wait);
  // Whether it has.
  absl::StatusOr<bool> IsReady(Entry* entry, const Wait& wait);
  void Report(const Entry& entry, const Wait& wait) const;
  // Remembers `failure` if it is the first, and returns the first.
  absl::Status Fail(absl::Status failure) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Explain(const Entry& entry, NcclResult result, absl::string_view what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finalize();
  // What is to abort those that there are, which entries do not have any more; nullopt: there are none.
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
