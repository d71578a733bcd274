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

// Frees the memory of a result. Returns the memory to `blocks`, or to the heap if `blocks` is nullptr.
struct ResultDeleter {
  std::shared_ptr<DeviceBlocks> blocks;
  size_t bytes = 0;

  void operator()(std::byte* data) const;
};

// The memory of a result, if Ronda owns this memory. The result is in the same kind of memory as the tensor, on the
// host or on a device.
using ResultData = std::unique_ptr<std::byte[], ResultDeleter>;

class DeviceCompletion;
class WaitingStream;

// Numbers of rows, one per rank. For up to 8 ranks RowCounts needs no allocation.
using RowCounts = absl::InlinedVector<int64_t, 8>;

// The results of an operation, which its handle keeps.
struct OperationResult {
  // For allgather, gather (on the root), scatter, reducescatter and alltoall: the rows that this rank receives, in
  // memory of Ronda or of the caller. If the tensor is in the memory of a GPU, the rows are in the memory of this GPU
  // as well. Ronda reuses its own memory only after the memory has been freed and each stream that waits for the
  // operation (Handle::OrderBefore) has done all work that it had when the memory was freed. If other work on the
  // device may still use the memory, the caller must call Handle::FreeAfter.
  ResultData data;
  const void* callers = nullptr;  // not nullptr: the rows are here
  const void* rows() const { return callers != nullptr ? callers : data.get(); }
  // If this status is not OK, the operation was carried out, but this rank does not get the result.
  absl::Status status = absl::OkStatus();
  // For allgather, gather (on the root) and alltoall: how many rows each member of the process set has sent. For
  // scatter and reducescatter: only one entry, the number of received rows.
  RowCounts first_dims;
  // For send/recv: the sender. For join: the last rank that has joined. For add_process_set: the id of the set. For
  // allgather and gather: the number of ranks over which an average is taken.
  int64_t number = 0;
  // Whether the result on any rank has an element that is infinite or NaN. Only set if overflow detection was
  // requested.
  enum class Overflow : uint8_t { kNone, kFound } overflow = Overflow::kNone;
  // The overflow flag that a device writes before the operation is complete; not 0 if an overflow was found. If this
  // pointer is nullptr, `overflow` is valid instead.
  std::shared_ptr<const uint8_t> device_overflow = nullptr;
  // If this pointer is not nullptr, the operation has been given to a device, which may not have carried it out yet.
  std::shared_ptr<DeviceCompletion> completion = nullptr;

  // REQUIRES: the operation is complete.
  Overflow FindOverflow() const {
    if (device_overflow == nullptr) return overflow;
    return *device_overflow != 0 ? Overflow::kFound : Overflow::kNone;
  }
};

// The future of one submission. The progress thread completes the handle exactly once. Any number of threads may wait
// for the handle. If the operation's tensor is in the memory of a device, "complete" only means that the operation has
// been given to the device. In this case OperationResult::completion reports the end of the work.
//
// Thread-safe. Memory ordering: status_, result_ and sender_ are written before a release store sets state_ to kDone,
// and never after this store. A thread whose acquire load returns kDone may read these members without the lock.
//
// No wake-up is lost, and a completion costs no wake-up if no thread waits. A thread that is about to sleep, or that
// adds a callback, changes kPending to kAwaited under the lock. This change fails if the operation has already
// completed. If the change succeeds, the completing thread finds kAwaited, and takes the lock before it notifies the
// waiting threads. When it gets the lock, the waiting thread already sleeps, or its callback is already in the list.
class Handle {
 public:
  // `callbacks` runs the functions given to OnCompletion. `progress`, which may be null, belongs to the engine that
  // carries out the operation. `tensor` is the tensor's name, for messages.
  Handle(std::shared_ptr<CallbackThread> callbacks, std::shared_ptr<ProgressEngine> progress,
         std::shared_ptr<const std::string> tensor)
      : callback_thread_(std::move(callbacks)), progress_(std::move(progress)), tensor_(std::move(tensor)) {}

  // Whether the operation is complete, or is under way on a device.
  bool launched() const { return state_.load(std::memory_order_acquire) == State::kDone; }

  // Whether launched() is true or MonotonicTime() has reached `deadline`. A loop that polls for messages calls this
  // function. `*looks` counts the calls. A clock read takes as long as a look for messages, so only one call in 64
  // reads the clock.
  bool IsLaunchedOrPast(absl::Duration deadline, int* looks) const {
    return launched() || (++*looks % 64 == 0 && MonotonicTime() >= deadline);
  }

  // Whether the operation is complete, also on the device.
  bool done() const {
    const bool done = launched() && (result_.completion == nullptr || IsPastDevice());
    if (done) RecordLearned();
    return done;
  }

  // Blocks until the operation has completed, and returns the operation's status. An error status names the tensor. If
  // no other thread drives the progress engine, the calling thread carries out the operation itself.
  absl::Status Wait() const;

  // Waits as Wait does, but only until MonotonicTime() reaches `deadline`. Returns whether the operation has completed.
  bool WaitUntil(absl::Duration deadline) const;

