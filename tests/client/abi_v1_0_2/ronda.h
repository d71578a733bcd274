/* SPDX-License-Identifier: Apache-2.0 */

/* Ronda's C ABI, version 1: everything that libronda.so exports.
 *
 * A process is one rank of a job. After ronda_init(), a process submits named tensors with the *_async functions, in
 * any order. An operation runs once every rank has submitted the tensor with that name. Each submission returns a
 * handle: ronda_synchronize() waits for it, ronda_poll() tests whether it is complete, and ronda_release() releases it.
 *
 * Functions return RONDA_OK or another code of ronda_status. After an error, ronda_last_error() returns a text that
 * says what happened, which tensors and ranks it concerns, and what to do. Argument structs begin with their size, so
 * that later versions can add fields: set struct_size to sizeof(the struct) and zero the rest, or use the RONDA_*_INIT
 * macros. Zero always means the default.
 *
 * Ranks are always numbered as in the whole job, even in operations on a process set. An array with one entry per
 * member of a process set is in ascending order of rank.
 *
 * Thread-safety: any thread may call any function. Buffers belong to the caller, who must keep them valid and unchanged
 * until the handle is complete.
 *
 * A child process that a rank creates with fork() is not a rank: Ronda is uninitialised in the child, and the child
 * cannot call ronda_init(). The exit of the child, even by a crash, has no effect on the job.
 *
 * Tensors in GPU memory are submitted with RONDA_MEMORY_CUDA and a stream. Submit a tensor as soon as the work that
 * fills it has been enqueued on the stream; only the device waits for that work. ronda_synchronize_on_stream() makes a
 * stream wait for the result without blocking the host. Outputs that Ronda allocates for tensors in GPU memory are in
 * GPU memory too. Argument structs, shapes and splits are always in host memory. */
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
  RONDA_ERROR_INVALID_ARGUMENT = 1, /* nothing was submitted, or the caller's output is too small for the result; from
                                       ronda_init(): the ranks do not fit together */
  RONDA_ERROR_NOT_INITIALIZED = 2,  /* ronda_init() has not been called, or ronda_shutdown() has */
  RONDA_ERROR_ALREADY_INITIALIZED = 3, /* ronda_init() was called twice */
  RONDA_ERROR_DUPLICATE_NAME = 4,      /* a tensor of this name is in flight in this process set */
  RONDA_ERROR_MISMATCH = 5,      /* ranks disagree about this tensor, or a rank it needs has joined; the job goes on */
  RONDA_ERROR_DEADLINE = 6,      /* a rank did not submit the operation in time */
  RONDA_ERROR_PEER_FAILED = 7,   /* a rank died, or has left and will not take part */
  RONDA_ERROR_OUT_OF_MEMORY = 8, /* memory or shared memory is exhausted */
  RONDA_ERROR_INTERNAL = 9,      /* a bug in Ronda, or a system call that should not fail */
  RONDA_ERROR_MEMBERSHIP = 10    /* this process no longer has a place in its elastic job, or no rank has its state */
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
  RONDA_AVERAGE = 4, /* sum divided by the number of ranks; integers: summed in a wider type, rounded towards zero; not
                        for RONDA_BOOL */
  RONDA_BAND = 5,    /* bit by bit; integers and RONDA_BOOL */
  RONDA_BOR = 6,
  RONDA_BXOR = 7,
  RONDA_ADASUM = 8 /* adaptive sum, which scales with the ranks' agreement; allreduce of floating-point numbers */
} ronda_reduce_op;

/* The wire format of floating-point elements in reductions. Sums are computed in fp32 and rounded once. The 16-bit
 * formats apply to float32 and float64. The 8-bit formats also apply to the 16-bit types, and use one scale per block
 * of elements. */
typedef enum ronda_compression {
  RONDA_COMPRESSION_NONE = 0,
  RONDA_COMPRESSION_FP16 = 1,
  RONDA_COMPRESSION_BF16 = 2,
  RONDA_COMPRESSION_FP8_E4M3 = 3,
  RONDA_COMPRESSION_FP8_E5M2 = 4
} ronda_compression;

