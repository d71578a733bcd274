// All orders of events of jobs of four members in which up to three things go wrong, or change: a member is killed, is
// stopped, speaks nonsense, leaves, or everybody is so slow that the launcher's next deadline passes first. Newcomers
// come by themselves, as replacements. The members are modelled as libronda's are; the launcher's side is the real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/elastic/membership.h"

namespace ronda {
namespace {

// Natural steps that several members may take next: each may be the next one to take it, or the oldest of them is.
// Steps of one kind commute, so that the second way visits fewer states on the way to the same ones.
enum class Order { kAny, kOldestFirst };

// The members that something happens to.
enum class Victims { kAny, kOldestAndNewest };

struct Scope {
  int events = 0;  // that go wrong, or change
  Order order = Order::kAny;
  Victims victims = Victims::kAny;
};

// A member's process.
struct Process {
  enum class Stage { kStarting, kWaiting, kMeeting, kTraining, kToldToEnd, kKilled } stage = Stage::kStarting;
  int slot = 0;
  int64_t epoch = -1;  // its newest
  bool is_told_of_change = false;
  bool is_leaving = false;
  bool is_stopped = false;

  bool IsIn(int64_t other) const { return epoch == other && (stage == Stage::kMeeting || stage == Stage::kTraining); }
};

// The members of an epoch, and how those have ended that have.
struct Epoch {
  std::set<int> members;
  std::map<int, int> exit_codes;
};

class World {
 public:
  World(const JobMembership::Options& options, const Scope& scope)
      : options_(options), scope_(scope), membership_(options) {
    Take(membership_.Begin(now_));
  }

  // A change of the world that can happen now.
  struct Move {
    absl::string_view kind;
    int member;  // -1: all
    std::function<void(World*)> happen;
  };
  std::vector<Move> Moves() const;

  bool is_over() const { return is_over_; }
  bool has_succeeded() const { return is_over_ && exit_code_ == 0; }
  int64_t newest_epoch() const { return newest_epoch_; }
  const char* problem() const { return problem_; }  // nullptr: none

  // Equal for worlds with the same future.
  std::string Fingerprint() const;

 private:
  using Stage = Process::Stage;

  void Take(const JobMembership::Actions& actions);
  void TakePlaces(const JobMembership::Actions& actions);
  void Obey(const JobMembership::StartMember& start);
  void Obey(const JobMembership::SendMessage& send);
  void Obey(const JobMembership::KillMember& kill);
  void Obey(const JobMembership::AskToLeave&) { Check(false, "the hosts stay as they are"); }
  void Obey(const JobMembership::EndJob& end);

  bool IsBroken(int64_t epoch) const;
  bool IsComplete(int64_t epoch) const;
  bool HaveAllMet(int64_t epoch) const;
  bool HasFinished(int64_t epoch) const { return has_finished_ && epoch == newest_epoch_; }
  bool IsAnybodyToldOf(int64_t epoch) const;
  void AddMovesOf(int id, const Process& process, std::vector<Move>* moves) const;
  void AddTroubleOf(int id, const Process& process, std::vector<Move>* moves) const;

  void Say(int id, const MemberMessage& message) { Take(membership_.OnMessage(id, message, now_)); }
  void Join(int id, const std::string& reason);
  void Exit(int id, int exit_code);
  void PassTime();
  void Check(bool is_right, const char* what) {
    if (!is_right && problem_ == nullptr) problem_ = what;
  }

  JobMembership::Options options_;
  Scope scope_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  JobMembership membership_;
  std::map<int, Process> processes_;
  std::map<int64_t, Epoch> epochs_;
  int64_t newest_epoch_ = -1;
  int next_member_ = 0;
  bool has_finished_ = false;  // a member of the newest epoch has come to the end of its program
  bool is_over_ = false;
  int exit_code_ = -1;
  int events_ = 0;
  const char* problem_ = nullptr;
};

// A member that is in no operation with the others any more breaks it for them, unless its program is at its end.
bool World::IsBroken(int64_t epoch) const {
  const Epoch& of = epochs_.at(epoch);
  return std::any_of(of.members.begin(), of.members.end(), [&](int id) {
    const auto exit = of.exit_codes.find(id);
    if (exit != of.exit_codes.end()) return exit->second != 0 || !HasFinished(epoch);
    const auto process = processes_.find(id);
    return process == processes_.end() || !process->second.IsIn(epoch);
  });
}

bool World::HaveAllMet(int64_t epoch) const {
  return IsComplete(epoch) && std::all_of(processes_.begin(), processes_.end(), [&](const auto& one) {
           return !one.second.IsIn(epoch) || one.second.stage == Stage::kTraining;
         });
}

bool World::IsComplete(int64_t epoch) const {
  const Epoch& of = epochs_.at(epoch);
  return of.exit_codes.empty() && std::all_of(of.members.begin(), of.members.end(), [&](int id) {
           const auto process = processes_.find(id);
           return process != processes_.end() && process->second.IsIn(epoch);
         });
}

bool World::IsAnybodyToldOf(int64_t epoch) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) {
    const Process& process = one.second;
    return process.IsIn(epoch) && (process.is_told_of_change || process.is_leaving);
  });
}

