#include "runtime/base/block_pool.h"

#include <new>

namespace ronda {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr int kToWrite = 1;

}  // namespace

BlockPool::~BlockPool() {
  MutexLock lock(&mu_);
  while (free_ != nullptr) {
    Link* const link = free_;
    free_ = link->next;
    ::operator delete(link);
  }
}

void* BlockPool::Allocate(size_t bytes) {
  {
    MutexLock lock(&mu_);
    if (block_bytes_ == 0 && bytes >= sizeof(Link)) block_bytes_ = bytes;
    if (bytes == block_bytes_ && free_ != nullptr) {
      Link* const link = free_;
      free_ = link->next;
      ++in_use_;
      PrefetchNextLocked();
      return link;
    }
  }
  void* const block = ::operator new(bytes);
  MutexLock lock(&mu_);
  ++in_use_;
  return block;
}

void BlockPool::PrefetchNextLocked() const {
  if (free_ == nullptr) return;
  const char* const block = reinterpret_cast<const char*>(free_);
  for (size_t at = 0; at < block_bytes_; at += kCacheLineBytes) __builtin_prefetch(block + at, kToWrite);
}

void BlockPool::Free(void* block, size_t bytes) noexcept {
  bool is_over = false;
  {
    MutexLock lock(&mu_);
    --in_use_;
    is_over = IsOverLocked();
    if (bytes == block_bytes_) {
      free_ = new (block) Link{free_};
      block = nullptr;
    }
  }
  ::operator delete(block);
  if (is_over) delete this;
}

void BlockPool::LoseOwner() {
  bool is_over = false;
  {
    MutexLock lock(&mu_);
    is_owned_ = false;
    is_over = IsOverLocked();
  }
  if (is_over) delete this;
}

}  // namespace ronda
