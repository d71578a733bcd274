/* SPDX-License-Identifier: Apache-2.0 */

/* A program of release 0.2.0, whose headers are kept beside it, as a rank of a job with today's library. The program
 * uses each function and each struct that the headers of 0.2.0 have added to those of abi_v1, as far as no GPU is
 * needed. With the argument "elastic", the program is a member of an elastic job. The program ends with the number of
 * expectations that failed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/client/abi_v1_0_2/ronda.h"

static int failures = 0;
static int rank = -1;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  printf("FAILED on rank %d, line %d: %s; the last error: %s\n", rank, line, what, ronda_last_error());
  ++failures;
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

/* Expects an error whose text contains `part`: a text of this program, or the name of a function or field. */
static void expect_error(ronda_status status, ronda_status expected, const char* part, int line) {
  expect(status == expected && strstr(ronda_last_error(), part) != NULL, part, line);
}
#define EXPECT_ERROR(call, status, part) expect_error(call, status, part, __LINE__)

/* A struct of this release, followed by memory that the library neither reads nor writes. */
#define WITH_NEIGHBOUR(type)      \
  struct {                        \
    type value;                   \
    unsigned char neighbour[256]; \
  }
#define INITIALIZE(memory, type, initial) \
  do {                                    \
    const type start = initial;           \
    memset(&memory, 0xa5, sizeof memory); \
    memory.value = start;                 \
  } while (0)

static int is_untouched(const unsigned char* neighbour) {
  int i;
  for (i = 0; i < 256; ++i) {
    if (neighbour[i] != 0xa5) return 0;
  }
  return 1;
}

static const int64_t one = 1;
static const int64_t two = 2;

static ronda_tensor vector_of(const char* name, const int64_t* length) {
  ronda_tensor tensor = RONDA_TENSOR_INIT;
  tensor.name = name;
  tensor.ndim = 1;
  tensor.shape = length;
  return tensor;
}

static ronda_allreduce_args sum_of(const char* name, float* value) {
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor = vector_of(name, &one);
  args.input = args.output = value;
  return args;
}

/* -- Operations -- */

/* Waits for an operation, and expects its rows in the caller's memory. */
static void expect_rows_at(ronda_handle handle, const float* output, const float* expected, int64_t count, int line) {
  const void* data = NULL;
  int64_t rows = -1;
  expect(ronda_synchronize(handle) == RONDA_OK, "ronda_synchronize", line);
  expect(ronda_output(handle, &data, &rows, NULL, NULL) == RONDA_OK, "ronda_output", line);
  expect(data == output && rows == count, "the address and the number of the rows", line);
  expect(memcmp(output, expected, (size_t)count * sizeof(float)) == 0, "the rows", line);
  expect(ronda_release(handle) == RONDA_OK, "ronda_release", line);
}
#define EXPECT_ROWS_AT(handle, output, expected, count) expect_rows_at(handle, output, expected, count, __LINE__)

