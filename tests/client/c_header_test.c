/* ronda.h is C: it compiles as C99, pedantically, and its structs initialise as documented. */
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

int main(void) {
  ronda_options options = RONDA_OPTIONS_INIT;
  const ronda_broadcast_args broadcast = RONDA_BROADCAST_ARGS_INIT;
  const ronda_allgather_args allgather = RONDA_ALLGATHER_ARGS_INIT;
  expect(broadcast.struct_size == sizeof(broadcast), "RONDA_BROADCAST_ARGS_INIT");
  expect(allgather.struct_size == sizeof(allgather), "RONDA_ALLGATHER_ARGS_INIT");
  expect(strcmp(ronda_last_error(), "") == 0, "no error before the first call");
  expect(ronda_init(&options) == RONDA_OK, "ronda_init");
  test_allreduce();
  expect(ronda_shutdown() == RONDA_OK, "ronda_shutdown");
  return failures == 0 ? 0 : 1;
}