/* Whether an average also counts ranks that have joined. */
typedef enum ronda_absent {
  RONDA_ABSENT_NOT_COUNTED = 0,     /* divide by the number of ranks that take part */
  RONDA_ABSENT_COUNTED_AS_ZEROS = 1 /* divide by the number of all ranks of the process set */
} ronda_absent;

/* The kind of memory that holds the buffers of an operation, the same on every rank. */
typedef enum ronda_memory {
  RONDA_MEMORY_HOST = 0,
  RONDA_MEMORY_CUDA = 1 /* of one GPU: all tensors of a rank are on the same GPU */
} ronda_memory;

/* The id of a process set; 0 is the set of all ranks. */
typedef uint32_t ronda_process_set;

/* Ranks of a job, in ascending order. */
typedef struct ronda_rank_list {
  const int* ranks;
  int count;
} ronda_rank_list;

/* Settings that override the environment (RONDA_*). Zero keeps the value from the environment, or the default.
 *
 * A program that knows its own rank and the job's size sets the fields from master_address on. These fields replace the
 * variables RONDA_RANK, RONDA_SIZE, RONDA_LOCAL_RANK, RONDA_LOCAL_SIZE, RONDA_MASTER_ADDR, RONDA_MASTER_PORT,
 * RONDA_JOB_SECRET and RONDA_EPOCH, and override the variables of any launcher. A rank that sets size and master_port
 * here needs no environment variables.
 */
typedef struct ronda_options {
  size_t struct_size;
  double cycle_time_ms;     /* the longest time that a tensor waits for others to be fused with; negative: none */
  int64_t fusion_threshold; /* bytes of a bucket; negative: no fusion */
  int64_t cache_capacity;   /* entries of the response cache; negative: no cache */
  double stall_warning_s;   /* a tensor missing on some rank for this long is reported; negative: never */
  double stall_deadline_s;  /* a missing tensor fails after this long; negative: never */
  double start_timeout_s;   /* the longest time to wait for the other ranks in ronda_init(); not negative */
  /* Process sets that exist from the start. All ranks must list the same sets. Their ids are 1, 2, ... in the order of
   * the array. */
  const ronda_rank_list* process_sets;
  int process_set_count;
  /* The struct ended here in its first version. */
  const char* master_address; /* where rank 0 listens; needs master_port */
  const char* secret;         /* the same on every rank; needed if master_address is not a loopback address */
  int master_port;            /* 1 to 65535; default of master_address: the environment's address, or else 127.0.0.1 */
  int rank;                   /* 0 <= rank < size; needs size */
  int size;                   /* ranks of the job; 0: rank and size come from the environment */
  int local_rank;             /* number among the ranks on this host; needs local_size */
  int local_size;             /* ranks on this host; 0: Ronda finds it out */
  /* The struct ended here in its second version. */
  int64_t epoch; /* of the job, 0 to 999999999: grows when ranks leave the job and meet again (docs/elastic.md) */
} ronda_options;
#define RONDA_OPTIONS_INIT \
  { sizeof(ronda_options), 0, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, 0, 0, 0, 0, 0, 0 }

/* The version of the library, "0.2.0". */
const char* ronda_version(void);

/* The error text of the last failed call in this thread, or "" if no call has failed. The text is valid until this
 * thread's next call. */
const char* ronda_last_error(void);

/* Returns 1 for RONDA_ERROR_PEER_FAILED and RONDA_ERROR_DEADLINE, because the remaining ranks still work. After one of
 * these two errors, a rank can leave the job with ronda_shutdown() and join the next epoch. Returns 0 for RONDA_OK, and
 * for all other errors (wrong arguments, ranks that disagree, exhausted memory, faults in Ronda itself), because the
 * same program would get the same error again. */
int ronda_status_is_recoverable(ronda_status status);

/* -- The job -- */

