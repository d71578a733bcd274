// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_

#include <memory>
#include <string>

#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/fake_nccl.h"

namespace ronda::testing {

// The path of libfake_nccl.so in tests.
inline constexpr const char* kFakeNcclPath = "tests/testing/fake_nccl/libfake_nccl.so";

inline constexpr fake_nccl_faults kNoFaults = {.version = 0,
                                               .rank = -1,
                                               .fail_init = 0,
                                               .hang_init = 0,
                                               .error_at = -1,
                                               .hang_at = -1,
                                               .fail_register = 0,
                                               .stop_peers = 0,
                                               .no_windows = 0,
                                               .overlooks_offsets = 0};

// Returns the fake NCCL, which works on the streams of this test's FakeCuda. `plugin` allocates memory for the fake. If
// `plugin` is nullptr, ncclMemAlloc fails. If the fake cannot be loaded, the test fails.
std::shared_ptr<const NcclLibrary> LoadFakeNccl(const ronda_cuda_plugin* plugin = nullptr);

// Sets the faults of communicators that are created later. The fault stop_peers applies to all communicators.
void SetFakeNcclFaults(const fake_nccl_faults& faults);

// Returns the number of communicators that have not been destroyed or aborted.
int LiveFakeNcclCommunicators();

// These functions return the numbers of the fake's allocations, registrations and windows so far. A window is also a
// registration.
int FakeNcclAllocations();
int FakeNcclRegistrations();
int FakeNcclWindows();

// Returns how often all ranks have called a collective, such as "AllReduce"; see fake_nccl_calls().
int FakeNcclCalls(const std::string& name);

// Returns the number of groups of all ranks for which NCCL would have started a thread.
int FakeNcclThreads();

// Returns the number of the caller's threads that are now in blocking calls.
int FakeNcclThreadsInCalls();

// Returns the number of calls that now wait for a stopped peer.
int FakeNcclWaitingForPeers();

// Returns the oldest report of misuse that has not been read. Returns "" if there is none.
std::string PopFakeNcclReport();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
