/* Ronda's C ABI, version 1: everything libronda.so exports.
 *
 * A process is one rank of a job. After ronda_init() it submits named tensors with the *_async functions, in any order;
 * each is carried out once every rank has submitted the tensor of that name. A submission returns a handle: wait for it
 * with ronda_synchronize(), look at it with ronda_poll(), and give it back with ronda_release().
 *
 * Functions return RONDA_OK or one of the codes below; ronda_last_error() then says what happened, with names, ranks
 * and what to do. Argument structs begin with their size, so that later versions can add fields: set struct_size to
 * sizeof(the struct) and zero the rest, or use the RONDA_*_INIT macros. Zero always means the default.
 *
 * Ranks are numbered as in the job everywhere, also in operations of a process set. Arrays with an entry for each
 * member of a process set are in ascending order of the members' ranks.
 *
 * Thread-safety: all functions may be called from any thread. Buffers belong to the caller and must stay valid and
 * untouched until the handle is complete.
 *
 * A child that a rank makes with fork() is no rank: it finds Ronda uninitialised, cannot call ronda_init(), and may end
 * in any way without a trace in the job.
 *
 * Tensors in a GPU's memory are submitted with RONDA_MEMORY_CUDA and a stream, as soon as the work that fills them has
 * been given to that stream. Only the device waits for that work. With ronda_synchronize_on_stream() a stream waits for
 * the result in the same way. Outputs that Ronda owns are in the GPU's memory then. The arguments themselves, shapes
 * and splits stay on the host. */
#ifndef RONDA_H_
#define RONDA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDA_ABI_VERSION 1

typedef enum ronda_status {
  RONDA_OK = 0,
  RONDA_ERROR_INVALID_ARGUMENT = 1,    /* nothing was submitted, or the caller's output is too small for the result; in
                                          ronda_init(): the ranks do not fit */
  RONDA_ERROR_NOT_INITIALIZED = 2,     /* ronda_init() has not been called, or ronda_shutdown() has */
  RONDA_ERROR_ALREADY_INITIALIZED = 3, /* ronda_init() was called twice */
  RONDA_ERROR_DUPLICATE_NAME = 4,      /* a tensor of this name is in flight in this process set */
  RONDA_ERROR_MISMATCH = 5,      /* ranks disagree about this tensor, or one it needs has joined; the job goes on */
  RONDA_ERROR_DEADLINE = 6,      /* a rank did not show up in time */
  RONDA_ERROR_PEER_FAILED = 7,   /* a rank died, or has left and will not take part */
  RONDA_ERROR_OUT_OF_MEMORY = 8, /* memory or shared memory is exhausted */
  RONDA_ERROR_INTERNAL = 9,      /* a bug in Ronda, or a system call that should not fail */
  RONDA_ERROR_MEMBERSHIP = 10    /* this process has no place in its elastic job any more, or no rank has its state */
} ronda_status;

typedef enum ronda_dtype {
  RONDA_UINT8 = 0,
  RONDA_INT8 = 1,
  RONDA_INT32 = 2,
  RONDA_INT64 = 3,
  RONDA_FLOAT16 = 4,
  RONDA_BFLOAT16 = 5,
  RONDA_FLOAT32 = 6,
  RONDA_FLOAT64 = 7,
  RONDA_BOOL = 8, /* one byte; results are 0 or 1 */
  RONDA_UINT16 = 9,
  RONDA_INT16 = 10,
  RONDA_UINT32 = 11,
  RONDA_UINT64 = 12
} ronda_dtype;

typedef enum ronda_reduce_op {
  RONDA_SUM = 0,
  RONDA_MIN = 1,
  RONDA_MAX = 2,
  RONDA_PRODUCT = 3,
  RONDA_AVERAGE =
      4,          /* the sum, of integers in a wider type, by the number of ranks, towards zero; not for RONDA_BOOL */
  RONDA_BAND = 5, /* bit by bit; integers and RONDA_BOOL */
  RONDA_BOR = 6,
  RONDA_BXOR = 7,
  RONDA_ADASUM = 8 /* adaptive sum, which scales with the ranks' agreement; allreduce of floating-point numbers */
} ronda_reduce_op;

/* The format in which floating-point elements travel when they are reduced; sums are made in fp32 and rounded once. The
 * 16-bit formats apply to float32 and float64, the 8-bit ones, blocks with a scale each, to the 16-bit types too. */
typedef enum ronda_compression {
  RONDA_COMPRESSION_NONE = 0,
  RONDA_COMPRESSION_FP16 = 1,
  RONDA_COMPRESSION_BF16 = 2,
  RONDA_COMPRESSION_FP8_E4M3 = 3,
  RONDA_COMPRESSION_FP8_E5M2 = 4
} ronda_compression;

