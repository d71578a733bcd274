// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_REGISTRATIONS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_REGISTRATIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/path.h"

namespace ronda::testing {

// Keeps track of the memory that ncclMemAlloc has allocated, and of the memory that communicators have registered.
//
// Thread-safe.
class Registrations {
 public:
  using Kind = NcclPath::Buffer::Kind;

  // Adds a block from ncclMemAlloc.
  void AddBlock(void* memory, size_t bytes);
  // Removes a block that is about to be freed. Stops the process if the block is still registered.
  void RemoveBlock(void* memory);
  // Returns ncclSuccess if the range can become a window: it lies in one block from ncclMemAlloc, begins at a page
  // boundary of the block, and is not a window of `comm` yet. Reports a second window as a bug in the test, although
  // NCCL would return no error.
  NcclResult CheckWindow(NcclHandle comm, const void* memory, size_t bytes);

  // Returns the handle of the new registration.
  void* Add(Kind kind, NcclHandle comm, void* memory, size_t bytes);
  // Returns false if `comm` has no such registration.
  bool Remove(Kind kind, NcclHandle comm, void* registration);
  // Removes all registrations of a communicator that is being freed.
  void RemoveAll(NcclHandle comm);
  // Returns the registration of `comm` that contains `data`, if any, and the offset of `data` in it.
  NcclPath::Buffer Find(NcclHandle comm, const void* data);

  // These functions return how many blocks, registrations of both kinds, and windows were added so far.
  int allocations();
  int registrations();
  int windows();

 private:
  struct Memory {
    Kind kind = Kind::kRegistered;
    NcclHandle comm = nullptr;
    char* begin = nullptr;
    size_t bytes = 0;
    uint64_t window = 0;  // its number among the communicator's windows, from 1 on
  };

  Mutex mu_;
  std::map<char*, size_t> blocks_ ABSL_GUARDED_BY(mu_);             // bytes, by the beginning
  std::map<void*, Memory> live_ ABSL_GUARDED_BY(mu_);               // by registration
  std::map<NcclHandle, uint64_t> windows_of_ ABSL_GUARDED_BY(mu_);  // so far, by communicator
  int allocations_ ABSL_GUARDED_BY(mu_) = 0;
  int registrations_ ABSL_GUARDED_BY(mu_) = 0;
  int windows_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_REGISTRATIONS_H_
