// SPDX-License-Identifier: Apache-2.0

// A launcher of elastic jobs that runs inside a test. It assigns ranks to the members, as rondarun does, and records
// what each member did.
#ifndef RONDA_TESTS_TESTING_ELASTIC_LAUNCHER_H_
#define RONDA_TESTS_TESTING_ELASTIC_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "runtime/elastic/membership_message.h"
#include "tests/testing/commanded_process.h"

namespace ronda::testing {

// What a member printed, requested and returned.
struct MemberResult {
  int status = -1;                 // from waitpid()
  std::string output;              // on its standard output
  std::vector<JoinRequest> joins;  // its requests to join
};

// Members are numbered in the order in which they start, and get ranks in the same order.
//
// The next epoch begins as soon as every member has joined it, except members that have ended or are leaving. The
// launcher also waits for the members that it has just started.
//
// Thread-compatible.
class ElasticLauncher {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  // The members run argv, with `environment` and a RONDA_JOB_ID that no other job has.
  explicit ElasticLauncher(std::vector<std::string> argv, Environment environment = {});
  ~ElasticLauncher();

  // Starts a member, and admits it as soon as it has joined. Only this member gets `environment`.
  void Start(const Environment& environment = {});

  // Runs the job until all members have ended. If nothing happens for four minutes, fails the test and kills the
  // members. Calls `on_met` with the number of members whenever all members of an epoch have met.
  void Run(const std::function<void(int size)>& on_met = {});

  void Kill(size_t member, int signal) const;

  // End() tells all living members that the job needs no more members. EndAfter() makes the launcher refuse members
  // that join after `epochs` epochs.
  void End(const std::string& reason) const;
  void EndAfter(size_t epochs, const std::string& reason) { last_ = {epochs, reason}; }

  // Closes all sockets of the launcher, as if the launcher had died.
  void Vanish();

  // Returns the numbers of the living members of the current epoch in ascending order.
  std::vector<size_t> Present() const;

  const std::vector<MemberResult>& results() const { return results_; }

  // Returns the sizes of the epochs in which all members have met.
  const std::vector<int>& sizes() const { return sizes_; }

 private:
  enum class Stage { kStarting, kJoined, kPlaced, kMet, kLeaving, kEnded };

  struct Member {
    std::unique_ptr<CommandedProcess> process;
    UniqueFd socket;
    UniqueFd pidfd;
    Stage stage = Stage::kStarting;
  };

  bool Is(Stage stage) const;
  void WaitForEvents();
  void Listen(size_t member);
  void RecordEnd(size_t member);
  void Tell(size_t member, const LauncherMessage& message) const;
  // If all expected members have joined, assigns ranks to them. If an expected member is missing, tells the members of
  // the current epoch that new members wait.
  void Decide();

  const std::vector<std::string> argv_;
  Environment environment_;
  std::vector<Member> members_;
  std::vector<MemberResult> results_;
  std::vector<int> sizes_;
  int64_t epoch_ = -1;
  int size_ = 0;
  int unmet_ = -1;  // members that have not met the others yet; -1: all have, and the test has been told
  bool is_change_told_ = false;
  std::optional<std::pair<size_t, std::string>> last_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_ELASTIC_LAUNCHER_H_
