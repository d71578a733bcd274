/* SPDX-License-Identifier: Apache-2.0 */

/* A program of the first version of ronda.h, which is kept beside it, as a rank of a job with today's libronda.so. It
 * uses each struct with each of its fields on host memory, and ends with the number of expectations that failed. */
#include "tests/client/abi_v1/ronda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures = 0;
static int rank = -1;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  printf("FAILED on rank %d, line %d: %s; the last error: %s\n", rank, line, what, ronda_last_error());
  ++failures;
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static ronda_tensor vector_of(const char* name, const int64_t* length) {
  ronda_tensor tensor = RONDA_TENSOR_INIT;
  tensor.name = name;
  tensor.ndim = 1;
  tensor.shape = length;
  return tensor;
}

/* Waits for an operation, compares the output that Ronda owns, and gives the handle back. */
static void expect_floats(ronda_handle handle, const float* expected, int64_t count, int expected_members, int line) {
  const void* data = NULL;
  const int64_t* rows_per_member = NULL;
  int64_t rows = -1;
  int members = -1, done = 0;
  expect(ronda_synchronize(handle) == RONDA_OK, "ronda_synchronize", line);
  expect(ronda_poll(handle, &done) == RONDA_OK && done == 1, "ronda_poll", line);
  expect(ronda_output(handle, &data, &rows, &rows_per_member, &members) == RONDA_OK, "ronda_output", line);
  expect(rows == count, "the number of rows", line);
  expect(members == expected_members, "the number of members", line);
  if (rows == count) expect(memcmp(data, expected, (size_t)count * sizeof(float)) == 0, "the rows", line);
  expect(ronda_release(handle) == RONDA_OK, "ronda_release", line);
}
#define EXPECT_FLOATS(handle, expected, count, members) expect_floats(handle, expected, count, members, __LINE__)

static void test_reductions(void) {
  const int64_t two = 2;
  float values[2] = {1, 2};
  float result[2] = {0, 0};
  const float half[1] = {3};
  int found = -1;
  ronda_handle handle = 0;
  ronda_allreduce_args all = RONDA_ALLREDUCE_ARGS_INIT;
  ronda_reduce_args one = RONDA_REDUCE_ARGS_INIT;
  ronda_reducescatter_args part = RONDA_REDUCESCATTER_ARGS_INIT;

  all.tensor = vector_of("allreduce", &two);
  all.input = values;
  all.output = result;
  all.op = RONDA_AVERAGE;
  all.compression = RONDA_COMPRESSION_BF16;
  all.prescale = 2;
  all.postscale = 4;
  all.error_feedback = 1;
  all.detect_overflow = 1;
  all.call.warning_s = 5;
  all.call.deadline_s = 50;
  EXPECT(ronda_allreduce_async(&all, &handle) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_OK);
  EXPECT(ronda_found_inf(handle, &found) == RONDA_OK && found == 0);
  EXPECT(ronda_release(handle) == RONDA_OK);
  EXPECT(result[0] == 8 && result[1] == 16);
  EXPECT(ronda_allreduce(&all) == RONDA_OK);

  one.tensor = vector_of("reduce", &two);
  one.input = values;
  one.output = result;
  one.root = 1;
  EXPECT(ronda_reduce(&one) == RONDA_OK);
  if (rank == 1) EXPECT(result[0] == 2 && result[1] == 4);

  part.tensor = vector_of("reducescatter", &two);
  part.input = values;
  part.op = RONDA_MAX;
  part.postscale = 1.5;
  values[0] = 2;
  EXPECT(ronda_reducescatter_async(&part, &handle) == RONDA_OK);
  EXPECT_FLOATS(handle, half, 1, 0);
}

/* The structs of a group lie one behind the other, at the distance of their first version. */
static void test_groups(void) {
  const int64_t one = 1;
  float first = 1, second = 10;
  const float gathered[2][2] = {{1, 1}, {10, 10}};
  float* const values[2] = {&first, &second};
  const char* const names[2] = {"group/a", "group/b"};
  ronda_handle handles[2] = {0, 0};
  ronda_allreduce_args reductions[2] = {RONDA_ALLREDUCE_ARGS_INIT, RONDA_ALLREDUCE_ARGS_INIT};
  ronda_allgather_args gathers[2] = {RONDA_ALLGATHER_ARGS_INIT, RONDA_ALLGATHER_ARGS_INIT};
  int i;
  for (i = 0; i < 2; ++i) {
    gathers[i].tensor = vector_of(names[i], &one);
    gathers[i].input = values[i];
    reductions[i].tensor = gathers[i].tensor;
    reductions[i].input = values[i];
    reductions[i].output = values[i];
  }
  EXPECT(ronda_grouped_allgather_async(gathers, 2, "gathers", handles) == RONDA_OK);
  for (i = 0; i < 2; ++i) EXPECT_FLOATS(handles[i], gathered[i], 2, 2);
  EXPECT(ronda_grouped_allreduce(reductions, 2, "reductions") == RONDA_OK);
  EXPECT(first == 2 && second == 20);
}

