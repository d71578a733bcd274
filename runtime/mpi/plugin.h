/* What libronda_mpi*.so offers: MPI behind a table of C functions, so that nothing else is linked with an MPI and one
 * build of Ronda works with any. Ranks are those of MPI_COMM_WORLD unless a communicator says otherwise.
 *
 * Functions that return int return 0, or an MPI error code for error_text. None blocks for another rank but those said
 * to. Calls come from one thread at a time (MPI_THREAD_SERIALIZED is enough), but not always from the same one. */
#ifndef RONDA_RUNTIME_MPI_PLUGIN_H_
#define RONDA_RUNTIME_MPI_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of the table. */
#define RONDA_MPI_PLUGIN_VERSION 1

typedef struct ronda_mpi_communicator ronda_mpi_communicator;

/* A message under way; as many bytes as an MPI_Request of any library. */
typedef struct {
  uint64_t words[2];
} ronda_mpi_request;

/* What initialize found and did. */
typedef struct {
  int rank;
  int size;
  int serialized;  /* whether threads may call it by turns; 0: only the thread that initialized it */
  int initialized; /* whether this call initialized MPI; 0: the program had, and finalizes it too */
} ronda_mpi_world;

typedef struct {
  uint32_t version; /* RONDA_MPI_PLUGIN_VERSION */
  /* "Open MPI v4.1.4, package: ..."; may be called before initialize */
  const char* (*library)(void);
  /* Blocks until all ranks of MPI_COMM_WORLD have called it. */
  int (*initialize)(ronda_mpi_world* world);
  /* Blocks until all ranks have called it; to be called if `initialized` was set and the job has not failed. */
  int (*finalize)(void);
  /* At most `size` bytes, with a zero at the end. */
  void (*error_text)(int error, char* text, size_t size);
  /* Blocks until all ranks of MPI_COMM_WORLD have called it with the same size; what lies at `data` on rank 0 replaces
   * it on the others. */
  int (*broadcast)(void* data, size_t size);
  /* A communicator of `ranks`, which its members, and only they, ask for; blocks for them. */
  int (*create)(const int* ranks, int size, int tag, ronda_mpi_communicator** communicator);
  void (*destroy)(ronda_mpi_communicator* communicator);
  int (*send)(ronda_mpi_communicator* communicator, const void* data, size_t bytes, int to, int tag,
              ronda_mpi_request* request);
  int (*receive)(ronda_mpi_communicator* communicator, void* data, size_t bytes, int from, int tag,
                 ronda_mpi_request* request);
  /* Sets *done if all of `requests` are complete; they are freed then. Never blocks. */
  int (*test)(ronda_mpi_request* requests, int count, int* done);
} ronda_mpi_plugin;

/* The one symbol that the plugin exports. */
#define RONDA_MPI_PLUGIN_SYMBOL "ronda_mpi_plugin_table"
const ronda_mpi_plugin* ronda_mpi_plugin_table(void);

#ifdef __cplusplus
}
#endif

#endif /* RONDA_RUNTIME_MPI_PLUGIN_H_ */