/* Each operation whose result may differ in size from its input, without a name and with an output of the caller. */
static void test_outputs_of_caller(void) {
  float mine[2], output[4] = {0, 0, 0, 0};
  const float all[4] = {1, 2, 11, 12};
  const float sums[2] = {12, 14};
  float exchanged[2];
  const int64_t splits[2] = {1, 1};
  ronda_handle handle = 0;
  ronda_allgather_args allgather = RONDA_ALLGATHER_ARGS_INIT;
  ronda_gather_args gather = RONDA_GATHER_ARGS_INIT;
  ronda_reducescatter_args reducescatter = RONDA_REDUCESCATTER_ARGS_INIT;
  ronda_scatter_args scatter = RONDA_SCATTER_ARGS_INIT;
  ronda_alltoall_args alltoall = RONDA_ALLTOALL_ARGS_INIT;
  mine[0] = (float)(10 * rank + 1);
  mine[1] = mine[0] + 1;
  exchanged[0] = all[rank];
  exchanged[1] = all[rank + 2];

  allgather.tensor = gather.tensor = reducescatter.tensor = scatter.tensor = alltoall.tensor = vector_of(NULL, &two);
  allgather.input = gather.input = reducescatter.input = scatter.input = alltoall.input = mine;
  allgather.output = gather.output = reducescatter.output = scatter.output = alltoall.output = output;
  allgather.output_bytes = gather.output_bytes = reducescatter.output_bytes = sizeof(output);
  scatter.output_bytes = alltoall.output_bytes = sizeof(output);

  EXPECT(ronda_allgather_async(&allgather, &handle) == RONDA_OK);
  EXPECT_ROWS_AT(handle, output, all, 4);
  gather.root = 1;
  EXPECT(ronda_gather_async(&gather, &handle) == RONDA_OK);
  if (rank == 1) {
    EXPECT_ROWS_AT(handle, output, all, 4);
  } else {
    EXPECT(ronda_release(handle) == RONDA_OK);
  }
  EXPECT(ronda_reducescatter_async(&reducescatter, &handle) == RONDA_OK);
  EXPECT_ROWS_AT(handle, output, sums + rank, 1);
  scatter.root = 1;
  scatter.splits = alltoall.splits = splits;
  scatter.split_count = alltoall.split_count = 2;
  EXPECT(ronda_scatter_async(&scatter, &handle) == RONDA_OK);
  EXPECT_ROWS_AT(handle, output, all + 2 + rank, 1);
  EXPECT(ronda_alltoall_async(&alltoall, &handle) == RONDA_OK);
  EXPECT_ROWS_AT(handle, output, exchanged, 2);

  allgather.output_bytes = sizeof(float);
  EXPECT(ronda_allgather_async(&allgather, &handle) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT(ronda_release(handle) == RONDA_OK);
}

static void test_any_source(void) {
  float value = 5;
  int sender = -1;
  ronda_handle handle = 0;
  ronda_send_args send = RONDA_SEND_ARGS_INIT;
  ronda_recv_args recv = RONDA_RECV_ARGS_INIT;
  send.tensor = recv.tensor = vector_of(NULL, &one);
  send.input = &value;
  send.to = 0;
  send.tag = recv.tag = 3;
  recv.output = &value;
  recv.from = RONDA_ANY_SOURCE;
  if (rank == 0) value = 0;
  EXPECT((rank == 0 ? ronda_recv_async(&recv, &handle) : ronda_send_async(&send, &handle)) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_OK && value == 5);
  EXPECT(ronda_source(handle, &sender) == RONDA_OK && sender == 1);
  EXPECT(ronda_release(handle) == RONDA_OK);
}

/* Rank 1 refuses two operations, which then fail on rank 0. */
static void test_refusals(void) {
  float value = 1;
  ronda_allreduce_args named = sum_of("refused", &value), unnamed = sum_of(NULL, &value);
  ronda_recv_args recv = RONDA_RECV_ARGS_INIT;
  recv.tensor = vector_of(NULL, &one);
  recv.output = &value;
  recv.from = 1;
  recv.tag = 4;
  if (rank == 1) {
    EXPECT(ronda_refuse(0, "refused", "a mistake with a name") == RONDA_OK);
    EXPECT(ronda_refuse(0, NULL, "a mistake without a name") == RONDA_OK);
    EXPECT(ronda_refuse_message(0, 1, 0, 4, "a mistake in a message") == RONDA_OK);
  } else {
    EXPECT_ERROR(ronda_allreduce(&named), RONDA_ERROR_MISMATCH, "a mistake with a name");
    EXPECT_ERROR(ronda_allreduce(&unnamed), RONDA_ERROR_MISMATCH, "a mistake without a name");
    EXPECT_ERROR(ronda_recv(&recv), RONDA_ERROR_MISMATCH, "a mistake in a message");
  }
}

static void test_sparse_average(void) {
  const int64_t index = 4;
  const float value = 2;
  int ranks = 0;
  ronda_handle indices = 0, values = 0;
  ronda_sparse_allreduce_args args = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  args.tensor = vector_of("sparse", &one);
  args.values = &value;
  args.indices = &index;
  EXPECT(ronda_sparse_allreduce_async(&args, &indices, &values) == RONDA_OK);
  EXPECT(ronda_synchronize(values) == RONDA_OK);
  EXPECT(ronda_averaged_over(values, &ranks) == RONDA_OK && ranks == 2);
  EXPECT(ronda_release(values) == RONDA_OK && ronda_release(indices) == RONDA_OK);
}

static void count_call(void* context, ronda_status status, const char* message) {
  if (status == RONDA_OK && message != NULL) ++*(int*)context;
}

/* The functions for streams take operations on host memory too: they wait as ronda_synchronize() does. */
static void test_handles(int* calls) {
  float value = 1;
  int done = 0;
  ronda_handle handles[2] = {0, 0};
  ronda_allreduce_args args = sum_of("handles", &value);
  EXPECT(ronda_allreduce_for(&args, 60, &handles[0]) == RONDA_OK && handles[0] == 0 && value == 2);
  EXPECT(ronda_barrier_async(0, &handles[0]) == RONDA_OK);
  EXPECT(ronda_monitored_barrier_async(0, 60, &handles[1]) == RONDA_OK);
  EXPECT(ronda_synchronize_all(handles, 2) == RONDA_OK);
  EXPECT(ronda_poll_all(handles, 2, &done) == RONDA_OK && done == 1);
  EXPECT(ronda_release_all(handles, 2) == RONDA_OK);

  EXPECT(ronda_allreduce_async(&args, &handles[0]) == RONDA_OK);
  done = 0;
  EXPECT(ronda_synchronize_for(handles[0], 60, &done) == RONDA_OK && done == 1 && value == 4);
  done = 0;
  EXPECT(ronda_synchronize_on_stream_for(handles[0], NULL, 60, &done) == RONDA_OK && done == 1);
  EXPECT(ronda_synchronize_on_stream_async(handles[0], NULL, count_call, calls) == RONDA_OK);
  EXPECT(ronda_release_on_stream(handles[0], NULL) == RONDA_OK);
  EXPECT(ronda_poll(handles[0], &done) == RONDA_ERROR_INVALID_ARGUMENT);
}

static void test_process_sets(void) {
  const int both[2] = {0, 1};
  ronda_process_set set = 0;
  ronda_handle handle = 0;
  EXPECT(ronda_create_process_set(both, 2, "a tag", &set) == RONDA_OK && ronda_process_set_size(set) == 2);
  EXPECT(ronda_remove_process_set_async(set, &handle) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_OK && ronda_process_set_size(set) == -1);
  EXPECT(ronda_release(handle) == RONDA_OK);
}

static void test_statistics(void) {
  WITH_NEIGHBOUR(ronda_statistics) memory;
  const ronda_statistics* const counts = &memory.value;
  INITIALIZE(memory, ronda_statistics, RONDA_STATISTICS_INIT);
  EXPECT(ronda_get_statistics(&memory.value) == RONDA_OK);
  EXPECT(counts->steps > 0 && counts->tensors > 0 && counts->tensors_in_flight == 0);
  EXPECT(counts->payload_bytes > 0 && counts->wire_bytes == counts->payload_bytes);
  EXPECT(counts->bucket_nanoseconds > 0 && counts->exposed_nanoseconds > 0);
  EXPECT(is_untouched(memory.neighbour));
}

/* -- Prepared groups -- */

enum { MEMBERS = 3 };

/* Sets the values of the members, and announces each member, the last one at `moved`. */
static void announce(ronda_group group, float* values, float* moved, float second) {
  values[0] = 1;
  values[1] = second;
  *moved = 3;
  EXPECT(ronda_group_ready(group, 0) == RONDA_OK);
  EXPECT(ronda_group_ready(group, 1) == RONDA_OK);
  EXPECT(ronda_group_ready_at(group, 2, moved) == RONDA_OK);
}

/* Each way to wait for the members of a step. */
static void test_group_steps(ronda_group group, float* values) {
  float moved = 0;
  int step, done;
  for (step = 0; step < 5; ++step) {
    announce(group, values, &moved, 2);
    done = 1;
    if (step == 0) EXPECT(ronda_group_wait(group) == RONDA_OK);
    if (step == 1) EXPECT(ronda_group_wait_for(group, 60, &done) == RONDA_OK);
    if (step == 2) EXPECT(ronda_group_wait_on_stream(group, NULL) == RONDA_OK);
    if (step == 3) EXPECT(ronda_group_wait_on_stream_for(group, NULL, 60, &done) == RONDA_OK);
    if (step == 4) EXPECT(ronda_group_wait_on_own_streams(group) == RONDA_OK);
    EXPECT(done == 1 && values[0] == 2 && values[1] == 4 && moved == 6);
  }
  EXPECT(ronda_group_finish(group) == RONDA_OK);
}

static void test_group_overflow(ronda_group group, float* values) {
  float moved = 0;
  int found = -1;
  int64_t member = -2;
  announce(group, values, &moved, 2);
  EXPECT(ronda_group_wait(group) == RONDA_OK);
  EXPECT(ronda_group_found_inf(group, &found) == RONDA_OK && found == 0);
  EXPECT(ronda_group_overflowed(group, &member) == RONDA_OK && member == -1);
  announce(group, values, &moved, rank == 1 ? HUGE_VALF : 1);
  EXPECT(ronda_group_wait(group) == RONDA_OK);
  EXPECT(ronda_group_found_inf(group, &found) == RONDA_OK && found == 1);
  EXPECT(ronda_group_overflowed(group, &member) == RONDA_OK && member == 1);
}

/* A step with some of the members. Members 0 and 1 are a tensor group, which is announced as a whole. */
static void test_group_detach(ronda_group group, float* values) {
  ronda_handle handles[MEMBERS] = {-1, -1, -1};
  values[0] = values[1] = 1;
  EXPECT(ronda_group_ready(group, 0) == RONDA_OK && ronda_group_ready(group, 1) == RONDA_OK);
  EXPECT(ronda_group_detach(group, handles) == RONDA_OK && handles[2] == 0);
  EXPECT(ronda_synchronize_all(handles, 2) == RONDA_OK && values[0] == 2 && values[1] == 2);
  EXPECT(ronda_release_all(handles, 2) == RONDA_OK);
}

static void test_prepared_group(void) {
  const char* const names[MEMBERS] = {"member/0", "member/1", "member/2"};
  const size_t combined[2] = {0, 1};
  float values[MEMBERS] = {0, 0, 0};
  ronda_allreduce_args args[MEMBERS];
  ronda_group group = NULL;
  int i, current = -1;
  for (i = 0; i < MEMBERS; ++i) {
    args[i] = sum_of(names[i], &values[i]);
    args[i].detect_overflow = 1;
  }
  args[2].input = args[2].output = NULL;
  EXPECT(ronda_prepare_group(args, MEMBERS, "gradients", &group) == RONDA_OK);
  EXPECT(ronda_group_is_current(group, &current) == RONDA_OK && current == 1);
  EXPECT(ronda_group_learn_order(group) == RONDA_OK);
  EXPECT(ronda_group_combine(group, combined, 2, "a tensor group") == RONDA_OK);
  EXPECT_ERROR(ronda_group_ready_on_stream(group, 2, values, values), RONDA_ERROR_INVALID_ARGUMENT, "member/2");
  test_group_steps(group, values);
  test_group_overflow(group, values);
  test_group_detach(group, values);
  EXPECT(ronda_group_release(group) == RONDA_OK);
}

/* -- Lanes, which need GPUs: the library opens none, and reads the arguments -- */

static void test_lanes(void) {
  WITH_NEIGHBOUR(ronda_lane_exchange_args) memory;
  ronda_lane_part parts[2] = {{NULL, 0}, {NULL, 0}};
  ronda_handle handle = 0;
  int open = -1, reduces = -1;
  EXPECT(ronda_lane_open(0, NULL, &open) == RONDA_OK && open == 0);
  EXPECT(ronda_lane_reduces(0, RONDA_FLOAT32, RONDA_SUM, 1, &reduces) == RONDA_OK && reduces == 0);
  EXPECT_ERROR(ronda_lane_refuse(0, "a mistake"), RONDA_ERROR_INVALID_ARGUMENT, "ronda_lane_refuse");

  INITIALIZE(memory, ronda_lane_exchange_args, RONDA_LANE_EXCHANGE_ARGS_INIT);
  memory.value.op = RONDA_LANE_SCATTER;
  memory.value.sends = memory.value.receives = parts;
  memory.value.part_count = 2;
  EXPECT_ERROR(ronda_lane_exchange_async(&memory.value, &handle), RONDA_ERROR_INVALID_ARGUMENT, "call.memory");
  memory.value.call.memory = RONDA_MEMORY_CUDA;
  EXPECT_ERROR(ronda_lane_exchange_async(&memory.value, &handle), RONDA_ERROR_INVALID_ARGUMENT,
               "ronda_lane_exchange_async");
  parts[1].count = -5;
  EXPECT_ERROR(ronda_lane_exchange_async(&memory.value, &handle), RONDA_ERROR_INVALID_ARGUMENT, "-5");
  size_t bytes = 1;
  void* block = NULL;
  ronda_lane_allocate_function allocate = NULL;
  ronda_lane_free_function release = NULL;
  EXPECT(ronda_lane_memory(0, &bytes) == RONDA_OK && bytes == 0);
  EXPECT_ERROR(ronda_lane_allocate(0, 512, NULL, &block), RONDA_ERROR_INVALID_ARGUMENT, "ronda_lane_allocate");
  EXPECT(ronda_gradient_allocate(512, NULL, &block) == RONDA_OK && block == NULL);
  EXPECT_ERROR(ronda_lane_free(&block, NULL), RONDA_ERROR_INVALID_ARGUMENT, "ronda_lane_free");
  EXPECT(ronda_lane_allocator(0, &allocate, &release) == RONDA_OK && release != NULL);
  EXPECT(allocate(512, 0, NULL) == NULL);
  EXPECT(ronda_lane_retire(0) == RONDA_OK && ronda_lane_close(0) == RONDA_OK);
}

/* -- The job -- */

/* Rank 0 ends the job, and the operation of rank 1 fails. */
static void test_abort(void) {
  float value = 1;
  ronda_allreduce_args args = sum_of("late", &value);
  if (rank == 0) {
    EXPECT(ronda_job_status() == RONDA_OK);
    EXPECT(ronda_abort("the test ends this job") == RONDA_OK);
  } else {
    EXPECT_ERROR(ronda_allreduce(&args), RONDA_ERROR_PEER_FAILED, "the test ends this job");
  }
  EXPECT(ronda_job_status() == RONDA_ERROR_PEER_FAILED);
  EXPECT(ronda_shutdown() != RONDA_OK);
}

/* Joins the job at the place that the environment gives. The options give the same place, in place of the
 * environment. */
static void join_job_at(const ronda_place* place, int64_t epoch) {
  WITH_NEIGHBOUR(ronda_options) memory;
  INITIALIZE(memory, ronda_options, RONDA_OPTIONS_INIT);
  memory.value.stall_deadline_s = 60;
  memory.value.rank = place->rank;
  memory.value.size = place->size;
  memory.value.local_rank = place->rank;
  memory.value.local_size = place->size;
  memory.value.epoch = epoch;
  EXPECT(ronda_init(&memory.value) == RONDA_OK);
  rank = ronda_rank();
  EXPECT(rank == place->rank && ronda_size() == 2 && ronda_local_rank() == rank && ronda_local_size() == 2);
}

/* Options with each field that gives a process its place, here in a job of one rank. */
static ronda_options options_of_only_rank(void) {
  ronda_options options = RONDA_OPTIONS_INIT;
  options.master_address = "127.0.0.1";
  options.secret = "a secret";
  options.master_port = 12345;
  options.size = options.local_size = 1;
  options.epoch = 7;
  return options;
}

static void test_options(void) {
  const ronda_options good = options_of_only_rank();
  ronda_options wrong[7];
  int i;
  EXPECT(ronda_init(&good) == RONDA_OK && ronda_size() == 1);
  EXPECT(ronda_shutdown() == RONDA_OK);
  for (i = 0; i < 7; ++i) wrong[i] = good;
  wrong[0].master_port = 0; /* which master_address needs */
  wrong[1].master_port = 65536;
  wrong[2].rank = 1;
  wrong[3].size = -1;
  wrong[4].local_rank = 1;
  wrong[5].local_size = 2;
  wrong[6].epoch = -1;
  for (i = 0; i < 7; ++i) expect(ronda_init(&wrong[i]) == RONDA_ERROR_INVALID_ARGUMENT, "options", i);
}

static void test_place(ronda_place* place) {
  WITH_NEIGHBOUR(ronda_place) memory;
  INITIALIZE(memory, ronda_place, RONDA_PLACE_INIT);
  EXPECT(ronda_get_place(&memory.value) == RONDA_OK && is_untouched(memory.neighbour));
  *place = memory.value;
  EXPECT(place->launcher == RONDA_LAUNCHER_RONDARUN && place->size == 2);
  EXPECT(place->local_rank == -1 && place->local_size == -1 && place->cross_rank == -1 && place->cross_size == -1);
  EXPECT(strlen(place->store_address) <= RONDA_MAX_ADDRESS_LENGTH && place->store_port >= 0);
}

static void test_without_job(void) {
  EXPECT(RONDA_ABI_VERSION == 1 && ronda_version()[0] != '\0');
  EXPECT(ronda_status_is_recoverable(RONDA_ERROR_PEER_FAILED) == 1);
  EXPECT(ronda_status_is_recoverable(RONDA_ERROR_MEMBERSHIP) == 0);
  EXPECT(ronda_job_status() == RONDA_ERROR_NOT_INITIALIZED);
  EXPECT(ronda_abort("no job") == RONDA_ERROR_NOT_INITIALIZED);
}

/* -- Elastic jobs -- */

/* Expects that both ranks have the state of this step. Before the first step only rank 0 has one, and rank 1 gets it.
 */
static void expect_state(int64_t step) {
  WITH_NEIGHBOUR(ronda_elastic_source) memory;
  const ronda_elastic_source* const source = &memory.value;
  INITIALIZE(memory, ronda_elastic_source, RONDA_ELASTIC_SOURCE_INIT);
  EXPECT(ronda_elastic_sync(-1, &memory.value) == RONDA_OK && is_untouched(memory.neighbour));
  EXPECT(source->step == step && source->rank == 0 && source->is_snapshot == 0);
  EXPECT(source->is_behind == (step == 0 && rank == 1) && source->any_behind == (step == 0));
  if (!source->is_behind) return;
  ronda_elastic_begin_update();
  ronda_elastic_end_update();
}

static void test_steps_of_state(void) {
  ronda_elastic_change change = RONDA_ELASTIC_LEAVE;
  expect_state(0);
  ronda_elastic_begin_update();
  ronda_elastic_end_update();
  expect_state(1);
  EXPECT(ronda_elastic_poll(&change) == RONDA_OK && change == RONDA_ELASTIC_GO_ON);
}

/* Rank 1 leaves the epoch with a reason, once rank 0 needs nothing more of this epoch. */
static const char* reason_of_rank(void) {
  float value = 0;
  ronda_send_args send = RONDA_SEND_ARGS_INIT;
  ronda_recv_args recv = RONDA_RECV_ARGS_INIT;
  send.tensor = recv.tensor = vector_of(NULL, &one);
  send.input = recv.output = &value;
  send.to = 1;
  if (rank == 0) {
    ronda_send(&send); /* fails if rank 1 has left before this call ends */
    return NULL;
  }
  EXPECT(ronda_recv(&recv) == RONDA_OK);
  return "the test ends this epoch";
}

/* Both members leave the epoch, and meet in the next one with their state. */
static void test_reform(void) {
  ronda_options options = RONDA_OPTIONS_INIT;
  WITH_NEIGHBOUR(ronda_elastic_reform_options) memory;
  INITIALIZE(memory, ronda_elastic_reform_options, RONDA_ELASTIC_REFORM_OPTIONS_INIT);
  memory.value.options = &options;
  options.size = 2;
  EXPECT_ERROR(ronda_elastic_reform(&memory.value), RONDA_ERROR_INVALID_ARGUMENT, "size");
  options.size = 0;
  memory.value.timeout_s = -4;
  EXPECT_ERROR(ronda_elastic_reform(&memory.value), RONDA_ERROR_INVALID_ARGUMENT, "timeout_s");
  memory.value.timeout_s = 60;
  memory.value.reason = reason_of_rank();
  EXPECT(ronda_elastic_reform(&memory.value) == RONDA_OK);
  rank = ronda_rank();
  EXPECT(ronda_size() == 2);
  expect_state(1);
}

static void run_as_member(void) {
  EXPECT(ronda_init(NULL) == RONDA_OK);
  rank = ronda_rank();
  if (rank >= 0) {
    test_steps_of_state();
    test_reform();
  }
  EXPECT(ronda_shutdown() == RONDA_OK);
}

static void run_as_rank(void) {
  int calls = 0;
  ronda_place place = RONDA_PLACE_INIT;
  test_without_job();
  test_place(&place);
  test_options();
  join_job_at(&place, 1);
  if (rank >= 0) {
    test_outputs_of_caller();
    test_any_source();
    test_refusals();
    test_sparse_average();
    test_handles(&calls);
    test_process_sets();
    test_prepared_group();
    test_lanes();
    test_steps_of_state();
    EXPECT_ERROR(ronda_elastic_reform(NULL), RONDA_ERROR_INVALID_ARGUMENT, "ronda_elastic_reform");
    test_statistics();
  }
  EXPECT(ronda_shutdown() == RONDA_OK); /* which waits for callbacks */
  EXPECT(calls == 1);
  join_job_at(&place, 2);
  test_abort();
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "elastic") == 0) {
    run_as_member();
  } else {
    run_as_rank();
  }
  return failures < 100 ? failures : 100;
}
