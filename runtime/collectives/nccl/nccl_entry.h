// SPDX-License-Identifier: Apache-2.0

// The internals of NcclGroups, included only by its sources.
#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_ENTRY_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_ENTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"

namespace ronda {

void LogIfError(RankId rank, const absl::Status& status);

// Aborts a communicator, even if the device cannot be made current.
void AbortOne(RankId rank, Device& device, const NcclFunctions& nccl, NcclHandle handle);

// A blocking communicator, which counts the threads inside its calls.
//
// Thread-safe.
class NcclGroups::Child {
 public:
  // Returns the address at which NCCL stores the handle while it creates the child.
  NcclHandle* place() { return &handle_; }

  // Returns the handle for a call, after which the caller must call Leave().
  NcclHandle Enter() {
    const MutexLock lock(&mu_);
    ++inside_;
    return handle_;
  }
  void Leave() {
    {
      const MutexLock lock(&mu_);
      --inside_;
    }
    left_.NotifyAll();
  }

  NcclHandle handle() {
    const MutexLock lock(&mu_);
    return handle_;
  }
  NcclHandle Take() { return Put(nullptr); }
  NcclHandle Put(NcclHandle handle) {
    const MutexLock lock(&mu_);
    return std::exchange(handle_, handle);
  }
  // Waits until no thread is inside a call, and takes the handle.
  NcclHandle TakeWhenFree() {
    const MutexLock lock(&mu_);
    while (inside_ > 0) left_.Wait(&mu_);
    return std::exchange(handle_, nullptr);
  }

 private:
  Mutex mu_;
  CondVar left_;
  int inside_ ABSL_GUARDED_BY(mu_) = 0;
  NcclHandle handle_ = nullptr;  // guarded by mu_ once NCCL has stored it
};

class NcclGroups::Entry {
 public:
  // `names` are the members' numbers in the job, for messages.
  Entry(NcclUse its_use, std::vector<RankId> ranks, std::vector<RankId> names)
      : use(its_use), ranks_(std::move(ranks)), names_(std::move(names)) {}

  const NcclUse use;

  // Returns a text such as "ranks 0, 2 and 3".
  std::string Name() const;

  bool IsOf(const Members& members) const;

  // Guarded by NcclGroups::mu_.
  NcclHandle handle = nullptr;        // nonblocking
  std::shared_ptr<Child> child = {};  // blocking; nullptr: there is none
  std::shared_ptr<Child> aside = {};  // being created or finalized; only used to abort it
  struct Registration {
    enum class Kind : uint8_t { kLocal, kWindow } kind = Kind::kLocal;
    void* memory = nullptr;
    void* registration = nullptr;  // NCCL's handle; nullptr: none is needed
  };
  std::vector<Registration> registrations;

 private:
  const std::vector<RankId> ranks_;
  const std::vector<RankId> names_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_ENTRY_H_