/* Joins the job that the environment describes (rondarun, torchrun-style variables, or a single rank), and blocks until
 * every rank has joined. `options` may be NULL.
 *
 * If an elastic launcher has started the process (RONDA_MEMBERSHIP_FD) and `options` give no rank and size, the process
 * asks the launcher for its rank. The process waits for the answer as long as the launcher runs; see
 * ronda_elastic_reform(). */
ronda_status ronda_init(const ronda_options* options);

/* Completes the operations in flight, waits until every rank has called ronda_shutdown(), and ends the job for this
 * process. An error means that the job had failed. The job has nevertheless ended for this process, and the operations
 * in flight have failed with the job's error. Handles become complete, and stay valid until they are released. After
 * ronda_shutdown(), ronda_init() may be called again. A process that exits without ronda_shutdown() fails the job, even
 * if main() returns 0. */
ronda_status ronda_shutdown(void);

/* Fails the job on all its ranks at once: operations in flight and later operations fail with RONDA_ERROR_PEER_FAILED,
 * and their error text contains `reason`, a sentence for the other ranks. Does not wait for other ranks. Any thread may
 * call ronda_abort() while other threads wait for operations. After ronda_abort(), ronda_shutdown() ends the job for
 * this process without the other ranks, and ronda_init() may join another job. If the job has already failed, its first
 * failure is kept.
 * Errors: RONDA_ERROR_NOT_INITIALIZED. */
ronda_status ronda_abort(const char* reason);

/* Returns RONDA_OK while the job runs; after a failure, returns the error of the job's operations. Does not
 * communicate. Errors: RONDA_ERROR_NOT_INITIALIZED. */
ronda_status ronda_job_status(void);

int ronda_is_initialized(void); /* 1 or 0 */

/* The launcher whose environment variables give a process its rank in the job. */
typedef enum ronda_launcher {
  RONDA_LAUNCHER_NONE = 0,
  RONDA_LAUNCHER_RONDARUN = 1, /* RONDA_RANK and RONDA_SIZE are set, by any program */
  RONDA_LAUNCHER_TORCHRUN = 2, /* RANK and WORLD_SIZE are set, by any program */
  RONDA_LAUNCHER_PADDLE = 3,
  RONDA_LAUNCHER_OPEN_MPI = 4,
  RONDA_LAUNCHER_MPICH = 5,
  RONDA_LAUNCHER_SLURM = 6,
  RONDA_LAUNCHER_PMI = 7 /* another process manager with PMI */
} ronda_launcher;

#define RONDA_MAX_ADDRESS_LENGTH 255

/* The ranks and sizes that the launcher gives a process, or -1 where the launcher gives none. */
typedef struct ronda_place {
  size_t struct_size;
  ronda_launcher launcher;
  int rank;
  int size;
  int local_rank;
  int local_size;
  int cross_rank;
  int cross_size;
  /* An address and port at which rank 0 may listen on behalf of another library, for instance for a torch.distributed
   * store. If the launcher sets MASTER_ADDR and MASTER_PORT, these are used. Otherwise, Ronda derives the address and
   * port from the launcher's job name, so that all ranks get the same ones. If the job has no name, the address is ""
   * and the port is 0. */
  int store_port;
  char store_address[RONDA_MAX_ADDRESS_LENGTH + 1];
} ronda_place;
#define RONDA_PLACE_INIT \
  { sizeof(ronda_place), RONDA_LAUNCHER_NONE, -1, -1, -1, -1, -1, -1, 0, "" }

/* Reads this process's launcher, rank and size from the environment, as ronda_init() without options does. Does not
 * join the job; may be called before or after ronda_init(), and in child processes. If no launcher has set its
 * variables, `launcher` becomes RONDA_LAUNCHER_NONE and all numbers become -1; ronda_init() would then create a job of
 * one rank. Writes the first struct_size bytes of `place`; bytes beyond the fields that this library knows become zero.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (some of the launcher's variables are missing, or contradict each other; the
 * text names the variable). */
ronda_status ronda_get_place(ronda_place* place);

/* Before ronda_init() the following six functions return -1. */
int ronda_rank(void);
int ronda_size(void);
int ronda_local_rank(void);
int ronda_local_size(void);
int ronda_cross_rank(void);
int ronda_cross_size(void);