void World::AddMovesOf(int id, const Process& process, std::vector<Move>* moves) const {
  const auto add = [&](const char* name, auto happen) { moves->push_back({name, id, happen}); };
  if (process.stage == Stage::kKilled) {
    add("dies", [id](World* world) { world->Exit(id, 137); });
    return;
  }
  if (process.is_stopped) return;
  if (process.stage == Stage::kToldToEnd) add("obeys", [id](World* world) { world->Exit(id, 1); });
  if (process.stage == Stage::kStarting) add("joins", [id](World* world) { world->Join(id, ""); });
  if (!process.IsIn(process.epoch)) return;
  const int64_t epoch = process.epoch;
  const bool is_broken = IsBroken(epoch);
  const bool is_to_change = IsComplete(epoch) && IsAnybodyToldOf(epoch) && process.stage == Stage::kTraining;
  if (is_broken) add("fails", [id](World* world) { world->Join(id, "a peer has failed"); });
  if (process.is_leaving && (is_broken || is_to_change)) add("leaves", [id](World* world) { world->Exit(id, 0); });
  if (!process.is_leaving && is_to_change) add("changes", [id](World* world) { world->Join(id, ""); });
  if (!is_broken && process.stage == Stage::kMeeting) {
    add("meets", [id, epoch](World* world) {
      world->processes_.at(id).stage = Stage::kTraining;
      world->Say(id, EpochMet{.epoch = epoch});
    });
  }
  const bool is_at_its_end = HasFinished(epoch) || (HaveAllMet(epoch) && !IsAnybodyToldOf(epoch));
  if (is_at_its_end && !is_broken && process.stage == Stage::kTraining) {
    add("finishes", [id](World* world) {
      world->has_finished_ = true;
      world->Exit(id, 0);
    });
  }
}

void World::AddTroubleOf(int id, const Process& process, std::vector<Move>* moves) const {
  if (process.stage == Stage::kKilled) return;
  const auto add = [&](const char* name, std::function<void(World*)> happen) {
    moves->push_back({name, id, [happen = std::move(happen)](World* world) {
                        ++world->events_;
                        happen(world);
                      }});
  };
  add("is killed", [id](World* world) { world->Exit(id, 137); });
  add("speaks nonsense",
      [id](World* world) { world->Take(world->membership_.OnMisbehaviour(id, "spoke nonsense", world->now_)); });
  if (process.is_stopped) return;
  add("is stopped", [id](World* world) {
    world->processes_.at(id).is_stopped = true;
    world->Take(world->membership_.OnStop(id, world->now_));
  });
  if (process.stage != Stage::kTraining || process.is_leaving) return;
  add("asks to leave", [id](World* world) {
    world->processes_.at(id).is_leaving = true;
    world->Say(id, LeaveRequest{});
  });
}

std::vector<World::Move> World::Moves() const {
  std::vector<Move> moves;
  for (const auto& [id, process] : processes_) AddMovesOf(id, process, &moves);
  if (scope_.order == Order::kOldestFirst) {
    std::set<absl::string_view> kinds;
    std::erase_if(moves, [&](const Move& move) { return !kinds.insert(move.kind).second; });
  }
  const bool is_quiet = moves.empty();
  const bool has_deadline = membership_.deadline() < absl::InfiniteFuture();
  if (is_quiet && has_deadline) moves.push_back({"time passes", -1, [](World* world) { world->PassTime(); }});
  if (events_ == scope_.events) return moves;
  for (const auto& [id, process] : processes_) {
    const bool is_at_an_end = id == processes_.begin()->first || id == processes_.rbegin()->first;
    if (is_at_an_end || scope_.victims == Victims::kAny) AddTroubleOf(id, process, &moves);
  }
  if (!is_quiet && has_deadline) {
    moves.push_back({"all are slow", -1, [](World* world) {
                       ++world->events_;
                       world->PassTime();
                     }});
  }
  return moves;
}

void World::PassTime() {
  Check(membership_.deadline() > now_, "the deadline stays in the past");
  now_ = std::max(now_, membership_.deadline());
  Take(membership_.OnTime(now_));
}

