// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_

#include <memory>
#include <string>

#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/fake_nccl.h"

namespace ronda::testing {

// The path at which tests find libfake_nccl.so.
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

// Returns the fake NCCL, which works on the streams of this test's FakeCuda. ncclMemAlloc allocates memory through
// `plugin`, and fails if `plugin` is nullptr. If the fake cannot be loaded, fails the test.
std::shared_ptr<const NcclLibrary> LoadFakeNccl(const ronda_cuda_plugin* plugin = nullptr);

// Sets the faults of communicators that are created later. The fault stop_peers applies to all communicators.
void SetFakeNcclFaults(const fake_nccl_faults& faults);

// Returns the number of communicators that have been neither destroyed nor aborted.
int LiveFakeNcclCommunicators();

// These functions return how many allocations, registrations and windows the fake has made so far. Windows count as
// registrations, too.
int FakeNcclAllocations();
int FakeNcclRegistrations();
int FakeNcclWindows();

// Returns how often all ranks have called a collective, such as "AllReduce"; see fake_nccl_calls().
int FakeNcclCalls(const std::string& name);

// Returns the number of threads that NCCL would have started so far.
int FakeNcclThreads();

// Returns the number of threads of this process that are in blocking calls.
int FakeNcclThreadsInCalls();

// Returns the number of calls that are waiting for a stopped peer.
int FakeNcclWaitingForPeers();

// Removes and returns the oldest unread report of misuse. Returns "" if there is none.
std::string PopFakeNcclReport();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
