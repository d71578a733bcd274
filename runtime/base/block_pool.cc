#include "runtime/base/block_pool.h"

#include <new>

namespace ronda {

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
      return link;
    }
  }
  return ::operator new(bytes);
}

void BlockPool::Free(void* block, size_t bytes) noexcept {
  {
    MutexLock lock(&mu_);
    if (bytes == block_bytes_) {
      free_ = new (block) Link{free_};
      return;
    }
  }
  ::operator delete(block);
}

}  // namespace ronda