/* How averages count ranks that have joined. */
typedef enum ronda_absent {
  RONDA_ABSENT_NOT_COUNTED = 0,     /* divide by the number of ranks that take part */
  RONDA_ABSENT_COUNTED_AS_ZEROS = 1 /* divide by the number of all ranks of the process set */
} ronda_absent;

/* Where the buffers of an operation are, on every rank. */
typedef enum ronda_memory {
  RONDA_MEMORY_HOST = 0,
  RONDA_MEMORY_CUDA = 1 /* of one GPU: all tensors of a rank are on the same */
} ronda_memory;

/* Names a process set; 0 is the set of all ranks. */
typedef uint32_t ronda_process_set;

/* Ranks of a job, ascending. */
typedef struct ronda_rank_list {
  const int* ranks;
  int count;
} ronda_rank_list;

/* Overrides of the environment (RONDA_*); zero leaves the environment's value, or the default.
 *
 * A program that knows its place in the job gives it in the last fields. They stand for the variables RONDA_RANK,
 * RONDA_SIZE, RONDA_LOCAL_RANK, RONDA_LOCAL_SIZE, RONDA_MASTER_ADDR, RONDA_MASTER_PORT, RONDA_JOB_SECRET and
 * RONDA_EPOCH, and come before those of any launcher. Ranks that have a size and a port here need no variable at all.
 */
typedef struct ronda_options {
  size_t struct_size;
  double cycle_time_ms;     /* longest time a tensor may wait for others to be fused with; negative: none */
  int64_t fusion_threshold; /* bytes of a bucket; negative: no fusion */
  int64_t cache_capacity;   /* entries of the response cache; negative: no cache */
  double stall_warning_s;   /* a tensor missing on some rank for so long is reported; negative: never */
  double stall_deadline_s;  /* and fails after so long; negative: never */
  double start_timeout_s;   /* the longest time to wait for the other ranks in ronda_init(); not negative */
  /* Process sets that exist from the start, the same on every rank; their ids are 1, 2, ... in this order. */
  const ronda_rank_list* process_sets;
  int process_set_count;
  /* The first version ended here. */
  const char* master_address; /* where rank 0 listens; needs master_port */
  const char* secret;         /* the same on every rank; needed where master_address is not a loopback address */
  int master_port;            /* 1 to 65535; without master_address: at 127.0.0.1, if the environment says no other */
  int rank;                   /* 0 <= rank < size; needs size */
  int size;                   /* ranks of the job; 0: rank and size are the environment's */
  int local_rank;             /* number among the ranks on this host; needs local_size */
  int local_size;             /* ranks on this host; 0: found out */
  /* The second version ended here. */
  int64_t epoch; /* of the job, 0 to 999999999: grows when ranks leave the job and meet again (docs/elastic.md) */
} ronda_options;
#define RONDA_OPTIONS_INIT \
  { sizeof(ronda_options), 0, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, 0, 0, 0, 0, 0, 0 }

/* The version of the library, "0.1.0". */
const char* ronda_version(void);

/* The error text of this thread's last call that did not return RONDA_OK; "" if there is none. Valid until the thread's
 * next call. */
const char* ronda_last_error(void);

/* 1 if ranks whose calls have ended with `status` can leave the job with ronda_shutdown() and meet again in its next
 * epoch: RONDA_ERROR_PEER_FAILED and RONDA_ERROR_DEADLINE, after which the ranks that are left are sound. 0 for all
 * others, which the same program would meet again: wrong arguments and ranks that disagree, exhausted memory, faults in
 * Ronda itself; and for RONDA_OK. */
int ronda_status_is_recoverable(ronda_status status);

/* -- The job -- */

/* Joins the job that the environment describes (rondarun, torchrun-style variables, or a single rank); blocks until
 * every rank has. `options` may be NULL.
 *
 * A process that an elastic launcher has started (RONDA_MEMBERSHIP_FD) asks it for its place, unless `options` give
 * one, and waits for that as long as the launcher is there; see ronda_elastic_reform(). */
ronda_status ronda_init(const ronda_options* options);

/* Completes the operations in flight, waits until every rank has called it, and ends the job for this process. It does
 * so also if it returns an error: then the job had failed, and the operations in flight have that error. Handles stay
 * valid, complete, until they are released. ronda_init() may be called again afterwards. A process that ends without it
 * has failed the job, even if its main() has returned 0. */
ronda_status ronda_shutdown(void);

