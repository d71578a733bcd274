// SPDX-License-Identifier: Apache-2.0

// An NCCL whose devices are those of fake_cuda. libfake_nccl.so has the part of NCCL's C interface that Ronda uses
// (runtime/collectives/nccl/nccl_library.h). It runs the collectives between threads or processes of one host through
// shared memory, in the order of the given streams. Sums go around a ring, and are rounded at every hop, so not in the
// order of the ranks.
//
// As with NCCL, a call on a communicator that does not block may return ncclInProgress. Then the call's work
// is not yet on the stream. It is there once ncclCommGetAsyncError returns ncclSuccess. Communicators that block are
// split off such communicators. In them the first call of a kind waits for the other ranks, as NCCL does to connect
// them. An abort of the parent ends that wait, if the two share resources. If a communicator is freed while a thread is
// in a call of it, the fake reports that.
//
// The fake fails or hangs where NCCL does. If ranks do not do the same, NCCL hangs or its behaviour is undefined. The
// fake then writes a report and hangs until it is aborted; after a minute it stops the process.
#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_

#include <cstddef>

#include "runtime/cuda/plugin.h"

extern "C" {

// The faults of all communicators that are created from then on. Before the first call they come from the environment:
// FAKE_NCCL_VERSION, FAKE_NCCL_RANK, FAKE_NCCL_FAIL_INIT=1, FAKE_NCCL_HANG_INIT=1, FAKE_NCCL_ERROR_AT=<n>,
// FAKE_NCCL_HANG_AT=<n>, FAKE_NCCL_FAIL_REGISTER=1, FAKE_NCCL_STOP_PEERS=1.
struct fake_nccl_faults {
  int version;        // 0: 22809
  int rank;           // the rank of each communicator that has them; -1: all ranks
  int fail_init;      // not 0: ncclSystemError
  int hang_init;      // not 0: never ends
  int error_at;       // the operation, counted from 0, after which an asynchronous error occurs; -1: none
  int hang_at;        // the operation that never ends; -1: none
  int fail_register;  // not 0: ncclSystemError
  int stop_peers;  // not 0: until it is 0 again, ncclCommDeregister waits as for a stopped peer; for all communicators
};

// The functions that put work onto a stream, and that find the device's memory for it: fake_cuda.h and fake_capture.h.
// Without this call the library looks for them in the process, and in the library that RONDA_CUDA_PLUGIN names.
struct fake_nccl_cuda {
  int (*enqueue)(void* stream, void (*function)(void*), void* context);
  int (*enqueue_owned)(void* stream, void (*function)(void*), void* context, void (*release)(void*));
  int (*is_captured)(void* stream);
  void* (*view)(const void* address);
  int (*device_of)(const void* address);
  void (*wait_before_free)();       // called before an aborted communicator frees memory of the device
  const ronda_cuda_plugin* plugin;  // its memory is allocated by ncclMemAlloc; nullptr: ncclMemAlloc fails
};

__attribute__((visibility("default"))) void fake_nccl_set_faults(const fake_nccl_faults* faults);
__attribute__((visibility("default"))) void fake_nccl_set_cuda(const fake_nccl_cuda* cuda);

// The communicators that have not been destroyed or aborted, those created so far, and those aborted so far.
__attribute__((visibility("default"))) int fake_nccl_live_communicators();
__attribute__((visibility("default"))) int fake_nccl_made_communicators();
__attribute__((visibility("default"))) int fake_nccl_aborted_communicators();

// The blocks that ncclMemAlloc has allocated, and the registrations of memory, so far.
__attribute__((visibility("default"))) int fake_nccl_allocations();
__attribute__((visibility("default"))) int fake_nccl_registrations();

// Calls of a collective, of all ranks of this process, so far: "AllReduce".
__attribute__((visibility("default"))) int fake_nccl_calls(const char* name);

// Groups for which NCCL has started a thread, of all ranks of this process: those of communicators that do not block.
__attribute__((visibility("default"))) int fake_nccl_threads();

// The caller's threads that are now in calls of communicators that block.
__attribute__((visibility("default"))) int fake_nccl_threads_in_calls();

// The calls that now wait for a stopped peer (stop_peers).
__attribute__((visibility("default"))) int fake_nccl_waiting_for_peers();

// Writes the oldest report that has not been read, at most `size` bytes; "": there is none.
__attribute__((visibility("default"))) void fake_nccl_take_report(char* text, size_t size);
}

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
