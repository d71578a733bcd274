// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_HANDLE_H_
#define RONDA_RUNTIME_ENGINE_HANDLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/progress_engine.h"

namespace ronda {

class DeviceBlocks;

// Frees a result's memory: gives it back to `blocks`, or to the heap if `blocks` is nullptr.
struct ResultDeleter {
  std::shared_ptr<DeviceBlocks> blocks;
  size_t bytes = 0;

  void operator()(std::byte* data) const;
};

// The memory of a result that belongs to Ronda. It is where the tensor is: on the host or a device.
using ResultData = std::unique_ptr<std::byte[], ResultDeleter>;

class DeviceCompletion;
class WaitingStream;

// Numbers of rows, one per rank. For few ranks it needs no allocation.
using RowCounts = absl::InlinedVector<int64_t, 8>;

// The results that an operation leaves with its handle.
struct OperationResult {
  // allgather, gather (on the root), scatter, reducescatter, alltoall: the rows that this rank receives, in Ronda's
  // memory or the caller's. If the tensor is in the memory of a GPU, the rows are there as well. Ronda uses its own
  // memory again after the memory has been freed, and after the streams that were ordered behind the operation
  // (Handle::OrderBefore) have done all work that they had by then. If the device may not have finished other work on
  // the memory, the caller uses Handle::FreeAfter.
  ResultData data;
  const void* callers = nullptr;  // not nullptr: the rows are here
  const void* rows() const { return callers != nullptr ? callers : data.get(); }
  // Not OK: the operation was carried out, but this rank does not get its result.
  absl::Status status = absl::OkStatus();
  // allgather, gather (on the root), alltoall: how many rows each member of the process set has sent. scatter,
  // reducescatter: one entry, the number of rows received.
  RowCounts first_dims;
  // send/recv: the sender; join: the last rank to join; add_process_set: the id of the set; allgather, gather: how many
  // ranks an average counts.
  int64_t number = 0;
  // Whether the result, on any rank, has an element that is infinite or NaN. Set only if detection was requested.
  enum class Overflow : uint8_t { kNone, kFound } overflow = Overflow::kNone;
  // The flag as a device writes it: not 0 if found, once the operation is complete. nullptr: see `overflow`.
  std::shared_ptr<const uint8_t> device_overflow = nullptr;
  // Not nullptr: the operation has been given to a device, which has not carried it out yet.
  std::shared_ptr<DeviceCompletion> completion = nullptr;

  // REQUIRES: the operation is complete.
  Overflow FindOverflow() const {
    if (device_overflow == nullptr) return overflow;
    return *device_overflow != 0 ? Overflow::kFound : Overflow::kNone;
  }
};

// The future of one submission. The progress thread completes it exactly once; any number of threads may wait for it.
// If the operation is in the memory of a device, "complete" means only that it has been given to the device;
// OperationResult::completion reports the rest.
//
// Thread-safe. Memory ordering: status_, result_ and sender_ are written before state_ becomes kDone with release, and
// not after that. A thread that loads kDone with acquire may read them without the lock.
//
// No wake-up is lost, and a completion costs no wake-up if no thread waits. A thread that is about to sleep, or that
// adds a callback, changes kPending to kAwaited under the lock. This change fails if the completion came first. If it
// succeeds, the completing thread finds kAwaited and takes the lock before it notifies. By then the waiting thread
// sleeps, or its callback is in the list.
class Handle {
 public:
  // `callbacks` runs the functions given to OnCompletion. `progress`, which may be null, belongs to the engine that
  // carries out the operation. `tensor` is the tensor's name, for messages.
  Handle(std::shared_ptr<CallbackThread> callbacks, std::shared_ptr<ProgressEngine> progress,
         std::shared_ptr<const std::string> tensor)
      : callback_thread_(std::move(callbacks)), progress_(std::move(progress)), tensor_(std::move(tensor)) {}