/* *stop becomes 1 if any rank has received SIGTERM, else 0. Schedulers send SIGTERM some time before they kill a job.
 * Every rank must call the function once per step. *stop becomes 1 on all ranks in the same call, so the ranks can save
 * their state and exit together.
 *
 * Each call starts an exchange between the ranks and returns the result of the previous exchange. A call blocks only if
 * the previous exchange is not complete. Ranks see a signal up to two calls after it arrives. The first call installs a
 * SIGTERM handler, which also calls the handler that was installed before. Before the first call, SIGTERM ends the
 * process as usual. Ranks that have joined (ronda_join()) must not call the function until all ranks have joined; the
 * first call after that sets *stop to 0. Only one thread of each rank may call the function.
 * Errors: the errors of an operation. */
ronda_status ronda_should_stop(int* stop);

/* -- Elastic jobs: members die, join and leave, while the others continue (docs/elastic.md); not in ronda_run_threads()
 * -- */

typedef struct ronda_elastic_reform_options {
  size_t struct_size;
  const char* reason;           /* the failure that ends the epoch for this rank; NULL: none, the change is planned */
  double timeout_s;             /* the longest wait for a place; 0: as long as the launcher runs; not negative */
  const ronda_options* options; /* of the job in the next epoch, without a place; may be NULL */
} ronda_elastic_reform_options;
#define RONDA_ELASTIC_REFORM_OPTIONS_INIT \
  { sizeof(ronda_elastic_reform_options), NULL, 0, NULL }

/* Leaves the current epoch of an elastic job (if the process is in one), asks the launcher for a rank in the next
 * epoch, and joins that epoch. Ranks and sizes may differ in the next epoch. Ronda drops the process sets of the old
 * epoch, and everything that it has learned about that epoch. With a reason, the current epoch fails immediately on all
 * its ranks. If `reason` is NULL or "", the call waits until all ranks leave the epoch, as ronda_shutdown() does.
 * `options` may be NULL. After an error the process is in no job; after a recoverable error it may call the function
 * again.
 * Errors: RONDA_ERROR_MEMBERSHIP (the launcher has removed this process from the job, has ended, or gives no rank in
 * time); RONDA_ERROR_INVALID_ARGUMENT (this process is not in an elastic job); RONDA_ERROR_INTERNAL (this process's GPU
 * is stuck, or has failed: end the process, and the launcher replaces it); the errors of ronda_init(). */
ronda_status ronda_elastic_reform(const ronda_elastic_reform_options* options);

/* A rank may change its copy of the job's state (parameters, optimizer buffers) only between
 * ronda_elastic_begin_update() and ronda_elastic_end_update(). The state is incomplete after
 * ronda_elastic_begin_update(), which may be called repeatedly. After ronda_elastic_end_update() the state is complete
 * again, with one more step applied. Each of the two functions costs a load and a store. */
void ronda_elastic_begin_update(void);
void ronda_elastic_end_update(void);

/* The state with which all ranks continue. */
typedef struct ronda_elastic_source {
  size_t struct_size;
  int64_t step;    /* steps applied to the state */
  int rank;        /* the rank that has the state */
  int is_snapshot; /* 1: the state is that rank's snapshot of the step, because its present state is incomplete */
  int is_behind;   /* 1: this rank has a different state, or none */
  int any_behind;  /* 1: at least one rank has a different state, or none */
} ronda_elastic_source;
#define RONDA_ELASTIC_SOURCE_INIT \
  { sizeof(ronda_elastic_source), 0, 0, 0, 0, 0 }

