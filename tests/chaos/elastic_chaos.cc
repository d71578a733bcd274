// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/elastic_chaos.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"

namespace ronda::chaos {
namespace {

constexpr int kMembers = 4;

// How much the memory of a process may grow. An allocator may retain memory, and a trainer needs more memory when its
// share of a batch first grows. In the ten minutes of `make chaos`, this limit amounts to about 40 KiB per epoch.
constexpr int64_t kMemorySlackKib = 8192;
// The number of descriptors depends on the number of members. The launcher needs four descriptors per member, and a
// member needs one per other member.
constexpr int64_t kDescriptorSlackOfLauncher = 4 * kMembers;
constexpr int64_t kDescriptorSlackOfMember = kMembers;
constexpr int64_t kThreadSlack = 2;  // a rank has them only while it is not alone
// The samples of a process are compared only if there are at least this many, because the memory of a new process still
// grows.
constexpr size_t kTellingSamples = 9;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsMemoryTelling = false;  // sanitizers retain freed memory
#else
constexpr bool kIsMemoryTelling = true;
#endif

// Returns the number after `name` in `status`, for example after "Threads:".
int64_t NumberIn(absl::string_view status, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipEmpty());
    int64_t number = 0;
    if (words.size() > 1 && words[0] == name && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return 0;
}

std::string StatusOf(pid_t pid) { return ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or(""); }

// Returns the resources of a process, or nullopt if the process has ended.
std::optional<Footprint> FootprintOf(pid_t pid) {
  const std::string status = StatusOf(pid);
  std::error_code error;
  const std::filesystem::directory_iterator descriptors(absl::StrCat("/proc/", pid, "/fd"), error);
  if (error || NumberIn(status, "VmRSS:") == 0) return std::nullopt;
  return Footprint{.descriptors = std::distance(begin(descriptors), end(descriptors)),
                   .threads = NumberIn(status, "Threads:"),
                   .resident_kib = NumberIn(status, "VmRSS:")};
}

std::vector<std::string> ArgumentsOfLauncher(const std::vector<std::string>& program) {
  std::vector<std::string> arguments = {"-np", absl::StrCat(kMembers), "--min-np", "2", "--verbose"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  return arguments;
}

// Merges standard error into standard output, so that all lines are in order.
LauncherRun::Options OneStream() {
  // Processes that outlive the launcher become children of this process, so that the check at the end finds them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return {.in_child = [] { dup2(STDOUT_FILENO, STDERR_FILENO); }};
}

std::string EndOf(const std::string& text) { return text.substr(text.size() - std::min<size_t>(text.size(), 8000)); }

struct Range {
  int64_t first_most = 0;  // in the first third
  int64_t last_least = 0;  // in the last third
};

// A process may briefly use more resources while members join and leave. So the smallest value in the last third of the
// samples is compared with the greatest value in the first third.
Range RangeOf(const std::vector<int64_t>& values) {
  const auto third = static_cast<std::ptrdiff_t>((values.size() + 2) / 3);
  return {.first_most = *std::max_element(values.begin(), values.begin() + third),
          .last_least = *std::min_element(values.end() - third, values.end())};
}

void ExpectNoGrowthOf(const std::string& process, const std::vector<Footprint>& footprints, int64_t descriptor_slack) {
  if (footprints.size() < kTellingSamples) return;
  const auto range_of = [&](int64_t Footprint::*part) {
    std::vector<int64_t> values;
    for (const Footprint& footprint : footprints) values.push_back(footprint.*part);
    return RangeOf(values);
  };
  const auto tell = [](const Range& range) { return absl::StrCat(range.first_most, " -> ", range.last_least); };
  const Range descriptors = range_of(&Footprint::descriptors);
  const Range threads = range_of(&Footprint::threads);
  const Range memory = range_of(&Footprint::resident_kib);
  std::cout << process << ": " << tell(descriptors) << " descriptors, " << tell(threads) << " threads, " << tell(memory)
            << " KiB, in " << footprints.size() << " samples" << std::endl;
  EXPECT_LE(descriptors.last_least, descriptors.first_most + descriptor_slack) << "descriptors of " << process;
  EXPECT_LE(threads.last_least, threads.first_most + kThreadSlack) << "threads of " << process;
  if (!kIsMemoryTelling) return;
  EXPECT_LE(memory.last_least, memory.first_most + kMemorySlackKib) << "KiB of " << process;
}

}  // namespace

uint64_t SeedOfChaos() {
  const char* const text = std::getenv("CHAOS_SEED");
  return text == nullptr || *text == '\0' ? std::random_device()() : std::strtoull(text, nullptr, 10);
}

std::optional<absl::Duration> TimeForChaos() {
  const char* const text = std::getenv("CHAOS_SECONDS");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return absl::Seconds(std::strtoull(text, nullptr, 10));
}

ElasticChaos::ElasticChaos(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      run_(ArgumentsOfLauncher(options_.program), OneStream()),
      log_(kMembers),
      keeper_(random_.Below(kMembers)),
      stops_left_(options_.stops) {
  std::cout << "CHAOS_SEED=" << options_.seed << std::endl;
}

void ElasticChaos::InjureUntil(const std::function<bool(const JobLog&)>& is_enough, Keeper keeper) {
  while (AwaitTurn(is_enough)) {
    if (!IsAlive(keeper_)) ReplaceKeeper();
    if (::testing::Test::HasFatalFailure()) return;
    TakeSample();
    const std::vector<int> members = log_.members();
    const bool has_changed = keeper == Keeper::kChanges && random_.OneIn(3) && ChangeKeeper();
    if (!has_changed) TakeTurn(is_enough);
    veterans_ = {members.begin(), members.end()};
  }
}

void ElasticChaos::Catch() {
  log_.Read(run_.out());
  if (!killed_at_.has_value() || !log_.HasTrained()) return;
  recoveries_.push_back(SteadyNow() - *killed_at_);
  killed_at_.reset();
}

// Waits for the next turn. Returns false if there are enough injuries, or the launcher has ended.
bool ElasticChaos::AwaitTurn(const std::function<bool(const JobLog&)>& is_enough) {
  const auto half_a_pause = absl::ToChronoMicroseconds(options_.pause / 2);
  const absl::Time due = SteadyNow() + options_.pause / 2 + absl::FromChrono(random_.UpTo(2 * half_a_pause));
  bool is_over = false;
  const auto is_time = [&] {
    Catch();
    is_over = is_enough(log_) || !IsRunning(run_.pid());
    return is_over || (SteadyNow() >= due && log_.HasTrained());
  };
  return run_.ReadUntil(is_time, "a step of the members that are left") && !is_over;
}

void ElasticChaos::TakeSample() {
  const auto launcher = FootprintOf(run_.pid());
  const auto kept = FootprintOf(log_.pids().at(keeper_));
  if (!launcher.has_value() || !kept.has_value()) return;  // they have just ended; the next turn will notice
  samples_.push_back({.launcher = *launcher, .keeper = keeper_, .kept = *kept});
}

void ElasticChaos::TakeTurn(const std::function<bool(const JobLog&)>& is_enough) {
  const std::vector<int> victims = VictimsInEpoch();
  const int what = random_.Below(20);
  if (what == 0 && stops_left_ > 0 && !victims.empty()) {
    --stops_left_;
    Strike(AnyOf(victims), SIGSTOP);
  } else if (what <= 2 && victims.size() >= 2) {
    Strike(AnyOf(victims), SIGTERM);
  } else if (what <= 4 && !victims.empty()) {
    StopForAMoment();
  } else {
    KillSomebody();
    if (!random_.OneIn(3)) return;
    const absl::Time soon = SteadyNow() + absl::FromChrono(random_.UpTo(std::chrono::milliseconds(60)));
    run_.ReadUntil([&] { return SteadyNow() >= soon; }, "a moment");
    Catch();
    if (is_enough(log_)) return;
    ++counts_["second kills"];
    KillSomebody();
  }
}

std::vector<int> ElasticChaos::Veterans() const {
  std::vector<int> veterans = VictimsInEpoch();
  const auto is_new = [this](int member) { return veterans_.count(member) == 0; };
  veterans.erase(std::remove_if(veterans.begin(), veterans.end(), is_new), veterans.end());
  return veterans;
}

// The new keeper must have been a member at the last turn, because then the job has since completed a step with it.
bool ElasticChaos::ChangeKeeper() {
  const std::vector<int> candidates = Veterans();
  if (candidates.empty()) return false;
  const int old = std::exchange(keeper_, AnyOf(candidates));
  Strike(old, SIGKILL);
  return true;
}

// This is how a keeper can die. If rank 0 dies while the members connect, the members that it has already admitted join
// again at once. A member that arrives later waits for rank 0 until RONDA_START_TIMEOUT. The launcher kills such a
// member 5 s after the other members have joined.
void ElasticChaos::ReplaceKeeper() {
  ++counts_["keepers killed as late"];
  EXPECT_THAT(run_.out(),
              ::testing::ContainsRegex(absl::StrCat("member ", keeper_, " \\(pid [^)]*\\) did not leave epoch")));
  const std::vector<int> veterans = Veterans();
  const std::vector<int> candidates = veterans.empty() ? VictimsInEpoch() : veterans;
  ASSERT_FALSE(candidates.empty()) << EndOf(run_.out());
  keeper_ = AnyOf(candidates);
}

void ElasticChaos::KillSomebody() {
  std::vector<int> victims = VictimsInEpoch();
  const std::vector<int> joining = JoiningMembers();
  victims.insert(victims.end(), joining.begin(), joining.end());
  if (victims.empty()) return;
  const int victim = AnyOf(victims);
  if (!log_.HasBeenPlaced(victim)) {
    struck_joining_member_ = victim;
    ++counts_["joining members"];
  }
  Strike(victim, SIGKILL);
}

void ElasticChaos::StopForAMoment() {
  const pid_t pid = log_.pids().at(AnyOf(VictimsInEpoch()));
  const absl::Time soon = SteadyNow() + absl::FromChrono(random_.UpTo(std::chrono::milliseconds(500)));
  kill(pid, SIGSTOP);
  run_.ReadUntil([&] { return SteadyNow() >= soon; }, "a moment");
  kill(pid, SIGCONT);
  ++counts_["moments"];
}

void ElasticChaos::Strike(int member, int signo) {
  ++counts_[signo == SIGKILL ? "kills" : signo == SIGTERM ? "leaves" : "stops"];
  if (member == log_.members().front()) ++counts_["rank 0"];
  struck_.insert(member);
  log_.ExpectLossOf(member);
  if (signo == SIGKILL) killed_at_ = SteadyNow();
  kill(log_.pids().at(member), signo);
}

bool ElasticChaos::IsAlive(int member) const {
  const auto found = log_.pids().find(member);
  if (found == log_.pids().end() || !IsRunning(found->second)) return false;
  return NumberIn(StatusOf(found->second), "PPid:") == run_.pid();
}

std::vector<int> ElasticChaos::VictimsInEpoch() const {
  std::vector<int> victims;
  for (const int member : log_.members()) {
    if (member != keeper_ && struck_.count(member) == 0 && IsAlive(member)) victims.push_back(member);
  }
  return victims;
}

// If three new members in a row end before they join, the launcher starts no more members. So after a joining member
// was killed, the result is empty until a newer member has joined.
std::vector<int> ElasticChaos::JoiningMembers() const {
  std::vector<int> joining;
  bool has_one_come = !struck_joining_member_.has_value();
  for (const auto& [member, pid] : log_.pids()) {
    if (struck_joining_member_.has_value() && member > *struck_joining_member_ && log_.HasBeenPlaced(member))
      has_one_come = true;
    if (!log_.HasBeenPlaced(member) && IsAlive(member)) joining.push_back(member);
  }
  return has_one_come ? joining : std::vector<int>();
}

void ElasticChaos::ExpectGoodEnd() {
  const int exit_code = run_.Finish();
  Catch();
  EXPECT_EQ(exit_code, 0) << EndOf(run_.out());
  const bool has_kept_state = counts_.count("keepers killed as late") == 0;
  EXPECT_TRUE(!has_kept_state || std::is_sorted(log_.beginnings().begin(), log_.beginnings().end()))
      << "steps were lost: " << ::testing::PrintToString(log_.beginnings()) << "\n"
      << EndOf(run_.out());
  ExpectNothingLeft();
  Tell();
  ExpectNoGrowth();
}

void ElasticChaos::ExpectNothingLeft() const {
  ASSERT_EQ(log_.job_id().size(), 32u) << log_.job_id();
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_THAT(entry.path().string(), ::testing::Not(::testing::HasSubstr(log_.job_id())));
  }
  // The launcher's guard process ends shortly after the launcher.
  const auto is_alone = [] {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return errno == ECHILD;
  };
  WaitUntil(is_alone, "the end of all processes of the job");
}

void ElasticChaos::ExpectNoGrowth() const {
  std::vector<Footprint> launcher;
  std::map<int, std::vector<Footprint>> keepers;
  for (const Sample& sample : samples_) {
    launcher.push_back(sample.launcher);
    keepers[sample.keeper].push_back(sample.kept);
  }
  ExpectNoGrowthOf("rondarun", launcher, kDescriptorSlackOfLauncher);
  for (const auto& [member, footprints] : keepers) {
    ExpectNoGrowthOf(absl::StrCat("member ", member), footprints, kDescriptorSlackOfMember);
  }
}

void ElasticChaos::Tell() const {
  std::cout << log_.epochs() << " epochs, " << log_.passes() << " passes, " << log_.pids().size() << " members";
  for (const auto& [what, count] : counts_) std::cout << ", " << what << ": " << count;
  std::cout << ", accuracy " << log_.accuracy() << std::endl;
  if (recoveries_.empty()) return;
  std::vector<absl::Duration> sorted = recoveries_;
  std::sort(sorted.begin(), sorted.end());
  std::cout << "from a kill to a sign of a step without the member: " << sorted[sorted.size() / 2] << " in the median, "
            << sorted.back() << " at most" << std::endl;
}

}  // namespace ronda::chaos
