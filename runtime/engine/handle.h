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

// Returns the memory of a result to `blocks`, or to the heap if `blocks` is nullptr.
struct ResultDeleter {
  std::shared_ptr<DeviceBlocks> blocks;
  size_t bytes = 0;

  void operator()(std::byte* data) const;
};

// The memory of a result, if Ronda owns it. It is of the same kind as the tensor's memory: host memory, or the memory
// of a device.
using ResultData = std::unique_ptr<std::byte[], ResultDeleter>;

class CapturedCall;
class DeviceCompletion;
class WaitingStream;

// The numbers of rows, one per rank. Up to 8 ranks need no allocation.
using RowCounts = absl::InlinedVector<int64_t, 8>;

// The results of an operation, which its handle keeps.
struct OperationResult {
  // For allgather, gather (on the root), scatter, reducescatter and alltoall: the rows that this rank receives, in
  // memory of Ronda or of the caller. If the tensor is in GPU memory, the rows are in the memory of the same GPU. Ronda
  // reuses its own memory only after the memory has been freed, and each stream that waits for the operation
  // (Handle::OrderBefore) has done all work that it had at that time. If other work on the device may still use the
  // memory, the caller must call Handle::FreeAfter.
  ResultData data;
  const void* callers = nullptr;  // not nullptr: the rows are here
  const void* rows() const { return callers != nullptr ? callers : data.get(); }
  // An error means that the operation was carried out, but this rank does not get its result.
  absl::Status status = absl::OkStatus();
  // For allgather, gather (on the root) and alltoall: how many rows each member of the process set sent. For scatter
  // and reducescatter: a single entry, the number of rows that this rank received.
  RowCounts first_dims;
  // For send/recv: the sender. For join: the last rank that has joined. For add_process_set: the id of the set. For
  // allgather and gather: the number of ranks over which an average is taken.
  int64_t number = 0;
  // Whether the result has an element that is infinite or NaN, on any rank. Only set if the request asks for overflow
  // detection.
  enum class Overflow : uint8_t { kNone, kFound } overflow = Overflow::kNone;
  // The overflow flag that a device writes before the operation is complete; not 0 if an overflow was found. If it is
  // nullptr, `overflow` is valid instead.
  std::shared_ptr<const uint8_t> device_overflow = nullptr;
  // Not nullptr if the operation has been enqueued on a device, which may not have carried it out yet.
  std::shared_ptr<DeviceCompletion> completion = nullptr;
  // If not nullptr, the operation is part of a CUDA graph. It counts as complete, because each launch of the graph
  // carries it out. Streams wait for it in the graph.
  std::shared_ptr<const CapturedCall> captured = nullptr;

  // REQUIRES: the operation is complete.
  Overflow FindOverflow() const {
    if (device_overflow == nullptr) return overflow;
    return *device_overflow != 0 ? Overflow::kFound : Overflow::kNone;
  }
};

// The future of one submission. The progress thread completes the handle exactly once. Any number of threads may wait
// for the handle. If the tensor is in device memory, "complete" only means that the operation has been enqueued on the
// device. OperationResult::completion then reports when the device has done the work.
//
// Thread-safe. Memory ordering: status_, result_ and sender_ are written before state_ is set to kDone by a release
// store, and never after this store. So a thread whose acquire load of state_ returns kDone may read status_, result_
// and sender_ without the lock.
//
// No wake-up is lost, and completing an operation costs no wake-up if no thread waits. A thread that is about to sleep,
// or that adds a callback, changes kPending to kAwaited under the lock. This change fails if the operation has already
// completed. If it succeeds, the completing thread finds kAwaited, and takes the lock before it notifies the waiting
// threads. By then, the waiting thread is asleep, or its callback is in the list.
class Handle {
 public:
  // `callbacks` runs the functions given to OnCompletion. `progress`, which may be null, is the engine that carries out
  // the operation. `tensor` is the tensor's name, for messages.
  Handle(std::shared_ptr<CallbackThread> callbacks, std::shared_ptr<ProgressEngine> progress,
         std::shared_ptr<const std::string> tensor)
      : callback_thread_(std::move(callbacks)), progress_(std::move(progress)), tensor_(std::move(tensor)) {}

  // Returns whether the operation is complete, or has been enqueued on a device.
  bool launched() const { return state_.load(std::memory_order_acquire) == State::kDone; }

  // Returns whether launched() is true, or MonotonicTime() has reached `deadline`. For loops that poll for messages:
  // `*looks` counts the calls, and only one call in 64 reads the clock, because reading the clock takes as long as a
  // look for messages.
  bool IsLaunchedOrPast(absl::Duration deadline, int* looks) const {
    return launched() || (++*looks % 64 == 0 && MonotonicTime() >= deadline);
  }

  // Returns whether the operation is complete, including its work on a device.
  bool done() const {
    const bool done = launched() && (result_.completion == nullptr || IsPastDevice());
    if (done) RecordLearned();
    return done;
  }

  // Blocks until the operation has completed, and returns the operation's status. If the status is an error, its text
  // names the tensor. If no other thread drives the progress engine, the calling thread carries out the operation
  // itself.
  absl::Status Wait() const;

