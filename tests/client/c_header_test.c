/* SPDX-License-Identifier: Apache-2.0 */

/* Tests that ronda.h compiles as C99 with -pedantic, and that its structs initialise as documented. */
#include "client/ronda.h"

#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  printf("FAILED: %s: %s\n", what, ronda_last_error());
  ++failures;
}

static void test_allreduce(void) {
  const int64_t shape[1] = {2};
  float values[2] = {1, 2};
  ronda_handle handle = 0;
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor.name = "x";
  args.tensor.ndim = 1;
  args.tensor.shape = shape;
  args.input = values;
  args.output = values;
  args.postscale = 3;
  expect(ronda_allreduce_async(&args, &handle) == RONDA_OK, "ronda_allreduce_async");
  expect(ronda_synchronize(handle) == RONDA_OK, "ronda_synchronize");
  expect(ronda_release(handle) == RONDA_OK, "ronda_release");
  expect(values[0] == 3 && values[1] == 6, "the result of the allreduce");
}

/* The initializer sets the first field, and zeroes the last fields. */
#define EXPECT_INITIALIZED(type, initializer)                                                                         \
  do {                                                                                                                \
    const type args = initializer;                                                                                    \
    expect(args.struct_size == sizeof(args) && args.call.process_set == 0 && args.call.memory == RONDA_MEMORY_HOST && \
               args.call.stream == NULL,                                                                              \
           #initializer);                                                                                             \
  } while (0)

static void test_initializers(void) {
  EXPECT_INITIALIZED(ronda_reduce_args, RONDA_REDUCE_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_reducescatter_args, RONDA_REDUCESCATTER_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_broadcast_args, RONDA_BROADCAST_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_allgather_args, RONDA_ALLGATHER_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_gather_args, RONDA_GATHER_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_scatter_args, RONDA_SCATTER_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_alltoall_args, RONDA_ALLTOALL_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_send_args, RONDA_SEND_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_recv_args, RONDA_RECV_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_object_args, RONDA_OBJECT_ARGS_INIT);
  EXPECT_INITIALIZED(ronda_sparse_allreduce_args, RONDA_SPARSE_ALLREDUCE_ARGS_INIT);
}

static void test_elastic(void) {
  const ronda_elastic_reform_options reform = RONDA_ELASTIC_REFORM_OPTIONS_INIT;
  ronda_elastic_source source = RONDA_ELASTIC_SOURCE_INIT;
  ronda_elastic_change change = RONDA_ELASTIC_LEAVE;
  expect(reform.struct_size == sizeof(reform) && reform.options == NULL, "RONDA_ELASTIC_REFORM_OPTIONS_INIT");
  expect(ronda_elastic_sync(-1, &source) == RONDA_OK, "ronda_elastic_sync");
  expect(source.step == 0 && source.rank == 0 && source.is_behind == 0 && source.any_behind == 0, "the source");
  ronda_elastic_begin_update();
  ronda_elastic_end_update();
  expect(ronda_elastic_sync(-1, &source) == RONDA_OK && source.step == 1, "the source after a step");
  expect(ronda_elastic_poll(&change) == RONDA_OK && change == RONDA_ELASTIC_GO_ON, "ronda_elastic_poll");
  expect(ronda_elastic_reform(&reform) == RONDA_ERROR_INVALID_ARGUMENT, "ronda_elastic_reform");
}

static void test_join(void) {
  int last_rank = -1;
  ronda_process_set set = 0;
  const int ranks[1] = {0};
  expect(ronda_add_process_set(ranks, 1, &set) == RONDA_OK && set == 1, "ronda_add_process_set");
  expect(ronda_join(set, RONDA_ABSENT_NOT_COUNTED, &last_rank) == RONDA_OK && last_rank == 0, "ronda_join");
  expect(ronda_barrier(set) == RONDA_OK, "ronda_barrier");
  expect(ronda_remove_process_set(set) == RONDA_OK, "ronda_remove_process_set");
}

static void test_operations_that_name_nothing(void) {
  ronda_handle handle = 0;
  ronda_process_set set = 0;
  const int ranks[1] = {0};
  int sender = -1;
  expect(ronda_refuse(0, NULL, "a mistake") == RONDA_OK, "ronda_refuse");
  expect(ronda_refuse(0, "t", "a mistake") == RONDA_OK, "ronda_refuse of a name");
  expect(ronda_refuse_message(0, 0, 0, 0, NULL) == RONDA_ERROR_INVALID_ARGUMENT, "ronda_refuse_message");
  expect(ronda_monitored_barrier_async(0, 30, &handle) == RONDA_OK, "ronda_monitored_barrier_async");
  expect(ronda_synchronize(handle) == RONDA_OK, "ronda_synchronize");
  expect(ronda_source(handle, &sender) == RONDA_ERROR_INVALID_ARGUMENT, "ronda_source");
  expect(ronda_release(handle) == RONDA_OK, "ronda_release");
  expect(ronda_create_process_set(ranks, 1, NULL, &set) == RONDA_OK, "ronda_create_process_set");
  expect(ronda_remove_process_set_async(set, &handle) == RONDA_OK, "ronda_remove_process_set_async");
  expect(ronda_synchronize(handle) == RONDA_OK && ronda_process_set_size(set) == -1, "it is gone");
  expect(ronda_release(handle) == RONDA_OK, "ronda_release");
}

static void test_barrier_and_handles(void) {
  ronda_handle handles[2] = {0, 0};
  int done = 0;
  expect(ronda_barrier_async(0, &handles[0]) == RONDA_OK, "ronda_barrier_async");
  expect(ronda_barrier_async(0, &handles[1]) == RONDA_OK, "a second barrier in flight");
  expect(ronda_synchronize_all(handles, 2) == RONDA_OK, "ronda_synchronize_all");
  expect(ronda_poll_all(handles, 2, &done) == RONDA_OK && done == 1, "ronda_poll_all");
  expect(ronda_release_all(handles, 2) == RONDA_OK, "ronda_release_all");
}

static void test_group(void) {
  const int64_t shape[1] = {2};
  float values[2][2] = {{1, 2}, {3, 4}};
  const char* const names[2] = {"first", "second"};
  ronda_allreduce_args args[2] = {RONDA_ALLREDUCE_ARGS_INIT, RONDA_ALLREDUCE_ARGS_INIT};
  ronda_group group = NULL;
  int found = -1;
  int64_t first = 0;
  size_t i;
  for (i = 0; i < 2; ++i) {
    args[i].tensor.name = names[i];
    args[i].tensor.ndim = 1;
    args[i].tensor.shape = shape;
    args[i].input = args[i].output = values[i];
    args[i].postscale = 2;
  }
  expect(ronda_prepare_group(args, 2, "gradients", &group) == RONDA_OK, "ronda_prepare_group");
  for (i = 0; i < 2; ++i) expect(ronda_group_ready(group, i) == RONDA_OK, "ronda_group_ready");
  expect(ronda_group_wait(group) == RONDA_OK, "ronda_group_wait");
  expect(values[0][0] == 2 && values[1][1] == 8, "the results of the group");
  expect(ronda_group_found_inf(group, &found) == RONDA_OK && found == 0, "ronda_group_found_inf");
  expect(ronda_group_overflowed(group, &first) == RONDA_OK && first == -1, "ronda_group_overflowed");
  expect(ronda_group_release(group) == RONDA_OK, "ronda_group_release");
}

static void test_create_process_set(void) {
  ronda_process_set set = 0;
  const int ranks[1] = {0};
  expect(ronda_create_process_set(ranks, 1, NULL, &set) == RONDA_OK && set > 0, "ronda_create_process_set");
  expect(ronda_process_set_size(set) == 1, "the size of the set");
  expect(ronda_remove_process_set(set) == RONDA_OK, "the end of the set");
}

static void test_unnamed(void) {
  int32_t value = 4;
  ronda_broadcast_args args = RONDA_BROADCAST_ARGS_INIT;
  args.tensor.dtype = RONDA_INT32;
  args.data = &value;
  expect(args.tensor.name == NULL && ronda_broadcast(&args) == RONDA_OK && value == 4, "a tensor without a name");
}

static void set_to_size(void* context) { *(int*)context = ronda_size(); }

static void test_run_threads(void) {
  int size = 0;
  expect(ronda_run_threads(NULL, 1, set_to_size, &size) == RONDA_OK && size == 1, "ronda_run_threads");
}

static void test_recoverable(void) {
  int status = 0;
  for (status = -1; status <= 100; ++status) {
    const int expected = status == RONDA_ERROR_DEADLINE || status == RONDA_ERROR_PEER_FAILED;
    expect(ronda_status_is_recoverable((ronda_status)status) == expected, "ronda_status_is_recoverable");
  }
}

int main(void) {
  ronda_options options = RONDA_OPTIONS_INIT;
  test_initializers();
  expect(strcmp(ronda_last_error(), "") == 0, "no error before the first call");
  expect(ronda_init(&options) == RONDA_OK, "ronda_init");
  test_allreduce();
  test_join();
  test_elastic();
  test_operations_that_name_nothing();
  test_barrier_and_handles();
  test_group();
  test_create_process_set();
  test_unnamed();
  test_run_threads();
  test_recoverable();
  expect(ronda_shutdown() == RONDA_OK, "ronda_shutdown");
  return failures == 0 ? 0 : 1;
}
