// SPDX-License-Identifier: Apache-2.0

// Programs that tests run on connected ranks.
#ifndef RONDA_TESTS_RUNTIME_BACKENDS_RANK_BODIES_H_
#define RONDA_TESTS_RUNTIME_BACKENDS_RANK_BODIES_H_

#include <utility>

#include "gtest/gtest.h"
#include "runtime/backends/job.h"

namespace ronda::testing {

// Checks a sum over the communicator of `job`, then leaves the job.
inline void ExpectAddsUp(ConnectedJob job, RankId rank, int size) {
  float value = static_cast<float>(rank + 1);
  const Segment segment = {.input = &value, .output = &value, .count = 1};
  const absl::Status reduced =
      job.transport.communicator->Reduce({.info = {.label = "value"}, .segments = {&segment, 1}});
  EXPECT_TRUE(reduced.ok()) << reduced;
  EXPECT_EQ(value, static_cast<float>(size * (size + 1) / 2));
  const absl::Status met = job.transport.communicator->Barrier({.label = "leave together"});
  EXPECT_TRUE(met.ok()) << met;
  job.transport.control->Depart();
}

// Checks that all ranks of `job` are on one host, checks a sum over its communicator, and leaves the job.
inline void ExpectOneHostThatAddsUp(ConnectedJob job, RankId rank, int size) {
  EXPECT_EQ(job.topology.rank, rank);
  EXPECT_EQ(job.topology.size, size);
  EXPECT_EQ(job.topology.local_rank, rank);
  EXPECT_EQ(job.topology.local_size, size);
  EXPECT_EQ(job.topology.cross_rank, 0);
  EXPECT_EQ(job.topology.cross_size, 1);
  EXPECT_NE(job.topology.hostname, "");
  ExpectAddsUp(std::move(job), rank, size);
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_BACKENDS_RANK_BODIES_H_