void World::Join(int id, const std::string& reason) {
  Process& process = processes_.at(id);
  process.stage = Stage::kWaiting;
  Say(id, JoinRequest{.last_epoch = process.epoch, .step = process.epoch < 0 ? -1 : process.epoch, .reason = reason});
}

void World::Exit(int id, int exit_code) {
  for (auto& [number, epoch] : epochs_) {
    if (epoch.members.contains(id)) epoch.exit_codes[id] = exit_code;
  }
  processes_.erase(id);
  Take(membership_.OnExit(id, {.exit_code = exit_code, .describe = "has ended"}, now_));
}

void World::Take(const JobMembership::Actions& actions) {
  TakePlaces(actions);
  for (const JobMembership::Action& action : actions) {
    Check(!is_over_, "something happens after the end");
    std::visit([this](const auto& what) { Obey(what); }, action);
  }
  Check(membership_.is_over() == is_over_, "the end is told");
}

// Those of an epoch come at once: ranks are compact, the oldest member first, and nobody is left behind.
void World::TakePlaces(const JobMembership::Actions& actions) {
  std::vector<std::pair<int, EpochPlace>> places;
  for (const JobMembership::Action& action : actions) {
    const auto* send = std::get_if<JobMembership::SendMessage>(&action);
    const auto* place = send == nullptr ? nullptr : std::get_if<EpochPlace>(&send->message);
    if (place != nullptr) places.emplace_back(send->member, *place);
    const auto* kill = std::get_if<JobMembership::KillMember>(&action);
    if (kill != nullptr && places.empty()) processes_.at(kill->member).stage = Stage::kKilled;
  }
  if (places.empty()) return;
  const int size = static_cast<int>(places.size());
  Check(size >= options_.min_members && size <= options_.max_members, "an epoch has a wrong size");
  for (const auto& [id, process] : processes_) {
    Check(!process.IsIn(newest_epoch_) || process.is_leaving, "a member is still in the epoch before");
  }
  Epoch& epoch = epochs_[++newest_epoch_];
  for (int rank = 0; rank < size; ++rank) {
    const auto& [id, place] = places[static_cast<size_t>(rank)];
    Check(place.epoch == newest_epoch_, "epochs are not numbered one after the other");
    Check(place.topology.rank == rank && place.topology.size == size, "ranks are not compact");
    Check(rank == 0 || id > places[static_cast<size_t>(rank) - 1].first, "ranks are not by age");
    Check(epoch.members.insert(id).second, "a member has two ranks");
  }
}

void World::Obey(const JobMembership::StartMember& start) {
  Check(start.member == next_member_++, "members are not numbered one after the other");
  Check(!has_finished_, "a member is started though the job is finishing");
  for (const auto& [id, process] : processes_) Check(process.slot != start.slot, "a slot has two processes");
  processes_[start.member].slot = start.slot;
  Check(static_cast<int>(processes_.size()) <= options_.max_members, "there are too many processes");
}

void World::Obey(const JobMembership::SendMessage& send) {
  Check(processes_.contains(send.member), "a member that has ended is spoken to");
  Process& process = processes_[send.member];
  if (std::holds_alternative<EndNotice>(send.message)) process.stage = Stage::kToldToEnd;
  if (std::holds_alternative<ChangeNotice>(send.message)) process.is_told_of_change = true;
  const auto* place = std::get_if<EpochPlace>(&send.message);
  if (place == nullptr) return;
  Check(process.stage == Stage::kWaiting, "a member gets a place that does not wait for one");
  process.stage = Stage::kMeeting;
  process.epoch = place->epoch;
  process.is_told_of_change = false;
}

void World::Obey(const JobMembership::KillMember& kill) {
  Check(processes_.contains(kill.member), "a member that has ended is killed");
  processes_[kill.member].stage = Stage::kKilled;
}

void World::Obey(const JobMembership::EndJob& end) {
  is_over_ = true;
  exit_code_ = end.exit_code;
  Check((end.exit_code == 0) == end.why.empty(), "a failure needs a sentence");
  if (end.exit_code != 0) return;
  Check(processes_.empty(), "a job ends well while processes run");
  Check(newest_epoch_ >= 0, "a job ends well that has not begun");
  if (newest_epoch_ < 0) return;
  const Epoch& last = epochs_.at(newest_epoch_);
  for (const int id : last.members) {
    const auto code = last.exit_codes.find(id);
    Check(code != last.exit_codes.end() && code->second == 0, "a job ends well without a member of its last epoch");
  }
}

