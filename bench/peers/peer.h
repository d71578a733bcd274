/* SPDX-License-Identifier: Apache-2.0 */

/* The interface of a peer of the benchmarks. A peer is a shared library, libronda_bench_NAME.so, which ronda-bench
 * opens at run time. The library exports one function, const ronda_bench_peer* ronda_bench_peer_functions(void).
 *
 * Only one thread of a process calls a peer. All ranks make the same calls in the same order. Functions that return
 * int, except algorithm_count(), return 0 on success; after any other value, last_error() returns the text of the
 * error. */
#ifndef RONDA_BENCH_PEERS_PEER_H_
#define RONDA_BENCH_PEERS_PEER_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDA_BENCH_PEER_VERSION 1

enum ronda_bench_op {
  RONDA_BENCH_ALLREDUCE = 0,
  RONDA_BENCH_REDUCE = 1,
  RONDA_BENCH_BROADCAST = 2,
  RONDA_BENCH_ALLGATHER = 3,
  RONDA_BENCH_REDUCESCATTER = 4,
  RONDA_BENCH_ALLTOALL = 5,
  RONDA_BENCH_BARRIER = 6
};

enum ronda_bench_dtype {
  RONDA_BENCH_FLOAT32 = 0,
  RONDA_BENCH_FLOAT64 = 1,
  RONDA_BENCH_FLOAT16 = 2, /* IEEE 754 binary16 */
  RONDA_BENCH_INT32 = 3,
  RONDA_BENCH_INT64 = 4,
  RONDA_BENCH_UINT8 = 5
};

/* A collective operation; reductions are sums. Buffers, in elements, with n ranks:
 *   allreduce, reduce (root 0)    input: count, output: count (may be the input)
 *   broadcast (root 0)            output: count, read on rank 0
 *   allgather                     input: count, output: n * count
 *   reducescatter                 input: n * count, output: count
 *   alltoall                      input: n * count, output: n * count */
typedef struct ronda_bench_call {
  int op;    /* enum ronda_bench_op */
  int dtype; /* enum ronda_bench_dtype */
  const void* input;
  void* output;
  size_t count;
} ronda_bench_call;

typedef struct ronda_bench_prepared ronda_bench_prepared; /* the peer's own */

typedef struct ronda_bench_peer {
  int version; /* RONDA_BENCH_PEER_VERSION */

  /* Joins the job. `directory` is an empty directory, the same on all ranks, for peers with a file-based rendezvous. */
  int (*init)(int rank, int size, const char* directory);

  /* Returns the peer's name and version, such as "Open MPI 4.1.4". Valid after init(). */
  const char* (*description)(void);

  /* Returns the number of algorithms for the call, or 0 if the peer does not support the call. */
  int (*algorithm_count)(const ronda_bench_call* call);
  const char* (*algorithm_name)(const ronda_bench_call* call, int algorithm);

  /* Prepares an operation, which is not timed. The caller owns the buffers, which must outlive the prepared call.
   * Returns NULL on an error. */
  ronda_bench_prepared* (*prepare)(const ronda_bench_call* call, int algorithm);
  int (*run)(ronda_bench_prepared* prepared);
  void (*release)(ronda_bench_prepared* prepared);

  /* Leaves the job. No other function is called after this one. */
  void (*finalize)(void);

  const char* (*last_error)(void);
} ronda_bench_peer;

#ifdef __cplusplus
}
#endif

#endif /* RONDA_BENCH_PEERS_PEER_H_ */