/* Fails the job at once, for all of its ranks: operations that have not ended, and further ones, have
 * RONDA_ERROR_PEER_FAILED with `reason`, a sentence for the other ranks. Waits for nobody; any thread may call it while
 * others are in a wait. ronda_shutdown() then ends the job for this process without the others, and ronda_init() may
 * join another. A job that has failed keeps its first failure. Errors: RONDA_ERROR_NOT_INITIALIZED. */
ronda_status ronda_abort(const char* reason);

/* RONDA_OK while the job goes on; else its failure, with which its operations end. Asks no other rank. Errors:
 * RONDA_ERROR_NOT_INITIALIZED. */
ronda_status ronda_job_status(void);

int ronda_is_initialized(void); /* 1 or 0 */

/* Whose variables tell a process its place in the job. */
typedef enum ronda_launcher {
  RONDA_LAUNCHER_NONE = 0,
  RONDA_LAUNCHER_RONDARUN = 1, /* RONDA_RANK and RONDA_SIZE, whoever sets them */
  RONDA_LAUNCHER_TORCHRUN = 2, /* RANK and WORLD_SIZE, whoever sets them */
  RONDA_LAUNCHER_PADDLE = 3,
  RONDA_LAUNCHER_OPEN_MPI = 4,
  RONDA_LAUNCHER_MPICH = 5,
  RONDA_LAUNCHER_SLURM = 6,
  RONDA_LAUNCHER_PMI = 7 /* another process manager with PMI */
} ronda_launcher;

#define RONDA_MAX_ADDRESS_LENGTH 255

/* A place in a job. Numbers that the launcher does not tell are -1. */
typedef struct ronda_place {
  size_t struct_size;
  ronda_launcher launcher;
  int rank;
  int size;
  int local_rank;
  int local_size;
  int cross_rank;
  int cross_size;
  /* Where rank 0 may listen for another library, a store of torch.distributed for instance. It follows from the name
   * that the launcher gives the job, so that all ranks know the same; "" and 0 if it does not. Launchers that set
   * MASTER_ADDR and MASTER_PORT tell it there. */
  int store_port;
  char store_address[RONDA_MAX_ADDRESS_LENGTH + 1];
} ronda_place;
#define RONDA_PLACE_INIT \
  { sizeof(ronda_place), RONDA_LAUNCHER_NONE, -1, -1, -1, -1, -1, -1, 0, "" }

/* Tells the place that the environment gives this process, as ronda_init() without options would read it. Joins
 * nothing, and may be called before ronda_init(), after it and in children. Without variables of a launcher the
 * launcher is RONDA_LAUNCHER_NONE and all numbers are -1: ronda_init() makes a job of one rank there. Writes the first
 * struct_size bytes; bytes beyond those that this library knows become zero. Errors: RONDA_ERROR_INVALID_ARGUMENT that
 * names the variable (some of the launcher's variables are missing, or contradict each other). */
ronda_status ronda_get_place(ronda_place* place);

/* -1 before ronda_init(). */
int ronda_rank(void);
int ronda_size(void);
int ronda_local_rank(void);
int ronda_local_size(void);
int ronda_cross_rank(void);
int ronda_cross_size(void);

/* *stop becomes 1 once some rank has received SIGTERM, which schedulers send to jobs whose machine they take back; else
 * 0. Every rank calls it as often as the others, once a step. All ranks read the 1 in the same call, and may save their
 * state there and end.
 *
 * A call answers with the knowledge of the ranks in the previous call, and does not wait where that is complete. So
 * ranks learn of a signal up to two calls after it has come. The first call sets a handler for SIGTERM, which calls a
 * handler that the program has installed before. Until the first call the signal ends the process as usual. Ranks that
 * have joined do not call it until all have; then the first call answers 0. One thread of a rank calls it. Errors: as
 * those of an operation. */
ronda_status ronda_should_stop(int* stop);

/* -- Elastic jobs: members die, come and go, and the others go on (docs/elastic.md). Not in ronda_run_threads(). -- */

typedef struct ronda_elastic_reform_options {
  size_t struct_size;
  const char* reason;           /* the failure that ends the epoch for this rank; NULL: none, the change is planned */
  double timeout_s;             /* longest wait for a place; 0: as long as the launcher is there; not negative */
  const ronda_options* options; /* of the job in the next epoch, without a place; may be NULL */
} ronda_elastic_reform_options;
#define RONDA_ELASTIC_REFORM_OPTIONS_INIT \
  { sizeof(ronda_elastic_reform_options), NULL, 0, NULL }

