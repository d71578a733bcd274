/* SPDX-License-Identifier: Apache-2.0 */

/* Tests programs built with an older ronda.h, whose argument structs are smaller. This file contains the unchanged
 * layouts of the older versions. Each struct is followed by memory that the library must not read. */
#include <stdio.h>
#include <string.h>

#include "client/ronda.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  printf("FAILED: %s: %s\n", what, ronda_last_error());
  ++failures;
}

/* The first version of ronda_call_options, before buffers could be in GPU memory. */
typedef struct first_call_options {
  ronda_process_set process_set;
  double warning_s;
  double deadline_s;
} first_call_options;

/* The second version of ronda_call_options, which was still the last field of each operation's struct. */
typedef struct second_call_options {
  ronda_process_set process_set;
  double warning_s;
  double deadline_s;
  ronda_memory memory;
  void* stream;
} second_call_options;

#define STRUCTS_OF(version)                     \
  typedef struct version##_allreduce_args {     \
    size_t struct_size;                         \
    ronda_tensor tensor;                        \
    const void* input;                          \
    void* output;                               \
    ronda_reduce_op op;                         \
    ronda_compression compression;              \
    double prescale, postscale;                 \
    int error_feedback, detect_overflow;        \
    version##_call_options call;                \
  } version##_allreduce_args;                   \
  typedef struct version##_reducescatter_args { \
    size_t struct_size;                         \
    ronda_tensor tensor;                        \
    const void* input;                          \
    ronda_reduce_op op;                         \
    ronda_compression compression;              \
    double prescale, postscale;                 \
    int error_feedback, detect_overflow;        \
    version##_call_options call;                \
  } version##_reducescatter_args;               \
  typedef struct version##_allgather_args {     \
    size_t struct_size;                         \
    ronda_tensor tensor;                        \
    const void* input;                          \
    version##_call_options call;                \
  } version##_allgather_args;                   \
  typedef struct version##_gather_args {        \
    size_t struct_size;                         \
    ronda_tensor tensor;                        \
    const void* input;                          \
    int root;                                   \
    version##_call_options call;                \
  } version##_gather_args;                      \
  typedef struct version##_scatter_args {       \
    size_t struct_size;                         \
    ronda_tensor tensor;                        \
    const void* input;                          \
    const int64_t* splits;                      \
    int split_count, root;                      \
    version##_call_options call;                \
  } version##_scatter_args;                     \
  typedef struct version##_alltoall_args {      \
    size_t struct_size;                         \
    ronda_tensor tensor;                        \
    const void* input;                          \
    const int64_t* splits;                      \
    int split_count;                            \
    version##_call_options call;                \
  } version##_alltoall_args;

STRUCTS_OF(first)
STRUCTS_OF(second)

static const int64_t shape[1] = {2};
static const float values[2] = {1, 2};

/* Expects that the operation succeeds, and that Ronda owns its output, as in the old versions. */
static void expect_output(ronda_status submitted, ronda_handle handle, const char* what) {
  const void* data = NULL;
  int64_t rows = 0;
  expect(submitted == RONDA_OK, what);
  if (submitted != RONDA_OK) return;
  expect(ronda_synchronize(handle) == RONDA_OK, what);
  expect(ronda_output(handle, &data, &rows, NULL, NULL) == RONDA_OK, what);
  expect(rows == 2 && data != NULL && memcmp(data, values, sizeof(values)) == 0, what);
  expect(ronda_release(handle) == RONDA_OK, what);
}

/* Runs an operation on `values` with a struct of an old version, in a job of one rank. */
#define EXPECT_OPERATION(version, operation)                                                                 \
  do {                                                                                                       \
    struct {                                                                                                 \
      version##_##operation##_args args;                                                                     \
      unsigned char foreign[64];                                                                             \
    } memory;                                                                                                \
    ronda_handle handle = 0;                                                                                 \
    ronda_status status;                                                                                     \
    memset(&memory, 0, sizeof(memory));                                                                      \
    memset(memory.foreign, 0xa5, sizeof(memory.foreign));                                                    \
    memory.args.struct_size = sizeof(memory.args);                                                           \
    memory.args.tensor.name = #version " " #operation;                                                       \
    memory.args.tensor.dtype = RONDA_FLOAT32;                                                                \
    memory.args.tensor.ndim = 1;                                                                             \
    memory.args.tensor.shape = shape;                                                                        \
    memory.args.input = values;                                                                              \
    memory.args.call.deadline_s = 60;                                                                        \
    expect(sizeof(memory.args) < sizeof(ronda_##operation##_args), "the struct has grown: " #operation);     \
    status = ronda_##operation##_async((const ronda_##operation##_args*)(const void*)&memory.args, &handle); \
    expect_output(status, handle, #version " " #operation);                                                  \
  } while (0)

#define EXPECT_OPERATIONS(version)            \
  do {                                        \
    EXPECT_OPERATION(version, reducescatter); \
    EXPECT_OPERATION(version, allgather);     \
    EXPECT_OPERATION(version, gather);        \
    EXPECT_OPERATION(version, scatter);       \
    EXPECT_OPERATION(version, alltoall);      \
  } while (0)

/* The allreduce struct has grown only once, so only its first version differs from the current one. */
static void test_allreduce(void) {
  struct {
    first_allreduce_args args;
    unsigned char foreign[64];
  } memory;
  float output[2] = {0, 0};
  memset(&memory, 0, sizeof(memory));
  memset(memory.foreign, 0xa5, sizeof(memory.foreign));
  memory.args.struct_size = sizeof(memory.args);
  memory.args.tensor.name = "first allreduce";
  memory.args.tensor.dtype = RONDA_FLOAT32;
  memory.args.tensor.ndim = 1;
  memory.args.tensor.shape = shape;
  memory.args.input = values;
  memory.args.output = output;
  expect(sizeof(first_allreduce_args) < sizeof(ronda_allreduce_args), "the struct has grown: allreduce");
  expect(sizeof(second_allreduce_args) == sizeof(ronda_allreduce_args), "the struct is as it was: allreduce");
  expect(ronda_allreduce((const ronda_allreduce_args*)(const void*)&memory.args) == RONDA_OK, "first allreduce");
  expect(memcmp(output, values, sizeof(values)) == 0, "the result of the first allreduce");
}

/* Two structs of an old version are adjacent in memory. */
static void test_group(void) {
  second_allgather_args members[2];
  ronda_handle handles[2] = {0, 0};
  int i;
  memset(members, 0, sizeof(members));
  for (i = 0; i < 2; ++i) {
    members[i].struct_size = sizeof(members[i]);
    members[i].tensor.name = i == 0 ? "x" : "y";
    members[i].tensor.dtype = RONDA_FLOAT32;
    members[i].tensor.ndim = 1;
    members[i].tensor.shape = shape;
    members[i].input = values;
  }
  expect(
      ronda_grouped_allgather_async((const ronda_allgather_args*)(const void*)members, 2, "old", handles) == RONDA_OK,
      "a group of old structs");
  for (i = 0; i < 2; ++i) expect_output(RONDA_OK, handles[i], "a member of a group of old structs");
}

int main(void) {
  expect(ronda_init(NULL) == RONDA_OK, "ronda_init");
  EXPECT_OPERATIONS(first);
  EXPECT_OPERATIONS(second);
  test_allreduce();
  test_group();
  expect(ronda_shutdown() == RONDA_OK, "ronda_shutdown");
  return failures == 0 ? 0 : 1;
}
