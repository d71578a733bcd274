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

// Frees a result's memory: gives it back to the blocks it is from, or to the heap if that is nullptr.
struct ResultDeleter {
  std::shared_ptr<DeviceBlocks> blocks;
  size_t bytes = 0;

  void operator()(std::byte* data) const;
};

// The memory of a result that belongs to Ronda: where its tensor is, on the host or a device.
using ResultData = std::unique_ptr<std::byte[], ResultDeleter>;

class DeviceCompletion;
class WaitingStream;

// Numbers of rows, one a rank; those of a few ranks need no allocation.
using RowCounts = absl::InlinedVector<int64_t, 8>;

// The results that an operation leaves with its handle.
struct OperationResult {
  // allgather, gather (on the root), scatter, reducescatter, alltoall: the rows that this rank receives, in memory of
  // Ronda's or of the caller's. Of a tensor in the memory of a GPU they are there too. Memory of Ronda's is used again
  // when it has been freed, and the streams that were ordered behind the operation (Handle::OrderBefore) have done what
  // they had been given by then. The device must be done with other work on it; or see Handle::FreeAfter.
  ResultData data;
  const void* callers = nullptr;  // not nullptr: the rows are here
  const void* rows() const { return callers != nullptr ? callers : data.get(); }
  // Not OK: the operation has been carried out, but this rank does not get its result.
  absl::Status status = absl::OkStatus();
  // allgather, gather (on the root), alltoall: how many rows each member of the process set has sent; scatter,
  // reducescatter: one entry, the number of rows received.
  RowCounts first_dims;
  // send/recv: the sender; join: the last rank to join; add_process_set: the set's id; allgather, gather: how many
  // ranks an average counts.
  int64_t number = 0;
  // Whether the result, on any rank, has an element that is infinite or NaN. If detection was asked for.
  enum class Overflow : uint8_t { kNone, kFound } overflow = Overflow::kNone;
  // The same as a device leaves it: not 0 if found, once the operation is complete. nullptr: see `overflow`.
  std::shared_ptr<const uint8_t> device_overflow = nullptr;
  // Not nullptr: the operation has been given to a device, which has still to carry it out.
  std::shared_ptr<DeviceCompletion> completion = nullptr;

  // REQUIRES: the operation is complete.
  Overflow FindOverflow() const {
    if (device_overflow == nullptr) return overflow;
    return *device_overflow != 0 ? Overflow::kFound : Overflow::kNone;
  }
};

// The future of one submission. Completed exactly once, by the progress thread, and waited for by any number of
// threads. An operation in the memory of a device is then merely under way there; OperationResult::completion tells of
// the rest.
//
// Thread-safe. Memory ordering: status_, result_ and sender_ are written before state_ becomes kDone with release, and
// not after that; a thread that loads kDone with acquire may read them without the lock.
//
// No wake-up is lost, and none costs anything where no thread waits: a thread that is about to sleep, or leaves a
// callback, changes kPending to kAwaited under the lock. If completion comes first, that fails. If not, the completing
// thread finds kAwaited, and takes the lock before it notifies: by then the sleeper sleeps, and the callback is in the
// list.
class Handle {
 public:
  // `callbacks` runs what OnCompletion gets. `progress`, which may be null, is the engine's that carries the operation
  // out. `tensor` is the tensor's name, for messages.
  Handle(std::shared_ptr<CallbackThread> callbacks, std::shared_ptr<ProgressEngine> progress,
         std::shared_ptr<const std::string> tensor)
      : callback_thread_(std::move(callbacks)), progress_(std::move(progress)), tensor_(std::move(tensor)) {}

  // Whether the operation is complete, or is under way on a device.
  bool launched() const { return state_.load(std::memory_order_acquire) == State::kDone; }

  // The same, or MonotonicTime() has come to `deadline`. For a loop that polls: `*looks` counts its calls, and the
  // clock, which costs as much as a look at the messages, is read in a few of them only.
  bool IsLaunchedOrPast(absl::Duration deadline, int* looks) const {
    return launched() || (++*looks % 64 == 0 && MonotonicTime() >= deadline);
  }

  // Whether the operation is complete, on the device too.
  bool done() const {
    const bool done = launched() && (result_.completion == nullptr || IsPastDevice());
    if (done) NoteLearned();
    return done;
  }

  // Blocks until the operation has completed; its status. An error status names the tensor. The calling thread carries
  // the operation out itself if no other thread drives.
  absl::Status Wait() const;

  // The same until MonotonicTime() has come to `deadline`, if that is first. Whether the operation has completed.
  bool WaitUntil(absl::Duration deadline) const;

