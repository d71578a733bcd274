/* SPDX-License-Identifier: Apache-2.0 */

/* The interface of libronda_mpi*.so, which hides MPI behind a table of C functions. Only the plugin links an MPI
 * library, so one build of Ronda works with any MPI. Ranks are numbered as in MPI_COMM_WORLD or, if a function takes a
 * communicator, as in that communicator.
 *
 * Functions that return int return 0 or an MPI error code for error_text. Functions wait for other ranks only if their
 * comment says so. Different threads may call the functions, but only one at a time, so MPI_THREAD_SERIALIZED
 * suffices. */
#ifndef RONDA_RUNTIME_MPI_PLUGIN_H_
#define RONDA_RUNTIME_MPI_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increment this version with every change to the table of functions. */
#define RONDA_MPI_PLUGIN_VERSION 1

typedef struct ronda_mpi_communicator ronda_mpi_communicator;

/* A message in progress. The struct is large enough for any library's MPI_Request. */
typedef struct {
  uint64_t words[2];
} ronda_mpi_request;

/* The result of `initialize`. */
typedef struct {
  int rank;
  int size;
  int serialized;  /* whether several threads may call MPI, one at a time; 0: only the thread that initialized it may */
  int initialized; /* whether this call initialized MPI; 0: the program did, and will finalize it */
} ronda_mpi_world;

typedef struct {
  uint32_t version; /* RONDA_MPI_PLUGIN_VERSION */
  /* Returns for example "Open MPI v4.1.4, package: ...". May be called before initialize. */
  const char* (*library)(void);
  /* Blocks until all ranks of MPI_COMM_WORLD have called this function. */
  int (*initialize)(ronda_mpi_world* world);
  /* Must be called if `initialized` was set and the job has not failed. Blocks until all ranks have called it. */
  int (*finalize)(void);
  /* Writes at most `size` bytes to `text`, including a terminating zero. */
  void (*error_text)(int error, char* text, size_t size);
  /* Copies rank 0's `data` to all ranks. Blocks until all ranks of MPI_COMM_WORLD have called it with the same size. */
  int (*broadcast)(void* data, size_t size);
  /* Creates a communicator of `ranks`. Exactly these ranks must call it. Blocks until all of them have called it. */
  int (*create)(const int* ranks, int size, int tag, ronda_mpi_communicator** communicator);
  void (*destroy)(ronda_mpi_communicator* communicator);
  int (*send)(ronda_mpi_communicator* communicator, const void* data, size_t bytes, int to, int tag,
              ronda_mpi_request* request);
  int (*receive)(ronda_mpi_communicator* communicator, void* data, size_t bytes, int from, int tag,
                 ronda_mpi_request* request);
  /* Sets *done to whether all of `requests` are complete; if so, frees them. Never blocks. */
  int (*test)(ronda_mpi_request* requests, int count, int* done);
} ronda_mpi_plugin;

/* The only symbol that the plugin exports. */
#define RONDA_MPI_PLUGIN_SYMBOL "ronda_mpi_plugin_table"
const ronda_mpi_plugin* ronda_mpi_plugin_table(void);

#ifdef __cplusplus
}
#endif

#endif /* RONDA_RUNTIME_MPI_PLUGIN_H_ */
