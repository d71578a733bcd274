// SPDX-License-Identifier: Apache-2.0

// A fake NCCL for the devices of fake_cuda. libfake_nccl.so implements the part of NCCL's C API that Ronda uses
// (runtime/collectives/nccl/nccl_library.h). The fake runs collectives between threads or processes of one host,
// through shared memory and in stream order. Sums go around a ring, so the ranks' terms are not added in rank order,
// and are rounded at every hop.
//
// As in NCCL, a call on a non-blocking communicator may return ncclInProgress. The work of such a call is enqueued only
// once ncclCommGetAsyncError returns ncclSuccess. Only ncclCommSplit can create a blocking communicator. The first
// collective of each kind on a blocking communicator waits for the other ranks, as NCCL does to connect the ranks.
// Aborting the parent ends this wait if parent and child share resources. The fake reports a communicator that is freed
// while a thread is in one of its calls.
//
// All ranks register a window together (ncclCommWindowRegister), on a blocking communicator. Sums of 16-bit numbers in
// symmetric windows are computed in float32 and rounded once, as in NCCL's symmetric-memory kernels.
//
// The fake fails or hangs where NCCL does. If the ranks' calls differ, NCCL hangs or has undefined behaviour. The fake
// then makes a report, and hangs until the communicator is aborted. If no abort comes within a minute, the fake stops
// the process.
#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_

#include <cstddef>

#include "runtime/cuda/plugin.h"

extern "C" {

// The faults of all communicators that are created after a call of fake_nccl_set_faults. Before the first call, the
// faults come from these environment variables:
// FAKE_NCCL_VERSION, FAKE_NCCL_RANK, FAKE_NCCL_FAIL_INIT=1, FAKE_NCCL_HANG_INIT=1, FAKE_NCCL_ERROR_AT=<n>,
// FAKE_NCCL_HANG_AT=<n>, FAKE_NCCL_FAIL_REGISTER=1, FAKE_NCCL_STOP_PEERS=1, FAKE_NCCL_NO_WINDOWS=1,
// FAKE_NCCL_OVERLOOKS_OFFSETS=1.
struct fake_nccl_faults {
  int version;        // 0: 22809
  int rank;           // the rank of each communicator that has the faults; -1: all ranks
  int fail_init;      // not 0: ncclSystemError
  int hang_init;      // not 0: never ends
  int error_at;       // the operation, counted from 0, after which an asynchronous error occurs; -1: none
  int hang_at;        // the operation that never ends; -1: none
  int fail_register;  // not 0: ncclSystemError
  int stop_peers;  // not 0: until it is 0 again, ncclCommDeregister waits as for a stopped peer; for all communicators
  int no_windows;  // not 0: the communicator supports no windows, as across hosts, or without access between devices
  int overlooks_offsets;  // not 0: calls end even if the ranks' offsets in windows differ, as they may with NCCL
};

// The functions of fake_cuda.h and fake_capture.h that enqueue work on a stream and find the work's memory on the
// device. Unless fake_nccl_set_cuda is called, the library looks for them in the process, and then in the loaded
// library that FAKE_CUDA_LIBRARY names or, if this variable is not set, RONDA_CUDA_PLUGIN.
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

// These functions return how many communicators exist, and how many have been created or aborted so far.
__attribute__((visibility("default"))) int fake_nccl_live_communicators();
__attribute__((visibility("default"))) int fake_nccl_made_communicators();
__attribute__((visibility("default"))) int fake_nccl_aborted_communicators();

// These functions return how many blocks ncclMemAlloc has allocated, and how many times memory was registered.
__attribute__((visibility("default"))) int fake_nccl_allocations();
__attribute__((visibility("default"))) int fake_nccl_registrations();
// Returns how many of the registrations were windows.
__attribute__((visibility("default"))) int fake_nccl_windows();

// Returns how often all ranks of this process have called a collective, such as "AllReduce". "symmetric" counts the
// calls whose buffers are in symmetric windows, and "copies" those of AllGather that NCCL 2.28.9 carries out by copy
// engines.
__attribute__((visibility("default"))) int fake_nccl_calls(const char* name);

// Returns the number of threads that NCCL would have started in this process so far: one for each group of calls on a
// non-blocking communicator.
__attribute__((visibility("default"))) int fake_nccl_threads();

// Returns the number of threads of this process that are in blocking calls.
__attribute__((visibility("default"))) int fake_nccl_threads_in_calls();

// Returns the number of calls that are waiting for a stopped peer (stop_peers).
__attribute__((visibility("default"))) int fake_nccl_waiting_for_peers();

// Writes the oldest unread report to `text`, in at most `size` bytes. Writes "" if there is none.
__attribute__((visibility("default"))) void fake_nccl_take_report(char* text, size_t size);
}

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