  // Blocks until launched(), or until MonotonicTime() has come to `deadline`. Whether it is.
  bool LaunchesBy(absl::Duration deadline) const {
    AwaitLaunch(deadline);
    return launched();
  }

  // Makes the work that `stream` (a cudaStream_t) is given from now on wait for the operation. Blocks until it has
  // been given to the device, as Wait does, but not for the device; of a tensor in the host's memory this is Wait. The
  // stream lives as long as the handle: the result's memory waits for it.
  // Errors: the operation's, as far as they are known by then.
  absl::Status OrderBefore(WaitingStream& stream) const;
  absl::Status OrderBefore(void* stream) const;

  // REQUIRES: Wait() has returned OK; or OrderBefore, and then `overflow` is not known yet.
  const OperationResult& result() const;

  // Keeps the memory of the result, once the last reference to this handle is gone, until the device has done the work
  // that `stream` (a cudaStream_t) has been given so far. Does nothing if there is no such memory of Ronda's.
  // REQUIRES: launched(); called once.
  // Errors: INVALID_ARGUMENT if the stream is being captured; the device's. Nothing has changed then.
  absl::Status FreeAfter(void* stream);

  // As OnCompletion, when launched(): at that moment the status is OK if the operation is under way on a device.
  absl::Status OnLaunch(std::function<void(const absl::Status&)> callback);

  // `callback` is called once, with the operation's status, after the operation has completed; soon, if it has already.
  // It runs on the runtime's callback thread, after the callbacks of operations that have completed before. It may
  // submit tensors and wait for other handles. If it throws, the job fails: "callback of tensor 'x' threw: ...". Once
  // the runtime is gone it is called in the calling thread. Errors: RESOURCE_EXHAUSTED if the system has no thread to
  // give; `callback` will not be called.
  absl::Status OnCompletion(std::function<void(const absl::Status&)> callback);

  // A receive in order of arrival (IsOrderedReceive): the rank whose message it has got, also if that has failed since;
  // nullopt while there is none. REQUIRES: launched().
  std::optional<int> sender() const { return sender_; }

  // Only the progress thread, before Complete: the message is of this rank.
  void NoteSender(int rank) { sender_ = rank; }

  // Only the progress thread (progress_engine.h): the operation has ended. Allocates nothing. The second call is
  // a bug.
  void Complete(absl::Status status);
  void Complete(OperationResult result);

 private:
  enum class State : uint8_t { kPending, kAwaited, kDone };

  // The program knows that this is complete. To hear it again teaches it nothing: it is counted once, or a few times if
  // threads learn of it at the same time.
  void NoteLearned() const {
    if (progress_ == nullptr || learned_.load(std::memory_order_acquire)) return;
    progress_->NoteLearned();
    // A thread that sees this sees the count, too.
    learned_.store(true, std::memory_order_release);
  }

  bool IsPastDevice() const;
  // Where the result's memory is from; nullptr: it is none of these.
  DeviceBlocks* BlocksOfResult() const;
  // REQUIRES: done().
  absl::Status KnownStatus() const;
  // Until `deadline` at the latest.
  void AwaitLaunch(absl::Duration deadline = absl::InfiniteDuration()) const;
  void SleepUntilLaunched(absl::Duration deadline) const;
  // Some thread or callback awaits the completion; false if it has come already.
  bool AnnounceWaiterLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells all those.
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
  absl::Status status_;  // these two are written before state_ is kDone, and read after; of an operation on a device:
                         // as far as the host can tell
  OperationResult result_;
  std::optional<int> sender_;
};

// Keeps the memory of objects that come and go all the time, as handles do: once as many have been there at once
// as ever will be, none needs an allocation any more.
//
// All blocks of a pool have one size, that of the first; others are passed on to the global operator new. Thread-safe.
//
// Blocks may outlive the owner: the pool is destroyed when it has no owner and the last block has come back. So the
// holder of a block needs no reference to the pool, whose count all threads would write to with every block.
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

  // Asks for the cache lines of the block that is next: where many objects live at once, it was last used long ago.
  void PrefetchNextLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Lies in each block that is not in use.
  struct Link {
    Link* next;
  };

  Mutex mu_;
  Link* free_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t block_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // 0: not known yet
  size_t in_use_ ABSL_GUARDED_BY(mu_) = 0;       // blocks of all sizes
  bool is_owned_ ABSL_GUARDED_BY(mu_) = true;
};

// For std::allocate_shared: object and counter lie in one block of `pool`, whose owner lives as long as this allocator
// is used to allocate; the objects may outlive it.
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
