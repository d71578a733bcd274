// SPDX-License-Identifier: Apache-2.0

// The launcher of an elastic job inside a test: it assigns ranks to the members, as rondarun does, and gives the test
// their results.
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

// The result of a member.
struct MemberResult {
  int status = -1;                 // from waitpid()
  std::string output;              // on its standard output
  std::vector<JoinRequest> joins;  // the requests with which it has joined
};

// Members are identified by their numbers, in the order of their starts. Ranks are given in that order.
//
// The members of an epoch form the next one as soon as all of them that are alive and do not leave have joined. The
// launcher also waits for processes that it has started.
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

  // Runs the job until all members have ended. If no event happens for minutes, the test fails, and the members are
  // killed. Calls `on_met` with the number of members whenever all members of an epoch have met.
  void Run(const std::function<void(int size)>& on_met = {});

  void Kill(size_t member, int signal) const;

  // Tells all living members that the job has no place for them any more. EndAfter() tells this to members that join
  // after `epochs` epochs.
  void End(const std::string& reason) const;
  void EndAfter(size_t epochs, const std::string& reason) { last_ = {epochs, reason}; }

  // Closes the launcher's ends of all sockets, as if the launcher had died.
  void Vanish();

  // The living members of the current epoch, ascending.
  std::vector<size_t> Present() const;

  const std::vector<MemberResult>& results() const { return results_; }

  // The sizes of the epochs in which all members have met.
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
  // Assigns places to all members that have joined, if no other process is still expected. Otherwise announces the new
  // members to the others.
  void Decide();

  const std::vector<std::string> argv_;
  Environment environment_;
  std::vector<Member> members_;
  std::vector<MemberResult> results_;
  std::vector<int> sizes_;
  int64_t epoch_ = -1;
  int size_ = 0;
  int unmet_ = -1;  // members that have not reported that they have met the others; -1: all have, and the test knows
  bool is_change_told_ = false;
  std::optional<std::pair<size_t, std::string>> last_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_ELASTIC_LAUNCHER_H_