/* Leaves the present epoch of an elastic job, if there is one, asks the launcher for a place in the next one, and joins
 * it: ranks and sizes are new then, and process sets, and what Ronda has learned about the job, begin anew. With a
 * reason the epoch fails at once, for all of its ranks; without one its ranks leave it together, as by
 * ronda_shutdown(). `options` may be NULL. An error leaves the process without a job; after one that is recoverable the
 * process may call it again. Errors: RONDA_ERROR_MEMBERSHIP (the launcher has no place for this process any more, is
 * gone, or gives no place in time); RONDA_ERROR_INVALID_ARGUMENT (this is no process of an elastic job);
 * RONDA_ERROR_INTERNAL (this process's GPU is stuck, or has failed: end the process, and the launcher replaces it);
 * those of ronda_init(). */
ronda_status ronda_elastic_reform(const ronda_elastic_reform_options* options);

/* The two marks between which a rank changes the state that is the same on all ranks: parameters, the optimizer's
 * buffers. A state is torn from the first on, and complete again after the second, when it has seen one step more. The
 * first may be repeated. A mark costs a load and a store. */
void ronda_elastic_begin_update(void);
void ronda_elastic_end_update(void);

/* Whose state all ranks go on with. */
typedef struct ronda_elastic_source {
  size_t struct_size;
  int64_t step;    /* steps that it has seen */
  int rank;        /* which has it */
  int is_snapshot; /* 1: it is the snapshot of that step, not the rank's present state, which is torn */
  int is_behind;   /* 1: this rank has another state, or none */
  int any_behind;  /* 1: some rank has */
} ronda_elastic_source;
#define RONDA_ELASTIC_SOURCE_INIT \
  { sizeof(ronda_elastic_source), 0, 0, 0, 0, 0 }

/* Called by all ranks when they have met: each tells how far its state has come, and all learn the same about it. The
 * source is the lowest rank of those whose complete state has seen the most steps; rank 0 where no process has a state
 * yet. If all of these are torn it is the lowest rank with the newest snapshot, which then is behind too.
 * `snapshot_step` says which snapshot this rank keeps, -1 that it keeps none.
 *
 * If any rank is behind, the caller broadcasts the state from the source. A rank that is behind calls
 * ronda_elastic_begin_update() before it changes its own, and ronda_elastic_end_update() after, which then makes it the
 * state of the source's step. Errors: RONDA_ERROR_MEMBERSHIP (all ranks that had a state are torn, without a snapshot);
 * those of an operation. */
ronda_status ronda_elastic_sync(int64_t snapshot_step, ronda_elastic_source* source);

typedef enum ronda_elastic_change {
  RONDA_ELASTIC_GO_ON = 0,
  RONDA_ELASTIC_REFORM = 1, /* the members change: call ronda_elastic_reform() now, without a reason */
  RONDA_ELASTIC_LEAVE = 2   /* this rank has got SIGTERM, or the launcher ends it: call ronda_shutdown() now, and end */
} ronda_elastic_change;

/* Called by all ranks at the end of each step. *change becomes RONDA_ELASTIC_REFORM or RONDA_ELASTIC_LEAVE on all ranks
 * in the same call: because the launcher has members to add, or because some rank has received SIGTERM, which alone
 * leaves. As with ronda_should_stop(), ranks learn of it up to two calls later, a call does not wait where the ranks
 * compute between their calls, and one thread of a rank calls it. The first call of it, or of ronda_elastic_sync(),
 * sets the handler for the signal. In a job that is not elastic all ranks leave. Errors: RONDA_ERROR_MEMBERSHIP (the
 * launcher is gone); those of an operation. */
ronda_status ronda_elastic_poll(ronda_elastic_change* change);

/* Runs `body` once for each rank of a job of `size` ranks that are threads of this process, and returns when all have
 * ended: the job's first failure, if it failed. In `body`, and in functions that it calls, every function of this
 * header acts for that thread's rank; the job begins and ends with `body`, so ronda_init() is not called there.
 * `options` may be NULL; otherwise the environment's settings and these hold. */
ronda_status ronda_run_threads(const ronda_options* options, int size, void (*body)(void* context), void* context);

/* The rank for which a thread acts: 0 for the rank that ronda_init() made, else one of ronda_run_threads(). A thread
 * that `body` starts acts for the same rank as the one that starts it once it has passed on what ronda_current()
 * returned there to ronda_make_current(). */
typedef int64_t ronda_context;
ronda_context ronda_current(void);
ronda_status ronda_make_current(ronda_context context);

/* Counts of this rank's work since ronda_init(), which only grow, but for tensors_in_flight. They tell whether a job
 * has settled: once its steps repeat, only buckets_scheduled and schedule_rounds still grow. */
