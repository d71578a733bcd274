// SPDX-License-Identifier: Apache-2.0

// A fake NCCL for the devices of fake_cuda. libfake_nccl.so has the part of NCCL's C interface that Ronda uses
// (runtime/collectives/nccl/nccl_library.h). The fake runs collectives between threads or processes of one host through
// shared memory, in the order of the given streams. Sums go around a ring, and are rounded at every hop. So numbers are
// not added in the order of the ranks.
//
// As with NCCL, a call on a communicator that does not block may return ncclInProgress. The work of such a call is on
// the stream only when ncclCommGetAsyncError returns ncclSuccess. A communicator that blocks is made by splitting one
// that does not block. Its first call of each kind waits for the other ranks, as NCCL does to connect the ranks. An
// abort of the parent ends this wait if parent and child share resources. The fake reports a communicator that is freed
// while a thread is in one of its calls.
//
// Windows (ncclCommWindowRegister) are made by all ranks together, on communicators that block. Sums of 16-bit numbers
// in symmetric windows are made in float32 and rounded once, as NCCL's kernels for symmetric memory do.
//
// The fake fails or hangs where NCCL does. If the ranks' calls differ, NCCL hangs or its behaviour is undefined. In
// such a case the fake writes a report, and hangs until the communicator is aborted. If this takes more than a minute,
// the fake stops the process.
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

// These functions return the numbers of communicators that exist, that were created so far, and that were aborted so
// far.
__attribute__((visibility("default"))) int fake_nccl_live_communicators();
__attribute__((visibility("default"))) int fake_nccl_made_communicators();
__attribute__((visibility("default"))) int fake_nccl_aborted_communicators();

// These functions return how many blocks ncclMemAlloc has allocated, and how often memory was registered.
__attribute__((visibility("default"))) int fake_nccl_allocations();
__attribute__((visibility("default"))) int fake_nccl_registrations();
// Returns how many of the registrations were windows.
__attribute__((visibility("default"))) int fake_nccl_windows();

// Returns how often all ranks of this process have called a collective, such as "AllReduce". "copies" counts the calls
// of AllGather that NCCL 2.28.9 carries out by copy engines.
__attribute__((visibility("default"))) int fake_nccl_calls(const char* name);

// Returns the number of groups of all ranks of this process for which NCCL would have started a thread. If a
// communicator's calls do not block, NCCL starts a thread for each group of calls.
__attribute__((visibility("default"))) int fake_nccl_threads();

// Returns the number of the caller's threads that are now in blocking calls.
__attribute__((visibility("default"))) int fake_nccl_threads_in_calls();

// Returns the number of calls that now wait for a stopped peer (stop_peers).
__attribute__((visibility("default"))) int fake_nccl_waiting_for_peers();

// Writes the oldest report that has not been read to `text`, at most `size` bytes. Writes "" if there is no report.
__attribute__((visibility("default"))) void fake_nccl_take_report(char* text, size_t size);
}

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
