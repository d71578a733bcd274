/* SPDX-License-Identifier: Apache-2.0 */

/* A trainer for Slurm jobs. It adds up averages for $STEPS steps, and saves its state when asked to end. */
#include <stdio.h>
#include <stdlib.h>

#include "client/ronda.h"

static const char* const kState = "train.state";

static void must(ronda_status status) {
  if (status == RONDA_OK) return;
  fprintf(stderr, "train: %s\n", ronda_last_error());
  exit(1);
}

static void load(double* step, double* value) {
  FILE* file = fopen(kState, "r");
  if (file == NULL) return;
  if (fscanf(file, "%lf %lf", step, value) != 2) exit(2);
  fclose(file);
  printf("goes on after step %.0f\n", *step);
}

static void save(double step, double value) {
  FILE* file = fopen("train.new", "w");
  if (file == NULL || fprintf(file, "%.0f %.1f\n", step, value) < 0 || fclose(file) != 0) exit(3);
  if (rename("train.new", kState) != 0) exit(4);
  printf("saved after step %.0f\n", step);
}

int main(void) {
  const char* steps = getenv("STEPS");
  const double end = steps == NULL ? 100 : atof(steps);
  double step = 0, value = 0;
  int trains = 0, stop = 0;
  ronda_allreduce_args average = RONDA_ALLREDUCE_ARGS_INIT;
  setvbuf(stdout, NULL, _IOLBF, 0);
  must(ronda_init(NULL));
  load(&step, &value); /* each rank reads the file, which is on a file system of all nodes */
  average.tensor.name = "gradient";
  average.tensor.dtype = RONDA_FLOAT64;
  average.op = RONDA_AVERAGE;
  while (step < end && !stop) {
    double gradient = ronda_rank();
    average.input = &gradient;
    average.output = &gradient;
    must(ronda_allreduce(&average));
    value += gradient;
    step++;
    must(ronda_should_stop(&stop));
    if (!trains)
      printf("rank %d of %d trains\n", ronda_rank(), ronda_size()); /* SIGTERM has the state saved from here */
    trains = 1;
  }
  if (stop && ronda_rank() == 0) save(step, value);
  printf("rank %d of %d ends: average %.1f\n", ronda_rank(), ronda_size(), value / step);
  must(ronda_shutdown());
  return 0;
}
