#ifndef RONDA_RUNTIME_MONITOR_SERVE_WATCHED_JOBS_H_
#define RONDA_RUNTIME_MONITOR_SERVE_WATCHED_JOBS_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_sampler.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// The jobs of this user on this host that are watched: all, or the one whose name begins in a given way. Jobs are found
// as they begin, and forgotten when all of their ranks here have ended.
//
// Thread-compatible. Has no thread of its own.
class WatchedJobs {
 public:
  // To look for ranks costs much more than to read those that are known. It is done often while there is no job, or a
  // job that has begun lacks ranks; else seldom, and for a job that was named not at all. After the first searches it
  // takes 0.2 % of the time at most: a host may have very many processes.
  static constexpr absl::Duration kSearchSoon = absl::Seconds(1);
  static constexpr absl::Duration kSearchSeldom = absl::Seconds(10);
  static constexpr absl::Duration kStart = absl::Minutes(1);  // then no rank is missing any more
  static constexpr int kEagerSearches = 10;
  static constexpr int kRest = 500;  // times as long as the search has taken

  using Finder = std::function<FoundRanks()>;
  using Stopwatch = std::function<FlightTime()>;

  // An empty `beginning` is that of all names. `stopwatch` tells how long `finder` has taken.
  WatchedJobs(std::string beginning, Finder finder, Stopwatch stopwatch = FlightNow)
      : beginning_(std::move(beginning)), finder_(std::move(finder)), stopwatch_(std::move(stopwatch)) {}

  // Reads the ranks, and looks for new ones if it is time. To be called after NextPeriod(), from 2 to 10 times a
  // second: as often as the pace of the jobs asks for.
  void Sample(FlightTime now);
  absl::Duration NextPeriod() const;

  // By name.
  std::vector<JobSnapshot> Snapshots() const;

  size_t size() const { return jobs_.size(); }

  // What was found and cannot be read, each once: the texts since the last call.
  std::vector<std::string> TakeProblems() { return std::exchange(problems_, {}); }

 private:
  struct Job {
    std::set<std::pair<RankId, pid_t>> ranks;
    size_t expected = 0;  // ranks of the job on this host
    FlightTime since;
    std::unique_ptr<JobSampler> sampler;
  };

  void Search(FlightTime now);
  static void Take(std::vector<std::unique_ptr<RankReader>> readers, FlightTime now, Job* job);
  bool IsDue(FlightTime now) const;

  const std::string beginning_;
  const Finder finder_;
  const Stopwatch stopwatch_;
  std::map<std::string, Job> jobs_;
  FlightTime searched_ = -absl::InfiniteDuration();
  absl::Duration rest_;  // the least until the next search
  int searches_ = 0;
  FlightTime looked_ = -absl::InfiniteDuration();  // for jobs that have ended
  std::vector<std::string> problems_;
  std::set<std::string> known_problems_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SERVE_WATCHED_JOBS_H_