typedef struct ronda_statistics {
  size_t struct_size;
  uint64_t reports_sent;      /* control messages to rank 0 */
  uint64_t reports_received;  /* by rank 0, its own included */
  uint64_t lists_sent;        /* control messages of rank 0, each to all ranks */
  uint64_t lists_received;    /* of these, by this rank */
  uint64_t buckets_agreed;    /* tensors that ran together: because rank 0 said so */
  uint64_t buckets_scheduled; /* because the locked schedule says so: without any control message */
  uint64_t schedules_begun;   /* how often the steps of the job had repeated so that a schedule was locked */
  uint64_t schedules_left;    /* and how often a rank did something else then */
  uint64_t own_vetoes;        /* of these, how often it was this rank */
  uint64_t schedule_rounds;   /* how often a locked schedule was carried out as a whole */
  uint64_t steps;             /* a step ends when a tensor that it has is submitted again */
  uint64_t tensors;           /* carried out with this rank's part in them */
  uint64_t payload_bytes;     /* of these, in their own dtype */
  uint64_t wire_bytes;        /* of the same, in the format in which they travelled */
  /* Nanoseconds from the time at which this rank was ready for a bucket, and done with the one before, to the end of
   * the bucket: waits for other ranks, and transfers. */
  uint64_t bucket_nanoseconds;
  uint64_t tensors_in_flight; /* submitted and not carried out, now */
  /* Nanoseconds in which the program waited for a tensor, with one thread or more: the communication that its own work
   * has not hidden. Waits of streams of a device are not among them. */
  uint64_t exposed_nanoseconds;
} ronda_statistics;
#define RONDA_STATISTICS_INIT \
  { sizeof(ronda_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Writes the first struct_size bytes of the statistics; bytes beyond those that this library knows become zero. */
ronda_status ronda_get_statistics(ronda_statistics* statistics);

/* Makes this rank write a timeline from now on: the events of its tensors, as a trace that Perfetto shows. The file is
 * `path` with the rank before the extension: "trace.json" becomes "trace.rank3.json". An existing file is replaced.
 * Every rank that calls it writes one; ranks need not call it together. The same as RONDA_TIMELINE for a part of the
 * job. Errors: RONDA_ERROR_INVALID_ARGUMENT (the file cannot be created, or there is a timeline already). */
ronda_status ronda_start_timeline(const char* path);

/* Ends the file; so does ronda_shutdown(). Nothing happens if there is none. */
ronda_status ronda_stop_timeline(void);

/* -- Process sets: ranks that operate among themselves, also at the same time as other sets -- */

/* Makes a set of these ranks, ascending, and writes its id. Blocks until every rank of the job, also those that are not
 * in the set, has called it with the same ranks. */
ronda_status ronda_add_process_set(const int* ranks, int count, ronda_process_set* id);

/* The same, called by the ranks of the set alone: blocks until each of them has called it with the same ranks and tag.
 * The other ranks of the job do nothing for it, and learn of the set. `tag` tells apart sets of the same ranks that are
 * being made at the same time; NULL is the same as "". Errors: RONDA_ERROR_INVALID_ARGUMENT (the caller is not among
 * the ranks, or they are not ascending ranks of the job); RONDA_ERROR_DUPLICATE_NAME (another thread of this rank makes
 * a set of the same ranks and tag); RONDA_ERROR_PEER_FAILED (a rank of the set has shut down); RONDA_ERROR_DEADLINE (a
 * rank of the set has not called it in time); RONDA_ERROR_MISMATCH (a rank of the set has joined). */
ronda_status ronda_create_process_set(const int* ranks, int count, const char* tag, ronda_process_set* id);

/* Ends a set. Blocks until every rank of the job has called it; of a set that ronda_create_process_set() has made,
 * every rank of the set, and no others. Operations in flight in the set fail. */
ronda_status ronda_remove_process_set(ronda_process_set id);

/* The number of ranks in the set, and this rank's position among them; -1 if there is no such set, or this rank is not
 * in it. */
int ronda_process_set_size(ronda_process_set id);
int ronda_process_set_rank(ronda_process_set id);

/* Writes the ranks of the set, ronda_process_set_size() of them. */
ronda_status ronda_process_set_ranks(ronda_process_set id, int* ranks);

/* Writes how many sets there are, and the ids of the first `capacity` of them, ascending, to `ids`. */
ronda_status ronda_process_set_ids(ronda_process_set* ids, int capacity, int* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* Last: these need the types above. */
#include "ronda/groups.h"
#include "ronda/operations.h"

#endif /* RONDA_H_ */