  // Whether the operation is complete, or is under way on a device.
  bool launched() const { return state_.load(std::memory_order_acquire) == State::kDone; }

  // Whether launched(), or MonotonicTime() has reached `deadline`. For a loop that polls; `*looks` counts the calls.
  // Reading the clock costs as much as looking at the messages, so only one call in 64 reads it.
  bool IsLaunchedOrPast(absl::Duration deadline, int* looks) const {
    return launched() || (++*looks % 64 == 0 && MonotonicTime() >= deadline);
  }

  // Whether the operation is complete, also on the device.
  bool done() const {
    const bool done = launched() && (result_.completion == nullptr || IsPastDevice());
    if (done) RecordLearned();
    return done;
  }

  // Blocks until the operation has completed; returns its status. An error status names the tensor. If no other thread
  // drives, the calling thread carries out the operation itself.
  absl::Status Wait() const;

  // As Wait, but at most until MonotonicTime() reaches `deadline`. Returns whether the operation has completed.
  bool WaitUntil(absl::Duration deadline) const;

  // Blocks until launched(), or until MonotonicTime() reaches `deadline`. Returns launched().
  bool LaunchesBy(absl::Duration deadline) const {
    AwaitLaunch(deadline);
    return launched();
  }

  // Makes the work that is put on `stream` (a cudaStream_t) from now on wait for the operation. Blocks like Wait until
  // the operation has been given to the device, but does not wait for the device. For a tensor in the host's memory
  // this is the same as Wait. The stream must live as long as the handle, because the result's memory is used again
  // only after the stream's work.
  // Errors: the operation's errors, as far as they are known by then.
  absl::Status OrderBefore(WaitingStream& stream) const;
  absl::Status OrderBefore(void* stream) const;

  // REQUIRES: Wait() or OrderBefore() has returned OK. After OrderBefore(), `overflow` is not known yet.
  const OperationResult& result() const;

  // After the last reference to this handle is gone, keeps the memory of the result until the device has done the work
  // that `stream` (a cudaStream_t) has so far. Does nothing if the result is not in device memory of Ronda.
  // REQUIRES: launched(); called once.
  // Errors: INVALID_ARGUMENT if the stream is being captured; the device's errors. After an error nothing has changed.
  absl::Status FreeAfter(void* stream);

  // As OnCompletion, but `callback` is called once launched() is true. If the operation is then under way on a device,
  // the status is OK.
  absl::Status OnLaunch(std::function<void(const absl::Status&)> callback);

  // Calls `callback` once, with the operation's status, after the operation has completed, or soon if it has completed
  // already. The callback runs on the runtime's callback thread, after the callbacks of operations that completed
  // earlier. It may submit tensors and wait for other handles. If it throws, the job fails: "callback of tensor 'x'
  // threw: ...". After the runtime is gone, the callback is called in the calling thread.
  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give; then `callback` is not called.
  absl::Status OnCompletion(std::function<void(const absl::Status&)> callback);

  // Returns the rank whose message a receive in order of arrival (IsOrderedReceive) has got, even if the receive has
  // failed since; nullopt if it has got no message. REQUIRES: launched().
  std::optional<int> sender() const { return sender_; }

  // For the progress thread, before Complete: the message comes from this rank.
  void RecordSender(int rank) { sender_ = rank; }

  // For the progress thread (progress_engine.h): the operation has ended. Allocates nothing. A second call is a bug.
  void Complete(absl::Status status);
  void Complete(OperationResult result);

 private:
  enum class State : uint8_t { kPending, kAwaited, kDone };

  // Records that the program knows that this operation is complete. The operation is counted once, or a few times if
  // several threads learn of its completion at the same time.
  void RecordLearned() const {
    if (progress_ == nullptr || learned_.load(std::memory_order_acquire)) return;
    progress_->RecordLearned();
    // A thread that sees this value also sees the count.
    learned_.store(true, std::memory_order_release);
  }