static void test_exchanges(void) {
  const int64_t one = 1, two = 2;
  const int64_t splits[2] = {1, 1};
  float mine[2];
  const float gathered[4] = {0, 1, 10, 11};
  float exchanged[2], dealt[1], received = -1;
  ronda_handle handle = 0;
  ronda_broadcast_args broadcast = RONDA_BROADCAST_ARGS_INIT;
  ronda_allgather_args allgather = RONDA_ALLGATHER_ARGS_INIT;
  ronda_gather_args gather = RONDA_GATHER_ARGS_INIT;
  ronda_scatter_args scatter = RONDA_SCATTER_ARGS_INIT;
  ronda_alltoall_args alltoall = RONDA_ALLTOALL_ARGS_INIT;
  ronda_send_args send = RONDA_SEND_ARGS_INIT;
  ronda_recv_args recv = RONDA_RECV_ARGS_INIT;
  mine[0] = (float)(10 * rank);
  mine[1] = mine[0] + 1;

  allgather.tensor = vector_of("allgather", &two);
  allgather.input = mine;
  EXPECT(ronda_allgather_async(&allgather, &handle) == RONDA_OK);
  EXPECT_FLOATS(handle, gathered, 4, 2);

  gather.tensor = vector_of("gather", &two);
  gather.input = mine;
  gather.root = 1;
  EXPECT(ronda_gather_async(&gather, &handle) == RONDA_OK);
  EXPECT_FLOATS(handle, gathered, rank == 1 ? 4 : 0, rank == 1 ? 2 : 0);

  scatter.tensor = vector_of("scatter", &two);
  scatter.input = mine;
  scatter.splits = splits;
  scatter.split_count = 2;
  scatter.root = 1;
  dealt[0] = rank == 0 ? 10.0f : 11.0f;
  EXPECT(ronda_scatter_async(&scatter, &handle) == RONDA_OK);
  EXPECT_FLOATS(handle, dealt, 1, 0);

  alltoall.tensor = vector_of("alltoall", &two);
  alltoall.input = mine;
  alltoall.splits = splits;
  alltoall.split_count = 2;
  exchanged[0] = rank == 0 ? 0.0f : 1.0f;
  exchanged[1] = rank == 0 ? 10.0f : 11.0f;
  EXPECT(ronda_alltoall_async(&alltoall, &handle) == RONDA_OK);
  EXPECT_FLOATS(handle, exchanged, 2, 2);

  broadcast.tensor = vector_of("broadcast", &two);
  broadcast.data = mine;
  broadcast.root = 1;
  EXPECT(ronda_broadcast(&broadcast) == RONDA_OK);
  EXPECT(mine[0] == 10 && mine[1] == 11);

  send.tensor = vector_of(NULL, &one);
  send.input = mine;
  send.to = 1;
  send.tag = 7;
  recv.tensor = send.tensor;
  recv.output = &received;
  recv.from = 0;
  recv.tag = 7;
  EXPECT((rank == 0 ? ronda_send(&send) : ronda_recv(&recv)) == RONDA_OK);
  if (rank == 1) EXPECT(received == 10);
}

static void test_objects_and_rows(void) {
  const char* const texts[2] = {"a", "two"};
  const int64_t one = 1;
  const int64_t index = rank;
  const float value = 2;
  const float values[2] = {1, 1};
  const void* data = NULL;
  int64_t rows = 0;
  ronda_handle handle = 0, indices = 0, rows_of_all = 0;
  ronda_object_args object = RONDA_OBJECT_ARGS_INIT;
  ronda_sparse_allreduce_args sparse = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;

  object.name = "object";
  object.data = texts[rank];
  object.size = strlen(texts[rank]);
  object.root = 1;
  EXPECT(ronda_broadcast_object_async(&object, &handle) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_OK);
  EXPECT(ronda_output(handle, &data, &rows, NULL, NULL) == RONDA_OK);
  EXPECT(rows == 3 && memcmp(data, "two", 3) == 0);
  EXPECT(ronda_release(handle) == RONDA_OK);
  EXPECT(ronda_allgather_object_async(&object, &handle) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_OK);
  EXPECT(ronda_output(handle, &data, &rows, NULL, NULL) == RONDA_OK);
  EXPECT(rows == 4 && memcmp(data, "atwo", 4) == 0);
  EXPECT(ronda_release(handle) == RONDA_OK);

  sparse.tensor = vector_of("sparse", &one);
  sparse.values = &value;
  sparse.indices = &index;
  sparse.op = RONDA_AVERAGE;
  EXPECT(ronda_sparse_allreduce_async(&sparse, &indices, &rows_of_all) == RONDA_OK);
  EXPECT(ronda_synchronize(indices) == RONDA_OK);
  EXPECT(ronda_output(indices, &data, &rows, NULL, NULL) == RONDA_OK);
  EXPECT(rows == 2 && ((const int64_t*)data)[0] == 0 && ((const int64_t*)data)[1] == 1);
  EXPECT(ronda_release(indices) == RONDA_OK);
  EXPECT_FLOATS(rows_of_all, values, 2, 2);
}

