// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MEMORY_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {

// Device memory and pinned host memory. Both are really ordinary memory of the process. Each allocation lies between
// two inaccessible pages.
//
// With HostAccess::kFatal, the returned addresses of device memory are inaccessible, and the devices use a second
// mapping of the memory.
//
// Thread-safe.
class FakeMemory {
 public:
  static constexpr int kPinnedHost = -1;

  enum class HostAccess { kAllowed, kFatal };  // to the devices' memory

  FakeMemory(int devices, size_t bytes_per_device, HostAccess host_access);
  ~FakeMemory();

  // Returns nullptr if less than `bytes` bytes are left. `device` may be kPinnedHost.
  void* Allocate(int device, size_t bytes);

  // Releases memory. Returns false if the device has no allocation at this address. Work that is enqueued later cannot
  // use the memory. With kPossible, work that is already enqueued can.
  enum class Use { kOver, kPossible };
  bool Release(int device, void* memory, Use use);

  // Frees memory at once. Returns false if no allocation begins at `memory`. Even work that is already enqueued must
  // not use the memory any more. IsAnyFreed finds such uses.
  bool Free(const void* memory);

  // Returns whether memory at one of these addresses has been freed.
  bool IsAnyFreed(const std::vector<const void*>& addresses) const;

  // The following functions are for device memory that several processes map, as with CUDA's virtual memory management.
  // Its files are memfds, whose names contain the device number. All sizes, and all offsets in a range, are multiples
  // of kSharingUnit.
  static constexpr size_t kSharingUnit = size_t{2} << 20;

  // Returns a file of `bytes` bytes on the device, or -1 if the device or the system has too little memory. Files do
  // not count towards the device's memory, because only the system knows when the last process has unmapped a file.
  int CreateFile(int device, size_t bytes);

  // Returns the device whose memory the file is, or -1 if it is no such file. Another process may have created the
  // file.
  static int DeviceOfFile(int file);

  // Reserves a range of addresses without memory. Returns nullptr if the system refuses.
  void* ReserveRange(size_t bytes);

  // MapIntoRange maps a file into a range, and returns false if that is impossible. FreeRange frees a range to which no
  // device has access yet, and unmaps the files in it. It returns false if there is no such range.
  bool MapIntoRange(void* address, size_t bytes, int file);
  bool FreeRange(void* range);

  // Gives `device` access to a range, which thus becomes an allocation of this device for Release() to free. Returns
  // false if a part of the range has no memory.
  bool GiveAccess(void* range, size_t bytes, int device);

  // Register gives all devices access to shared host memory, and returns its address on the devices, or nullptr if that
  // is impossible. EndRegistration returns false if `memory` is not registered.
  void* Register(void* memory, size_t bytes);
  bool EndRegistration(void* memory);

  // Returns the device that has memory at this address, or kPinnedHost for any host memory.
  int DeviceOf(const void* address) const;

  // Returns whether this address is in pinned host memory.
  bool IsPinned(const void* address) const;

  // Returns the address through which the device accesses these bytes. Returns nullptr unless they all lie in one
  // allocation that is on this device or pinned.
  void* ViewOf(int device, const void* address, size_t bytes) const;

  // Like ViewOf, but for memory of any device. If no allocation contains `address`, returns `address`.
  void* AnyViewOf(const void* address) const;

  size_t allocations() const;  // so far
  size_t peak_bytes() const;   // the most memory of any device that was allocated at one time
  size_t live() const;         // not released

 private:
  struct Block {
    int device;
    size_t bytes;         // as requested
    char* mapping;        // the allocation, with the pages around it
    size_t mapped_bytes;  // of each mapping
    char* view;
    bool is_shared = false;
  };

  using Blocks = std::map<uintptr_t, Block>;  // by address

  // A range that is not accessible yet.
  struct Range {
    Block block;
    size_t filled;  // bytes with memory
  };

  static void Unmap(const Block& block);
  // Returns whether the block takes memory from `left_`.
  static bool IsCounted(const Block& block) { return block.device != kPinnedHost && !block.is_shared; }
  // Returns the block that contains all of these bytes, or nullptr.
  static const Block* Find(const Blocks& blocks, const void* address, size_t bytes);
  const Block* FindLocked(const void* address, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const HostAccess host_access_;
  mutable Mutex mu_;
  Blocks blocks_ ABSL_GUARDED_BY(mu_);
  std::vector<Block> released_ ABSL_GUARDED_BY(mu_);  // may still be in use
  Blocks freed_ ABSL_GUARDED_BY(mu_);                 // stay mapped, so that their addresses are not used again
  std::map<uintptr_t, Range> ranges_ ABSL_GUARDED_BY(mu_);
  std::map<void*, void*> registered_ ABSL_GUARDED_BY(mu_);  // the device's addresses, by the host's
  std::vector<size_t> left_ ABSL_GUARDED_BY(mu_);           // bytes, one entry per device
  const size_t bytes_per_device_;
  size_t peak_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t allocations_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MEMORY_H_
