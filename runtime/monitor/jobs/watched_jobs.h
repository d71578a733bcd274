#ifndef RONDA_RUNTIME_MONITOR_JOBS_WATCHED_JOBS_H_
#define RONDA_RUNTIME_MONITOR_JOBS_WATCHED_JOBS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_sampler.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// The jobs of this user on this host that are watched, also from before their ranks are there.
//
// A rank that is new in its job is one more to compare the others with: then all numbers of the job begin anew. Ranks
// that have ended stay, with their last words, until a new one comes or ForgetEnded is called.
//
// Thread-compatible. Has no thread of its own.
class WatchedJobs {
 public:
  // To look for ranks costs much more than to read those that are known. It is done often at the start, and while there
  // is no job that runs, or one that has begun lacks ranks; else seldom, or not at all. After the first searches in
  // vain it takes 0.2 % of the time at most: a host may have very many processes, and a program may never become a
  // rank.
  static constexpr absl::Duration kSearchAtStart = absl::Milliseconds(200);
  static constexpr absl::Duration kSearchSoon = absl::Seconds(1);
  static constexpr absl::Duration kSearchSeldom = absl::Seconds(10);
  static constexpr absl::Duration kStart = absl::Minutes(1);  // then no rank is missing any more
  static constexpr int kEagerSearches = 20;
  static constexpr int kRest = 500;  // times as long as the search has taken

  struct Options {
    RankFilter is_watched;  // tells the ranks of these jobs from others
    // kUntilComplete: a job whose ranks are all there is the last one, until it has ended.
    enum class Search { kUntilComplete, kAlways } search = Search::kUntilComplete;
    std::function<FoundRanks()> find = [] { return FindRanks(); };
    std::function<FlightTime()> stopwatch = FlightNow;  // tells how long `find` has taken
  };
  explicit WatchedJobs(Options options) : options_(std::move(options)) {}

  // Reads the ranks, and looks for new ones if it is time. To be called every JobSampler::kPeriod, or after
  // NextPeriod(): as often as the pace of the jobs asks for.
  void Sample(FlightTime now);
  absl::Duration NextPeriod() const;

  // What the monitor of another host tells, from the next Sample on. Does nothing if no rank of the job is here.
  void Tell(OtherHost other);

  // As of the last call of Sample, by name.
  std::vector<JobSnapshot> Snapshots() const;

  size_t size() const { return jobs_.size(); }

  // Forgets the jobs of which all ranks here have ended.
  void ForgetEnded();

  // Forgets the same ones, but only where a later epoch of the job has begun. Returns their last words.
  std::vector<JobSnapshot> TakeEndedEpochs();

  // What was found and cannot be read, each once: the texts since the last call.
  std::vector<std::string> TakeProblems() { return std::exchange(problems_, {}); }

 private:
  struct Job {
    size_t expected = 0;  // ranks of the job on this host
    FlightTime since;     // when the last rank was found
    std::unique_ptr<JobSampler> sampler;
    JobSampler::OtherHosts others;
  };

  void Search(FlightTime now);
  void Take(std::vector<std::unique_ptr<RankReader>> readers, FlightTime now, Job* job);
  absl::Duration SearchPeriod(FlightTime now) const;

  const Options options_;
  std::map<std::string, Job> jobs_;
  FlightTime searched_ = -absl::InfiniteDuration();
  absl::Duration search_period_ = kSearchAtStart;
  absl::Duration rest_;  // the least between two searches
  int searches_ = 0;     // since new ranks were found
  std::vector<std::string> problems_;
  std::set<std::string> known_problems_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_WATCHED_JOBS_H_
