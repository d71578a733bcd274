// SPDX-License-Identifier: Apache-2.0

// Visits all orders of events in jobs of up to four members, with up to three faults or changes at any time. A member
// may be killed, be stopped, send an invalid message, or leave. All members may be so slow that the launcher's next
// deadline passes. A host may be lost, no longer be listed, or be listed again. Replacements also join; that does not
// count as a change. The members are a model of libronda's members (membership_world.h). The launcher's side is the
// real code.
//
// Each event may happen in any state, and to any member or host. The steps of members may happen in any order. States
// (worlds) that differ only in the names of members, slots and hosts, and in epoch numbers, count as the same.
// JobMembership treats them alike, with two exceptions: the order of ranks, which is checked in the visited states and
// in membership_test.cc, and which of two free slots on different hosts is used first. States are compared by 64-bit
// hashes. With ten million states, only one run in 400,000 would confuse two of them.
//
// The model does not cover growing cooldowns, members that continue after SIGSTOP, epochs that fail at the same step,
// lost messages, hosts whose number of slots changes, and members' messages that arrive after their host is lost. With
// a sanitizer, which is ten times slower, only two faults or changes happen per job.
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/membership_model/membership_explorer.h"

namespace ronda {
namespace {

using Host = JobMembership::Host;
using Scope = MembershipWorld::Scope;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kEvents = 2;
#else
constexpr int kEvents = 3;
#endif

struct Sizes {
  int initial = 4;
  int min = 1;
};

Scope ScopeOf(const std::vector<Host>& hosts, const Sizes& sizes) {
  Scope scope = {
      .options = {.hosts = hosts, .initial_members = sizes.initial, .min_members = sizes.min, .max_members = 4},
      .hosts = hosts,
      .events = kEvents};
  scope.options.max_cooldown = scope.options.min_cooldown;
  scope.options.max_host_cooldown = scope.options.min_host_cooldown;
  return scope;
}

Scope OneHost(const Sizes& sizes) { return ScopeOf({{.name = "alpha", .slots = 4}}, sizes); }

Scope TwoHosts(const Sizes& sizes) {
  Scope scope = ScopeOf({{.name = "alpha", .slots = 2}, {.name = "beta", .slots = 2}}, sizes);
  scope.host_changes = Scope::Hosts::kChange;
  return scope;
}

// Returns a job whose second host is not listed at first, but may be later.
Scope OneHostOfTwo(const Sizes& sizes) {
  Scope scope = TwoHosts(sizes);
  scope.options.hosts.pop_back();
  return scope;
}

void ExpectNoProblem(const Scope& scope) {
  const MembershipCensus census = MembershipExplorer(scope).Explore();
  EXPECT_EQ(census.problem, "");
  // With too few states of each kind, the test would prove nothing.
  EXPECT_GT(census.states, 5'000);
  EXPECT_GT(census.successes, 0);
  EXPECT_GT(census.failures, 0);
  EXPECT_GT(census.most_epochs, kEvents) << "the first, and one after each event";
  ::testing::Test::RecordProperty("states", static_cast<int>(census.states));
}

TEST(JobMembershipModelTest, FourMembersOfWhichOneSuffices) { ExpectNoProblem(OneHost({.initial = 4, .min = 1})); }

TEST(JobMembershipModelTest, FourMembersOfWhichTwoSuffice) { ExpectNoProblem(OneHost({.initial = 4, .min = 2})); }

TEST(JobMembershipModelTest, FourMembersThatAreAllNeeded) { ExpectNoProblem(OneHost({.initial = 4, .min = 4})); }

TEST(JobMembershipModelTest, TwoMembersThatBecomeFour) { ExpectNoProblem(OneHost({.initial = 2, .min = 1})); }

TEST(JobMembershipModelTest, FourMembersOnTwoHostsOfWhichOneSuffices) {
  ExpectNoProblem(TwoHosts({.initial = 4, .min = 1}));
}

TEST(JobMembershipModelTest, FourMembersOnTwoHostsOfWhichTwoSuffice) {
  ExpectNoProblem(TwoHosts({.initial = 4, .min = 2}));
}

TEST(JobMembershipModelTest, FourMembersOnTwoHostsThatAreAllNeeded) {
  ExpectNoProblem(TwoHosts({.initial = 4, .min = 4}));
}

TEST(JobMembershipModelTest, TwoMembersOnAHostBesideWhichAnotherMayCome) {
  ExpectNoProblem(OneHostOfTwo({.initial = 2, .min = 1}));
}

TEST(JobMembershipModelTest, TwoNeededMembersOnAHostBesideWhichAnotherMayCome) {
  ExpectNoProblem(OneHostOfTwo({.initial = 2, .min = 2}));
}

}  // namespace
}  // namespace ronda
