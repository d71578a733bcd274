// SPDX-License-Identifier: Apache-2.0

// Tests a report from another host's monitor. It must be refused, or contain ranks that a monitor can watch and
// describe.
#include <algorithm>
#include <map>
#include <string>

#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/reports.h"
#include "programs/monitor/serve/host_report.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::BucketEntry;
  ronda::fuzz::FuzzInput input(data, size);
  const auto asked = absl::Milliseconds(input.Number<uint32_t>());
  const auto told = ronda::DecodeHostReport(input.TakeRest(), {.asked = asked, .answered = asked});
  ronda::fuzz::RequireOkOrRefused(told.status());
  if (!told.ok()) return 0;
  for (const ronda::RankSnapshot& rank : told->ranks) {
    const auto& entries = rank.sample.entries;
    ronda::fuzz::Require(std::is_sorted(entries.begin(), entries.end(),
                                        [](const BucketEntry& a, const BucketEntry& b) { return a.bucket < b.bucket; }),
                         "entries are in order");
    ronda::fuzz::Require(rank.rank() >= 0 && rank.rank() < rank.identity.topology.size, "the rank is in its job");
  }
  ronda::JobSampler sampler({});
  for (int i = 0; i < 2; ++i) {
    sampler.Sample(asked + absl::Seconds(i), {{"other", *told}});
    const ronda::JobSnapshot job = sampler.Snapshot();
    ronda::fuzz::Require(!ronda::WhyText(job).empty() && !ronda::TopText(job).empty(), "the ranks can be described");
  }
  return 0;
}