  // Like Wait, but returns at the latest when MonotonicTime() reaches `deadline`. Returns whether the operation has
  // completed.
  bool WaitUntil(absl::Duration deadline) const;

  // Blocks until launched() is true, or MonotonicTime() reaches `deadline`. Returns launched().
  bool LaunchesBy(absl::Duration deadline) const {
    AwaitLaunch(deadline);
    return launched();
  }

  // Makes all later work on `stream` (a cudaStream_t) wait for the operation. Blocks until the operation has been
  // enqueued on the device, but does not wait for the device. For a tensor in host memory, OrderBefore does the same as
  // Wait. The stream must exist as long as the handle, because Ronda reuses the result's memory only after the stream's
  // work.
  // Errors: the operation's error, if the error is known when OrderBefore returns; INVALID_ARGUMENT if the operation is
  // part of a CUDA graph, and `stream` is not being captured.
  absl::Status OrderBefore(WaitingStream& stream) const;
  absl::Status OrderBefore(void* stream) const;

  // REQUIRES: Wait() or OrderBefore() has returned OK. If only OrderBefore() has been called, FindOverflow() may not be
  // called yet.
  const OperationResult& result() const;

  // Makes sure that the result's memory is not reused before the device has done all work that is now on `stream` (a
  // cudaStream_t), even if the last reference to this handle is gone. Does nothing if the result is not in device
  // memory that Ronda owns.
  // REQUIRES: launched() is true, and FreeAfter has not been called before.
  // Errors: INVALID_ARGUMENT if the stream is being captured; the device's errors. After an error nothing has changed.
  absl::Status FreeAfter(void* stream);

  // Like OnCompletion, but calls `callback` as soon as launched() becomes true. If a device is still carrying out the
  // operation at that time, the callback gets the status OK.
  absl::Status OnLaunch(std::function<void(const absl::Status&)> callback);

  // Calls `callback` once with the status of the operation: when the operation is complete, or soon if it already is.
  // The callback runs on the runtime's callback thread, after the callbacks of operations that completed earlier. The
  // callback may submit tensors and wait for other handles. If the callback throws an exception, the job fails:
  // "callback of tensor 'x' threw: ...". When the runtime is gone, the calling thread calls `callback`.
  // Errors: RESOURCE_EXHAUSTED if the system cannot create a thread. After an error, `callback` is not called.
  absl::Status OnCompletion(std::function<void(const absl::Status&)> callback);

  // For a receive in the order of arrival (IsOrderedReceive), returns the rank whose message it got, even if the
  // receive failed later. Returns nullopt if it got no message. REQUIRES: launched() is true.
  std::optional<int> sender() const { return sender_; }

  // Records that the received message comes from `rank`. Only the progress thread may call this function, and only
  // before Complete.
  void RecordSender(int rank) { sender_ = rank; }

  // Completes the handle, because the operation has ended. Only the progress thread (progress_engine.h) may call
  // Complete, and only once. Allocates no memory.
  void Complete(absl::Status status);
  void Complete(OperationResult result);

 private:
  enum class State : uint8_t { kPending, kAwaited, kDone };

  // Records that the program has learned that this operation is complete. An operation is usually counted once, and a
  // few times if several threads learn of its completion at the same time.
  void RecordLearned() const {
    if (progress_ == nullptr || learned_.load(std::memory_order_acquire)) return;
    progress_->RecordLearned();
    // With the release store, a thread that sees this value also sees the count.
    learned_.store(true, std::memory_order_release);
  }

  bool IsPastDevice() const;
  // Returns the DeviceBlocks that allocated the memory of the result; nullptr if the memory comes from elsewhere.
  DeviceBlocks* BlocksOfResult() const;
  // Returns the status of the operation. REQUIRES: done() is true.
  absl::Status KnownStatus() const;
  // Waits until the operation is launched, or until `deadline`.
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

// Keeps memory for objects that are often created and destroyed, such as handles. Allocates memory only if there are
// more objects than ever before.
//
// All blocks of a pool have the size of the first requested block. Requests of other sizes go to the global operator
// new. Thread-safe.
//
// Blocks may outlive the owner of the pool: the pool is destroyed only when it has no owner and all blocks have been
// freed. So the holder of a block needs no reference to the pool. (With references, all threads would contend for the
// same reference count.)
class BlockPool {
 public:
  struct GiveUp {
    void operator()(BlockPool* pool) const { pool->LoseOwner(); }
  };
  using Owner = std::unique_ptr<BlockPool, GiveUp>;

  static Owner Create() { return Owner(new BlockPool); }

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns memory of `bytes` bytes, with the alignment of operator new. Throws std::bad_alloc if there is no memory.
  void* Allocate(size_t bytes);

  // Takes back a block that Allocate(bytes) returned.
  void Free(void* block, size_t bytes) noexcept;

 private:
  BlockPool() = default;
  ~BlockPool();

  void LoseOwner();

  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !is_owned_ && in_use_ == 0; }

  // Prefetches the cache lines of the next free block. If there are many objects, that block was last used long ago,
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

// An allocator for std::allocate_shared, which puts the object and its reference count into one block of `pool`. The
// owner of the pool must exist as long as the allocator allocates objects, but the objects may outlive it.
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