std::string World::Fingerprint() const {
  std::string text = absl::StrCat(membership_.Describe(now_), "|", events_, has_finished_ ? " finished" : "");
  for (const auto& [id, process] : processes_) {
    absl::StrAppend(&text, "|", id, " ", static_cast<int>(process.stage), " ", process.epoch, " ",
                    process.is_told_of_change, process.is_leaving, process.is_stopped);
  }
  if (newest_epoch_ < 0) return text;
  const Epoch& newest = epochs_.at(newest_epoch_);
  for (const int id : newest.members) absl::StrAppend(&text, "/", id);
  for (const auto& [id, code] : newest.exit_codes) absl::StrAppend(&text, "\\", id, "=", code);
  return text;
}

struct Census {
  size_t states = 0;
  size_t successes = 0;
  size_t failures = 0;
  int64_t most_epochs = 0;
};

// Visits all states, and stops at the first problem.
class Explorer {
 public:
  Explorer(const JobMembership::Options& options, const Scope& scope) { open_.push_back({World(options, scope), -1}); }

  Census Explore() {
    while (!open_.empty() && !has_problem_) {
      const Visit visit = std::move(open_.back());
      open_.pop_back();
      ++census_.states;
      census_.most_epochs = std::max(census_.most_epochs, visit.world.newest_epoch() + 1);
      if (visit.world.is_over()) {
        ++(visit.world.has_succeeded() ? census_.successes : census_.failures);
      } else {
        GoOn(visit);
      }
    }
    return census_;
  }

 private:
  struct Visit {
    World world;
    int64_t step;  // that has led to it
  };
  struct Step {
    int64_t before;  // -1: none
    absl::string_view kind;
    int member;
  };

  void GoOn(const Visit& visit) {
    const std::vector<World::Move> moves = visit.world.Moves();
    if (moves.empty()) Report("everybody waits for ever", visit);
    for (const World::Move& move : moves) {
      Visit next = {visit.world, static_cast<int64_t>(steps_.size())};
      move.happen(&next.world);
      const bool has_problem = next.world.problem() != nullptr;
      if (!has_problem && !seen_.insert(std::hash<std::string>()(next.world.Fingerprint())).second) continue;
      steps_.push_back({visit.step, move.kind, move.member});
      if (has_problem) return Report(next.world.problem(), next);
      open_.push_back(std::move(next));
    }
  }

  void Report(const char* problem, const Visit& visit) {
    has_problem_ = true;
    std::string history;
    for (int64_t step = visit.step; step >= 0; step = steps_[static_cast<size_t>(step)].before) {
      const Step& at = steps_[static_cast<size_t>(step)];
      history = absl::StrCat("\n  ", at.kind, " ", at.member, history);
    }
    ADD_FAILURE() << problem << ":" << history << "\n" << visit.world.Fingerprint();
  }

  std::vector<Visit> open_;
  std::vector<Step> steps_;
  std::unordered_set<size_t> seen_;
  Census census_;
  bool has_problem_ = false;
};

const JobMembership::Host kHost = {.name = "alpha", .slots = 4};

constexpr Scope kOne = {.events = 1};
constexpr Scope kTwo = {.events = 2, .order = Order::kOldestFirst};
constexpr Scope kThree = {.events = 3, .order = Order::kOldestFirst, .victims = Victims::kOldestAndNewest};

// The job of these options, in scopes of ever more events and ever fewer orders of the steps between them.
void ExpectNoProblems(const JobMembership::Options& options, const std::vector<Scope>& scopes) {
  for (const Scope& scope : scopes) {
    const Census census = Explorer(options, scope).Explore();
    // Else the model does not do what it is for.
    EXPECT_GT(census.states, 1'000);
    EXPECT_GT(census.successes, 0);
    EXPECT_GT(census.failures, 0);
    EXPECT_GT(census.most_epochs, scope.events) << "the first, and one after each event";
  }
}

TEST(JobMembershipModelTest, FourMembersOfWhichTwoSuffice) {
  ExpectNoProblems({.hosts = {kHost}, .initial_members = 4, .min_members = 2, .max_members = 4}, {kOne, kTwo, kThree});
}

TEST(JobMembershipModelTest, FourMembersThatAreAllNeeded) {
  ExpectNoProblems({.hosts = {kHost}, .initial_members = 4, .min_members = 4, .max_members = 4}, {kOne, kTwo, kThree});
}

TEST(JobMembershipModelTest, TwoMembersThatBecomeFour) {
  ExpectNoProblems({.hosts = {kHost}, .initial_members = 2, .min_members = 1, .max_members = 4}, {kOne, kTwo});
}

}  // namespace
}  // namespace ronda