  bool IsPastDevice() const;
  // The blocks that the result's memory comes from; nullptr if it comes from none.
  DeviceBlocks* BlocksOfResult() const;
  // REQUIRES: done().
  absl::Status KnownStatus() const;
  // Until `deadline` at the latest.
  void AwaitLaunch(absl::Duration deadline = absl::InfiniteDuration()) const;
  void SleepUntilLaunched(absl::Duration deadline) const;
  // Records that some thread or callback awaits the completion. Returns false if it has completed already.
  bool AnnounceWaiterLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notifies all that await the completion.
  void TellWaiters();
  void Post(std::list<CallbackThread::Callback> callbacks, const absl::Status& status) const;

  const std::shared_ptr<CallbackThread> callback_thread_;
  const std::shared_ptr<ProgressEngine> progress_;
  const std::shared_ptr<const std::string> tensor_;
  mutable Mutex mu_;
  mutable CondVar completed_;
  mutable std::atomic<State> state_{State::kPending};
  mutable std::atomic<bool> learned_{false};
  std::list<CallbackThread::Callback> callbacks_ ABSL_GUARDED_BY(mu_);         // for the completion
  std::list<CallbackThread::Callback> launch_callbacks_ ABSL_GUARDED_BY(mu_);  // for the launch
  absl::Status status_;  // this and result_ are written before state_ is kDone, and read after that;
                         // on a device: as far as the host knows
  OperationResult result_;
  std::optional<int> sender_;
};

// Keeps the memory of objects that are created and destroyed all the time, such as handles. Once the largest number of
// objects has existed, no further object needs an allocation.
//
// All blocks of a pool have the size of the first; requests of other sizes go to the global operator new. Thread-safe.
//
// Blocks may outlive the owner: the pool is destroyed when it has no owner and the last block has come back. So the
// holder of a block needs no reference to the pool. (All threads would write to such a reference count with every
// block.)
class BlockPool {
 public:
  struct GiveUp {
    void operator()(BlockPool* pool) const { pool->LoseOwner(); }
  };
  using Owner = std::unique_ptr<BlockPool, GiveUp>;

  static Owner Create() { return Owner(new BlockPool); }

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // `bytes`, aligned as by operator new. Throws std::bad_alloc.
  void* Allocate(size_t bytes);

  // Takes back a block from Allocate(bytes).
  void Free(void* block, size_t bytes) noexcept;

 private:
  BlockPool() = default;
  ~BlockPool();

  void LoseOwner();

  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !is_owned_ && in_use_ == 0; }

  // Prefetches the cache lines of the next block: if many objects live at once, it was last used long ago.
  void PrefetchNextLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Stored in each block that is not in use.
  struct Link {
    Link* next;
  };

  Mutex mu_;
  Link* free_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t block_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // 0: not known yet
  size_t in_use_ ABSL_GUARDED_BY(mu_) = 0;       // blocks of all sizes
  bool is_owned_ ABSL_GUARDED_BY(mu_) = true;
};

// For std::allocate_shared: the object and its counter are in one block of `pool`. The owner of the pool must live as
// long as this allocator is used to allocate; the objects may outlive it.
template <typename T>
class PoolAllocator {
 public:
  using value_type = T;

  explicit PoolAllocator(BlockPool* pool) : pool_(pool) {}
  template <typename U>
  PoolAllocator(const PoolAllocator<U>& other) : pool_(other.pool()) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(pool_->Allocate(count * sizeof(T)));
  }
  void deallocate(T* block, size_t count) noexcept { pool_->Free(block, count * sizeof(T)); }

  BlockPool* pool() const { return pool_; }

  template <typename U>
  friend bool operator==(const PoolAllocator& a, const PoolAllocator<U>& b) {
    return a.pool() == b.pool();
  }

 private:
  BlockPool* pool_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_HANDLE_H_
