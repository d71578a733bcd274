// An NCCL whose devices are those of fake_cuda: libfake_nccl.so has NCCL's C interface, as far as Ronda uses it
// (runtime/collectives/nccl/nccl_library.h), and does the collectives between threads or processes of one host through
// shared memory, in the order of the streams it is given. Sums go around a ring, and are rounded at every hop: not in
// the order of the ranks.
//
// As with NCCL, what is given to a communicator that does not block has not reached the stream when the call returns
// ncclInProgress, but when ncclCommGetAsyncError says ncclSuccess. Communicators that block are split off such ones.
// The first call of a kind waits for the other ranks there, as NCCL does to connect them. An abort of the parent ends
// that, if the two share resources; a communicator that is freed while a thread is in a call of it is reported.
//
// The fake fails or hangs where NCCL does. Where NCCL hangs or is undefined, because ranks do not do the same, the fake
// reports that and hangs until it is aborted; after a minute it stops the process.
#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_

#include <cstddef>

#include "runtime/cuda/plugin.h"

extern "C" {

// Faults of all communicators that are made from then on. Before the first call the environment sets them:
// FAKE_NCCL_VERSION, FAKE_NCCL_RANK, FAKE_NCCL_FAIL_INIT=1, FAKE_NCCL_HANG_INIT=1, FAKE_NCCL_ERROR_AT=<n>,
// FAKE_NCCL_HANG_AT=<n>, FAKE_NCCL_FAIL_REGISTER=1, FAKE_NCCL_STOP_PEERS=1.
struct fake_nccl_faults {
  int version;        // 0: 22809
  int rank;           // of each communicator, that has them; -1: all
  int fail_init;      // not 0: ncclSystemError
  int hang_init;      // not 0: never ends
  int error_at;       // of its operations, counted from 0, the one after which there is an asynchronous error; -1: none
  int hang_at;        // the one that never ends; -1: none
  int fail_register;  // not 0: ncclSystemError
  int stop_peers;  // not 0: ncclCommDeregister waits, as for a peer that is stopped, until this is 0. For all at once
};

// How work gets onto a stream, and where the device's memory is for it: fake_cuda.h. Without this call the library
// looks for the functions in the process, and in the library that RONDA_CUDA_PLUGIN names.
struct fake_nccl_cuda {
  int (*enqueue)(void* stream, void (*function)(void*), void* context);
  void* (*view)(const void* address);
  int (*device_of)(const void* address);
  void (*wait_before_free)();       // before a communicator that is aborted frees memory of the device
  const ronda_cuda_plugin* plugin;  // whose memory ncclMemAlloc gives out; nullptr: it fails
};

__attribute__((visibility("default"))) void fake_nccl_set_faults(const fake_nccl_faults* faults);
__attribute__((visibility("default"))) void fake_nccl_set_cuda(const fake_nccl_cuda* cuda);

// Communicators that have not been destroyed or aborted; those that have been made so far; and those of them that were
// aborted.
__attribute__((visibility("default"))) int fake_nccl_live_communicators();
__attribute__((visibility("default"))) int fake_nccl_made_communicators();
__attribute__((visibility("default"))) int fake_nccl_aborted_communicators();

// Blocks that ncclMemAlloc has given out, and registrations of memory: so far.
__attribute__((visibility("default"))) int fake_nccl_allocations();
__attribute__((visibility("default"))) int fake_nccl_registrations();

// Calls of a collective, of all ranks of this process, so far: "AllReduce".
__attribute__((visibility("default"))) int fake_nccl_calls(const char* name);

// Groups for which NCCL has started a thread, of all ranks of this process: those of communicators that do not block.
__attribute__((visibility("default"))) int fake_nccl_threads();

// The caller's threads in calls of communicators that block, now.
__attribute__((visibility("default"))) int fake_nccl_threads_in_calls();

// Calls that wait for a peer that is stopped (stop_peers), now.
__attribute__((visibility("default"))) int fake_nccl_waiting_for_peers();

// Writes the oldest report that has not been taken, at most `size` bytes; "": there is none.
__attribute__((visibility("default"))) void fake_nccl_take_report(char* text, size_t size);
}

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_H_