static void count_call(void* context, ronda_status status, const char* message) {
  if (status == RONDA_OK && message != NULL) ++*(int*)context;
}

static void test_coordination(ronda_process_set alone) {
  const int both[2] = {0, 1};
  int members[2] = {-1, -1};
  ronda_process_set ids[4] = {0, 0, 0, 0};
  ronda_process_set set = 0;
  int count = 0, stop = -1, last = -1, called = 0;
  ronda_handle handle = 0;
  EXPECT(ronda_process_set_size(alone) == 1);
  EXPECT(ronda_process_set_rank(alone) == (rank == 1 ? 0 : -1));
  EXPECT(ronda_add_process_set(both, 2, &set) == RONDA_OK);
  EXPECT(ronda_process_set_ids(ids, 4, &count) == RONDA_OK && count == 3 && ids[2] == set);
  EXPECT(ronda_process_set_ranks(set, members) == RONDA_OK && members[0] == 0 && members[1] == 1);
  EXPECT(ronda_barrier(set) == RONDA_OK);
  EXPECT(ronda_monitored_barrier(set, 30) == RONDA_OK);
  EXPECT(ronda_remove_process_set(set) == RONDA_OK);
  EXPECT(ronda_should_stop(&stop) == RONDA_OK && stop == 0);
  EXPECT(ronda_join_async(0, RONDA_ABSENT_COUNTED_AS_ZEROS, &handle) == RONDA_OK);
  EXPECT(ronda_on_completion(handle, count_call, &called) == RONDA_OK);
  EXPECT(ronda_synchronize(handle) == RONDA_OK);
  EXPECT(ronda_last_rank(handle, &last) == RONDA_OK && (last == 0 || last == 1));
  EXPECT(ronda_release(handle) == RONDA_OK);
  EXPECT(ronda_join(0, RONDA_ABSENT_NOT_COUNTED, NULL) == RONDA_OK);
  EXPECT(ronda_shutdown() == RONDA_OK); /* which waits for callbacks */
  EXPECT(called == 1);
}

static void expect_statistics(void) {
  ronda_statistics statistics = RONDA_STATISTICS_INIT;
  EXPECT(ronda_get_statistics(&statistics) == RONDA_OK);
  EXPECT(statistics.reports_sent > 0 && statistics.lists_received > 0 && statistics.buckets_agreed > 0);
  EXPECT((statistics.reports_received > 0) == (rank == 0) && (statistics.lists_sent > 0) == (rank == 0));
}

static void add_up(void* context) {
  const int64_t one = 1;
  float value = 1;
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor = vector_of("threads", &one);
  args.input = &value;
  args.output = &value;
  if (ronda_make_current(ronda_current()) == RONDA_OK && ronda_allreduce(&args) == RONDA_OK && value == 3) {
    ((int*)context)[ronda_rank()] = 1;
  }
}

static void test_threads(void) {
  int good[3] = {0, 0, 0};
  ronda_options options = RONDA_OPTIONS_INIT;
  options.stall_deadline_s = 30;
  EXPECT(ronda_run_threads(&options, 3, add_up, good) == RONDA_OK);
  EXPECT(good[0] && good[1] && good[2]);
}

/* What lies behind an old program's struct is not the library's to read. */
struct options_and_neighbour {
  ronda_options options;
  unsigned char neighbour[256];
};

static void join_job(void) {
  static const int last[1] = {1};
  static const ronda_rank_list sets[1] = {{last, 1}};
  const ronda_options initial = RONDA_OPTIONS_INIT;
  struct options_and_neighbour memory;
  memset(&memory, 0xff, sizeof(memory));
  memory.options = initial;
  memory.options.cycle_time_ms = 0.5;
  memory.options.fusion_threshold = 1 << 20;
  memory.options.cache_capacity = 100;
  memory.options.stall_warning_s = 10;
  memory.options.stall_deadline_s = 60;
  memory.options.start_timeout_s = 30;
  memory.options.process_sets = sets;
  memory.options.process_set_count = 1;
  EXPECT(ronda_init(&memory.options) == RONDA_OK);
}

int main(void) {
  EXPECT(RONDA_ABI_VERSION == 1 && ronda_version()[0] != '\0');
  EXPECT(ronda_is_initialized() == 0 && ronda_size() == -1);
  EXPECT(ronda_barrier(0) == RONDA_ERROR_NOT_INITIALIZED);
  join_job();
  rank = ronda_rank();
  EXPECT(ronda_init(NULL) == RONDA_ERROR_ALREADY_INITIALIZED);
  EXPECT(ronda_size() == 2 && ronda_local_size() == 2 && ronda_local_rank() == rank);
  EXPECT(ronda_cross_rank() == 0 && ronda_cross_size() == 1);
  if (rank == 0 || rank == 1) {
    test_reductions();
    test_groups();
    test_exchanges();
    test_objects_and_rows();
    EXPECT(ronda_stop_timeline() == RONDA_OK);
    expect_statistics();
    test_coordination(1);
  }
  test_threads();
  return failures < 100 ? failures : 100;
}
