// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_PROGRAMS_MONITOR_SERVE_SNAPSHOTS_H_
#define RONDA_TESTS_PROGRAMS_MONITOR_SERVE_SNAPSHOTS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda::testing {

// Returns a job of `size` ranks on this host. Rank r has made r + 1 steps, and the other ranks have waited r seconds
// for it.
inline JobSnapshot MakeJob(const std::string& name, int size) {
  JobSnapshot job = {.job = name, .now = absl::Seconds(1000)};
  for (int rank = 0; rank < size; ++rank) {
    RankSnapshot& added = job.ranks.emplace_back();
    added.identity = {
        .job = name,
        .topology = {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .hostname = "node"},
        .process = {.pid = 100 + rank}};
    added.sample.counts.steps = static_cast<uint64_t>(rank) + 1;
    added.sample.last_step = absl::Seconds(900 + rank);
    added.sample.counts.bucket_nanoseconds = 1'500'000'000;
    added.sample.collectives[0][1] = 7;
    added.lateness.histogram.Add(absl::Microseconds(10));
    added.lateness.histogram.Add(absl::Milliseconds(2));
    added.lateness.histogram.Add(absl::Seconds(31));
    added.lateness.last = 1;
    added.lateness.blamed_wait = absl::Seconds(rank);
  }
  return job;
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_PROGRAMS_MONITOR_SERVE_SNAPSHOTS_H_