  // Blocks until launched() is true, or until MonotonicTime() reaches `deadline`. Returns launched().
  bool LaunchesBy(absl::Duration deadline) const {
    AwaitLaunch(deadline);
    return launched();
  }

  // Makes all later work on `stream` (a cudaStream_t) wait for the operation. Like Wait, blocks until the operation has
  // been given to the device, but does not wait for the device. For a tensor in the host's memory OrderBefore does the
  // same as Wait. The stream must live as long as the handle, because Ronda reuses the result's memory only after the
  // stream's work.
  // Errors: the operation's error, if the error is known when OrderBefore returns.
  absl::Status OrderBefore(WaitingStream& stream) const;
  absl::Status OrderBefore(void* stream) const;

  // REQUIRES: Wait() or OrderBefore() has returned OK. After OrderBefore(), FindOverflow() may not be called yet.
  const OperationResult& result() const;

  // Makes sure that the result's memory is not reused before the device has done all work that is now on `stream` (a
  // cudaStream_t), even if the last reference to this handle is gone. Does nothing if the result is not in device
  // memory of Ronda.
  // REQUIRES: launched() is true, and FreeAfter has not been called before.
  // Errors: INVALID_ARGUMENT if the stream is being captured; the device's errors. After an error nothing has changed.
  absl::Status FreeAfter(void* stream);

  // Does the same as OnCompletion, but `callback` is already called when launched() becomes true. If the operation is
  // still under way on a device at this time, the callback's status is OK.
  absl::Status OnLaunch(std::function<void(const absl::Status&)> callback);

  // Calls `callback` once, with the operation's status, after the operation has completed, or soon if it has completed
  // already. The callback runs on the runtime's callback thread, after the callbacks of operations that completed
  // earlier. It may submit tensors and wait for other handles. If it throws, the job fails: "callback of tensor 'x'
  // threw: ...". After the runtime is gone, the callback is called in the calling thread.
  // Errors: RESOURCE_EXHAUSTED if the system cannot create a thread. In this case `callback` is not called.
  absl::Status OnCompletion(std::function<void(const absl::Status&)> callback);

  // If the operation is a receive in the order of arrival (IsOrderedReceive), returns the rank whose message it has
  // got, even if the receive has failed later. Returns nullopt if there is no message. REQUIRES: launched().
  std::optional<int> sender() const { return sender_; }

  // Records that the received message comes from `rank`. Only the progress thread may call this, before Complete.
  void RecordSender(int rank) { sender_ = rank; }

  // Completes the handle, because the operation has ended. Only the progress thread (progress_engine.h) may call
  // Complete, and only once. Allocates nothing.
  void Complete(absl::Status status);
  void Complete(OperationResult result);

 private:
  enum class State : uint8_t { kPending, kAwaited, kDone };

  // Records that the program knows that this operation is complete. The operation is counted once, or a few times if
  // several threads learn of the completion at the same time.
  void RecordLearned() const {
    if (progress_ == nullptr || learned_.load(std::memory_order_acquire)) return;
    progress_->RecordLearned();
    // The release store makes sure that a thread that sees this value also sees the count.
    learned_.store(true, std::memory_order_release);
  }

  bool IsPastDevice() const;
  // Returns the DeviceBlocks from which the result's memory comes; nullptr if the memory comes from elsewhere.
  DeviceBlocks* BlocksOfResult() const;
  // Returns the operation's status. REQUIRES: done() is true.
  absl::Status KnownStatus() const;
  // Waits until the operation is launched, but at most until `deadline`.
  void AwaitLaunch(absl::Duration deadline = absl::InfiniteDuration()) const;
  void SleepUntilLaunched(absl::Duration deadline) const;
  // Records that a thread or a callback waits for the completion. Returns false if the operation has already completed.
  bool AnnounceWaiterLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notifies all threads that wait for the completion, and posts the callbacks.
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

// Keeps the memory of objects that are created and destroyed all the time, such as handles. The pool allocates memory
// only if more objects exist at once than ever before.
//
// All blocks of a pool have the size of the first requested block. Requests of other sizes go to the global operator
// new. Thread-safe.
//
// Blocks may outlive the pool's owner, because the pool is destroyed only when it has no owner and all blocks have been
// freed. So the holder of a block needs no reference to the pool. (Otherwise all threads would have to change one
// reference count for each block.)
class BlockPool {
 public:
  struct GiveUp {
    void operator()(BlockPool* pool) const { pool->LoseOwner(); }
  };
  using Owner = std::unique_ptr<BlockPool, GiveUp>;

  static Owner Create() { return Owner(new BlockPool); }

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns memory of `bytes`, aligned as by operator new. Throws std::bad_alloc.
  void* Allocate(size_t bytes);

  // Takes back a block from Allocate(bytes).
  void Free(void* block, size_t bytes) noexcept;

 private:
  BlockPool() = default;
  ~BlockPool();

  void LoseOwner();

  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !is_owned_ && in_use_ == 0; }

  // Prefetches the cache lines of the next free block. If many objects live at once, this block was last used long ago,
  // and is in no cache.
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

// An allocator for std::allocate_shared, which puts the object and its counter into one block of `pool`. The owner of
// the pool must live as long as the allocator allocates objects. The objects may outlive the owner.
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
