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

// The memory of the devices, and the pinned memory of the host. Both are in fact normal memory of the process. Each
// allocation lies between pages without access.
//
// If host code may not touch device memory, the returned addresses have no access rights, and the device uses another
// mapping of the memory.
//
// Thread-safe.
class FakeMemory {
 public:
  static constexpr int kPinnedHost = -1;

  enum class HostAccess { kAllowed, kFatal };  // to the devices' memory

  FakeMemory(int devices, size_t bytes_per_device, HostAccess host_access);
  ~FakeMemory();

  // Returns nullptr if less than `bytes` of memory is left. `device` may be kPinnedHost.
  void* Allocate(int device, size_t bytes);

  // Releases memory. Returns whether the device had memory at this address. Work that a stream gets later cannot use
  // the memory. Earlier work can, if `use` says that such work may exist.
  enum class Use { kOver, kPossible };
  bool Release(int device, void* memory, Use use);

  // Frees memory at once. Returns whether an allocation begins at `memory`. Even earlier work of a stream may not use
  // the memory any more. IsAnyFreed finds such uses.
  bool Free(const void* memory);

  // Returns whether memory at one of these addresses has been freed.
  bool IsAnyFreed(const std::vector<const void*>& addresses) const;

  // These functions are for device memory that several processes map, like CUDA's virtual memory. Its files are memfds,
  // whose names have the number of the device. All sizes and addresses in a range are multiples of kSharingUnit.
  static constexpr size_t kSharingUnit = size_t{2} << 20;

  // Returns a file of `bytes` bytes on the device; -1 if less memory is left, or if the system has none.
  int CreateFile(int device, size_t bytes);

  // Returns the device on which the file's memory is, perhaps a device of another process; -1 if it is no such file.
  static int DeviceOfFile(int file);

  // Reserves addresses, without memory. Returns nullptr if the system has none.
  void* ReserveRange(size_t bytes);

  // Maps a file at an address in a range, or frees a range to which no file has been mapped. Return false if `address`
  // is not in such a range.
  bool MapIntoRange(void* address, size_t bytes, int file);
  bool FreeRange(void* range);

  // Gives `device` access to a range. Afterwards the range is an allocation of this device, which Release ends.
  // Returns false if a part of the range has no memory.
  bool GiveAccess(void* range, size_t bytes, int device);

  // Lets all devices access shared memory of the host, at another address. Returns nullptr if that is impossible.
  // EndRegistration returns false if `memory` is not registered.
  void* Register(void* memory, size_t bytes);
  bool EndRegistration(void* memory);

  // Returns the device that has memory at this address, or kPinnedHost for all memory of the host.
  int DeviceOf(const void* address) const;

  // Returns whether pinned memory of the host is at this address.
  bool IsPinned(const void* address) const;

  // Returns the address at which the device sees these bytes. Returns nullptr unless all of the bytes are in one
  // allocation, which is on this device or pinned.
  void* ViewOf(int device, const void* address, size_t bytes) const;

  // Like ViewOf, for memory of any device. If no allocation contains `address`, returns `address` itself.
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

  // Addresses that have no access yet.
  struct Range {
    Block block;
    size_t filled;  // bytes with memory
  };

  static void Unmap(const Block& block);
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
