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
                                               .stop_peers = 0};

// Returns the fake, which works on the streams of this test's FakeCuda. `plugin` allocates memory for the fake;
// nullptr: no memory. If the fake cannot be loaded, the test fails.
std::shared_ptr<const NcclLibrary> LoadFakeNccl(const ronda_cuda_plugin* plugin = nullptr);

// The faults of communicators that are created from now on; stop_peers applies to all.
void SetFakeNcclFaults(const fake_nccl_faults& faults);

// Communicators that have not been destroyed or aborted.
int LiveFakeNcclCommunicators();

// The numbers of the fake's allocations and registrations so far.
int FakeNcclAllocations();
int FakeNcclRegistrations();

// Calls of a collective, of all ranks, so far: "AllReduce".
int FakeNcclCalls(const std::string& name);

// Groups for which NCCL has started a thread, of all ranks, so far.
int FakeNcclThreads();

// The caller's threads that are now in calls of communicators that block.
int FakeNcclThreadsInCalls();

// The calls that now wait for a stopped peer.
int FakeNcclWaitingForPeers();

// Returns the oldest report of misuse that has not been read. Empty: there is none.
std::string PopFakeNcclReport();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
