#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_

#include <memory>
#include <string>

#include "runtime/collectives/nccl/nccl_library.h"
#include "tests/testing/fake_nccl/fake_nccl.h"

namespace ronda::testing {

// Where tests find libfake_nccl.so.
inline constexpr const char* kFakeNcclPath = "tests/testing/fake_nccl/libfake_nccl.so";

inline constexpr fake_nccl_faults kNoFaults = {.version = 0,
                                               .rank = -1,
                                               .fail_init = 0,
                                               .hang_init = 0,
                                               .error_at = -1,
                                               .hang_at = -1,
                                               .fail_register = 0,
                                               .stop_peers = 0};

// The fake, on the streams of this test's FakeCuda, whose `plugin` allocates memory for it; nullptr: none. Fails the
// test if it cannot be loaded.
std::shared_ptr<const NcclLibrary> LoadFakeNccl(const ronda_cuda_plugin* plugin = nullptr);

// Of communicators that are made from now on; stop_peers of all.
void SetFakeNcclFaults(const fake_nccl_faults& faults);

// Communicators that have not been destroyed or aborted.
int LiveFakeNcclCommunicators();

// Counts of the fake's allocations and registrations so far.
int FakeNcclAllocations();
int FakeNcclRegistrations();

// Calls of a collective, of all ranks, so far: "AllReduce".
int FakeNcclCalls(const std::string& name);

// Groups for which NCCL has started a thread, of all ranks, so far.
int FakeNcclThreads();

// The caller's threads in calls of communicators that block, now.
int FakeNcclThreadsInCalls();

// Calls that wait for a stopped peer, now.
int FakeNcclWaitingForPeers();

// The oldest report of misuse that has not been taken; empty: there is none.
std::string TakeFakeNcclReport();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_LOAD_FAKE_NCCL_H_
