// SPDX-License-Identifier: Apache-2.0

// An NCCL for the devices of fake_cuda. libfake_nccl.so has the part of NCCL's C interface that Ronda uses
// (runtime/collectives/nccl/nccl_library.h). It runs the collectives between threads or processes of one host through
// shared memory, in the order of the given streams. Sums go around a ring, and are rounded at every hop. So their order
// is not the order of the ranks.
//
// As with NCCL, a call on a communicator that does not block may return ncclInProgress. Then the call's work
// is not yet on the stream. The work is on the stream once ncclCommGetAsyncError returns ncclSuccess. Communicators
// that block are split off such communicators. Their first call of a kind waits for the other ranks, as NCCL does to
// connect the ranks. An abort of the parent ends this wait if parent and child share resources. The fake reports a
// communicator that is freed while a thread is in one of its calls.
//
// The fake fails or hangs where NCCL does. If the ranks' calls differ, NCCL hangs or its behaviour is undefined. The
// fake then writes a report and hangs until it is aborted. After a minute it stops the process.
#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_

#include <cstddef>

#include "runtime/cuda/plugin.h"

extern "C" {

// The faults of all communicators that are created after fake_nccl_set_faults. Before its first call, the faults come
// from the environment:
// FAKE_NCCL_VERSION, FAKE_NCCL_RANK, FAKE_NCCL_FAIL_INIT=1, FAKE_NCCL_HANG_INIT=1, FAKE_NCCL_ERROR_AT=<n>,
// FAKE_NCCL_HANG_AT=<n>, FAKE_NCCL_FAIL_REGISTER=1, FAKE_NCCL_STOP_PEERS=1.
struct fake_nccl_faults {
  int version;        // 0: 22809
  int rank;           // the rank of each communicator that has the faults; -1: all ranks
  int fail_init;      // not 0: ncclSystemError
  int hang_init;      // not 0: never ends
  int error_at;       // the operation, counted from 0, after which an asynchronous error occurs; -1: none
  int hang_at;        // the operation that never ends; -1: none
  int fail_register;  // not 0: ncclSystemError
  int stop_peers;  // not 0: until it is 0 again, ncclCommDeregister waits as for a stopped peer; for all communicators
};

// The functions of fake_cuda.h and fake_capture.h that put work onto a stream and find the work's memory on the device.
// Without a call of fake_nccl_set_cuda, the library looks for these functions in the process, and in the library that
// RONDA_CUDA_PLUGIN names.
struct fake_nccl_cuda {
  int (*enqueue)(void* stream, void (*function)(void*), void* context);
  int (*enqueue_owned)(void* stream, void (*function)(void*), void* context, void (*release)(void*));
  int (*is_captured)(void* stream);
  void* (*view)(const void* address);
  int (*device_of)(const void* address);
  void (*wait_before_free)();       // called before an aborted communicator frees memory of the device
  const ronda_cuda_plugin* plugin;  // allocates memory for ncclMemAlloc; nullptr: ncclMemAlloc fails
};

__attribute__((visibility("default"))) void fake_nccl_set_faults(const fake_nccl_faults* faults);
__attribute__((visibility("default"))) void fake_nccl_set_cuda(const fake_nccl_cuda* cuda);

// The numbers of communicators that have not been destroyed or aborted, that were created so far, and that were aborted
// so far.
__attribute__((visibility("default"))) int fake_nccl_live_communicators();
__attribute__((visibility("default"))) int fake_nccl_made_communicators();
__attribute__((visibility("default"))) int fake_nccl_aborted_communicators();

// The blocks that ncclMemAlloc has allocated, and the registrations of memory, so far.
__attribute__((visibility("default"))) int fake_nccl_allocations();
__attribute__((visibility("default"))) int fake_nccl_registrations();

// Calls of a collective, of all ranks of this process, so far: "AllReduce".
__attribute__((visibility("default"))) int fake_nccl_calls(const char* name);

// The number of groups of all ranks of this process for which NCCL would have started a thread. These are the groups of
// communicators that do not block.
__attribute__((visibility("default"))) int fake_nccl_threads();

// The caller's threads that are now in calls of communicators that block.
__attribute__((visibility("default"))) int fake_nccl_threads_in_calls();

// The calls that now wait for a stopped peer (stop_peers).
__attribute__((visibility("default"))) int fake_nccl_waiting_for_peers();

// Writes the oldest report that has not been read, at most `size` bytes. Writes "" if there is no report.
__attribute__((visibility("default"))) void fake_nccl_take_report(char* text, size_t size);
}

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
