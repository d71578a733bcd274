#ifndef RONDA_RUNTIME_BASE_BLOCK_POOL_H_
#define RONDA_RUNTIME_BASE_BLOCK_POOL_H_

#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace ronda {

// Keeps the memory of objects that come and go all the time, from one to the next: once as many have been there at once
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

#endif  // RONDA_RUNTIME_BASE_BLOCK_POOL_H_
