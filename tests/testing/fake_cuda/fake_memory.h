#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MEMORY_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {

// Whose memory is where: that of the devices, and the host's that is pinned. All of it is the host's in truth, between
// pages without access.
//
// Where host code may not touch the devices' memory, its pages cannot be accessed by the addresses that are given out;
// the device has another view of them.
//
// Thread-safe.
class FakeMemory {
 public:
  static constexpr int kPinnedHost = -1;

  enum class HostAccess { kAllowed, kFatal };  // to memory of devices

  FakeMemory(int devices, size_t bytes_per_device, HostAccess host_access);
  ~FakeMemory();

  // nullptr if there is not as much left. `device` may be kPinnedHost.
  void* Allocate(int device, size_t bytes);

  // Whether there was something, of that device, to release. Nothing can be given to a stream any more that uses it;
  // what has been given before finds it, while `use` says that something may.
  enum class Use { kOver, kPossible };
  bool Release(int device, void* memory, Use use);

  // Whether there was something that begins at `memory`. From now on it may not be used any more, not even by what has
  // been given to a stream before: IsAnyFreed tells.
  bool Free(const void* memory);

  // Whether memory at one of these addresses has been freed.
  bool IsAnyFreed(const std::vector<const void*>& addresses) const;

  // Whose memory this is an address in; kPinnedHost for all else too.
  int DeviceOf(const void* address) const;

  // Where the device finds these bytes. nullptr if not all of them are in one allocation, of this device or pinned.
  void* ViewOf(int device, const void* address, size_t bytes) const;

  // The same for any device; `address` itself if it is in no allocation.
  void* AnyViewOf(const void* address) const;

  size_t allocations() const;  // so far
  size_t peak_bytes() const;   // the most that any device had given out at once
  size_t live() const;         // not released

 private:
  struct Block {
    int device;
    size_t bytes;         // asked for
    char* mapping;        // of what is given out, with the pages around it
    size_t mapped_bytes;  // of each mapping
    char* view;
  };

  using Blocks = std::map<uintptr_t, Block>;  // by address

  static void Unmap(const Block& block);
  // The block that has all of these bytes; nullptr: none has.
  static const Block* Find(const Blocks& blocks, const void* address, size_t bytes);
  const Block* FindLocked(const void* address, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const HostAccess host_access_;
  mutable Mutex mu_;
  Blocks blocks_ ABSL_GUARDED_BY(mu_);
  std::vector<Block> released_ ABSL_GUARDED_BY(mu_);  // may still be in use
  Blocks freed_ ABSL_GUARDED_BY(mu_);                 // stay mapped, and so are not given out again
  std::vector<size_t> left_ ABSL_GUARDED_BY(mu_);     // bytes, one entry a device
  const size_t bytes_per_device_;
  size_t peak_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t allocations_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MEMORY_H_