/* All ranks must call this function after they have joined an epoch. Each rank reports the step of its state, and all
 * ranks get the same result. The source is the lowest rank among those whose complete state has the most steps, or rank
 * 0 if no rank has a state yet. If no rank has a complete state, or if a snapshot is newer, the source is the lowest
 * rank with the newest snapshot. A source that is chosen for its snapshot must itself go back to that snapshot.
 * `snapshot_step` is the step of this rank's snapshot, or -1 if the rank keeps none.
 *
 * If any rank is behind, all ranks must then broadcast the state from the source. A rank that is behind calls
 * ronda_elastic_begin_update() before it overwrites its own state, and ronda_elastic_end_update() afterwards. The
 * latter marks the rank's state as complete, at the source's step.
 * Errors: RONDA_ERROR_MEMBERSHIP (the state of all ranks that had one is incomplete, and no rank has a snapshot); the
 * errors of an operation. */
ronda_status ronda_elastic_sync(int64_t snapshot_step, ronda_elastic_source* source);

typedef enum ronda_elastic_change {
  RONDA_ELASTIC_GO_ON = 0,
  RONDA_ELASTIC_REFORM = 1, /* the members change: call ronda_elastic_reform() now, without a reason */
  RONDA_ELASTIC_LEAVE = 2   /* this rank got SIGTERM, or the launcher ends it: call ronda_shutdown() now, and end */
} ronda_elastic_change;

/* All ranks must call this function at the end of each step. If the launcher has members to add or remove, or if some
 * rank has received SIGTERM, *change becomes RONDA_ELASTIC_REFORM or RONDA_ELASTIC_LEAVE on all ranks in the same call.
 * Only ranks that must leave the job get RONDA_ELASTIC_LEAVE. As with ronda_should_stop(), ranks see the change up to
 * two calls later, and a call does not block if the ranks compute between calls. Only one thread of each rank may call
 * the function. The first call of this function, or of ronda_elastic_sync(), installs the SIGTERM handler. In a job
 * that is not elastic, SIGTERM yields RONDA_ELASTIC_LEAVE on all ranks.
 * Errors: RONDA_ERROR_MEMBERSHIP (the launcher has ended); the errors of an operation. */
ronda_status ronda_elastic_poll(ronda_elastic_change* change);

/* Runs a job whose `size` ranks are threads of this process, and calls `body` once per rank. Returns once all ranks
 * have ended, with the job's first failure or RONDA_OK. In `body`, and in functions called from it, every function of
 * this header acts for the rank of the calling thread. Each thread joins the job before `body` and leaves it
 * afterwards, so `body` must not call ronda_init(). `options`, which may be NULL, override the environment's
 * settings. */
ronda_status ronda_run_threads(const ronda_options* options, int size, void (*body)(void* context), void* context);

/* The rank for which a thread acts: 0 is the rank created by ronda_init(); any other value is a rank of
 * ronda_run_threads(). If `body` starts a thread that should act for the same rank, `body` calls ronda_current(), and
 * the new thread passes the result to ronda_make_current(). */
typedef int64_t ronda_context;
ronda_context ronda_current(void);
ronda_status ronda_make_current(ronda_context context);

/* Counters of this rank's work since ronda_init(). All counters except tensors_in_flight only grow. For example, the
 * counters show whether the job's steps repeat: if so, buckets_scheduled and schedule_rounds grow, but buckets_agreed
 * does not.
 */
