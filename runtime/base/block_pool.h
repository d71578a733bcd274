#ifndef RONDA_RUNTIME_BASE_BLOCK_POOL_H_
#define RONDA_RUNTIME_BASE_BLOCK_POOL_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace ronda {

// Keeps the memory of objects that come and go all the time, from one to the next: once as many have been there at once
// as ever will be, none needs an allocation any more.
//
// All blocks of a pool have one size, that of the first; others are passed on to the global operator new. Thread-safe.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // REQUIRES: every block has been given back.
  ~BlockPool();

  // `bytes`, aligned as by operator new. Throws std::bad_alloc.
  void* Allocate(size_t bytes);

  // Takes back what Allocate(bytes) has returned.
  void Free(void* block, size_t bytes) noexcept;

 private:
  // Asks for the cache lines of the block that is next: where many objects live at once, it was last used long ago.
  void PrefetchNextLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Lies in each block that is not in use.
  struct Link {
    Link* next;
  };

  Mutex mu_;
  Link* free_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t block_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // 0: not known yet
};

// For std::allocate_shared: object and counter lie in one block of `pool`, which lives as long as they do.
template <typename T>
class PoolAllocator {
 public:
  using value_type = T;

  explicit PoolAllocator(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}
  template <typename U>
  PoolAllocator(const PoolAllocator<U>& other) : pool_(other.pool()) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(pool_->Allocate(count * sizeof(T)));
  }
  void deallocate(T* block, size_t count) noexcept { pool_->Free(block, count * sizeof(T)); }

  const std::shared_ptr<BlockPool>& pool() const { return pool_; }

  template <typename U>
  friend bool operator==(const PoolAllocator& a, const PoolAllocator<U>& b) {
    return a.pool() == b.pool();
  }

 private:
  std::shared_ptr<BlockPool> pool_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_BLOCK_POOL_H_