typedef struct ronda_statistics {
  size_t struct_size;
  uint64_t reports_sent;      /* control messages to rank 0 */
  uint64_t reports_received;  /* control messages that rank 0 has received, including its own */
  uint64_t lists_sent;        /* control messages of rank 0; each goes to all ranks */
  uint64_t lists_received;    /* control messages of rank 0 that this rank has received */
  uint64_t buckets_agreed;    /* groups of tensors that ran together because rank 0 decided so */
  uint64_t buckets_scheduled; /* groups that ran without control messages, because the locked schedule contains them */
  uint64_t schedules_begun;   /* times a schedule was locked because the job's steps repeated */
  uint64_t schedules_left;    /* times a locked schedule ended because a rank did something else */
  uint64_t own_vetoes;        /* times a locked schedule ended because this rank did something else */
  uint64_t schedule_rounds;   /* times a locked schedule was run as a whole */
  uint64_t steps;             /* completed steps; a step ends when one of its tensors is submitted again */
  uint64_t tensors;           /* completed tensors in which this rank took part */
  uint64_t payload_bytes;     /* bytes of the completed tensors, in the tensors' own dtype */
  uint64_t wire_bytes;        /* bytes of the completed tensors, in the format in which they were sent */
  /* The total time of all buckets, in nanoseconds. A bucket's time begins when this rank is ready for the bucket and
   * has finished the previous bucket. This time includes waits for other ranks, and the transfers. */
  uint64_t bucket_nanoseconds;
  uint64_t tensors_in_flight; /* submitted and not complete, at this moment */
  /* Nanoseconds during which at least one thread of the program waited for a tensor. While a thread waits,
   * communication does not overlap with that thread's work. Waits of device streams are not included. */
  uint64_t exposed_nanoseconds;
} ronda_statistics;
#define RONDA_STATISTICS_INIT \
  { sizeof(ronda_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Writes the first struct_size bytes of the statistics; bytes beyond the fields that this library knows become zero. */
ronda_status ronda_get_statistics(ronda_statistics* statistics);

/* Makes this rank write a timeline from now on: a trace file of its tensors' events, which Perfetto can show. The file
 * is `path` with the rank inserted before the extension: "trace.json" becomes "trace.rank3.json". An existing file is
 * overwritten. Each rank that calls the function writes its own file; the ranks need not call it at the same time.
 * RONDA_TIMELINE records the whole job; this function records a part of it.
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the file cannot be created, or a timeline is already being written). */
ronda_status ronda_start_timeline(const char* path);

/* Completes the timeline file, as ronda_shutdown() does. Does nothing if no timeline is being written. */
ronda_status ronda_stop_timeline(void);

/* -- Process sets: ranks that run operations among themselves, concurrently with other sets -- */

/* Creates a set of these ranks, which must be in ascending order, and writes its id. Blocks until every rank of the
 * job, including ranks outside the set, has called the function with the same ranks. */
ronda_status ronda_add_process_set(const int* ranks, int count, ronda_process_set* id);

/* Like ronda_add_process_set(), but only the ranks of the set call the function. Blocks until each rank of the set has
 * called it with the same ranks and tag. The set also exists on the other ranks of the job, which need not do anything.
 * `tag` distinguishes sets of the same ranks that are created at the same time; NULL is the same as "".
 * Errors: RONDA_ERROR_INVALID_ARGUMENT (the caller is not among the ranks, or they are not ascending ranks of the job);
 * RONDA_ERROR_DUPLICATE_NAME (another thread of this rank is creating a set with the same ranks and tag);
 * RONDA_ERROR_PEER_FAILED (a rank of the set has shut down); RONDA_ERROR_DEADLINE (a rank of the set has not called the
 * function in time); RONDA_ERROR_MISMATCH (a rank of the set has joined). */
ronda_status ronda_create_process_set(const int* ranks, int count, const char* tag, ronda_process_set* id);

/* Removes a process set. Blocks until every rank of the job has called the function or, for a set created by
 * ronda_create_process_set(), every rank of the set. Operations in flight in the set fail. */
ronda_status ronda_remove_process_set(ronda_process_set id);

/* ronda_process_set_size() returns the number of ranks in the set, or -1 if the set does not exist.
 * ronda_process_set_rank() returns this rank's index among them, or -1 if the set does not exist or does not contain
 * this rank. */
int ronda_process_set_size(ronda_process_set id);
int ronda_process_set_rank(ronda_process_set id);

/* Writes the ranks of the set to `ranks`, which must have room for ronda_process_set_size() ranks. */
ronda_status ronda_process_set_ranks(ronda_process_set id, int* ranks);

/* Writes the number of sets to `count`, and the ids of the first `capacity` sets, in ascending order, to `ids`. */
ronda_status ronda_process_set_ids(ronda_process_set* ids, int capacity, int* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* These headers are included at the end because they need the types of ronda.h. */
#include "ronda/groups.h"
#include "ronda/lanes.h"
#include "ronda/operations.h"

#endif /* RONDA_H_ */
