// The launcher of an elastic job inside a test: it gives the members their places, as rondarun does, and tells the test
// what has become of them.
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

// What has become of a member.
struct MemberResult {
  int status = -1;                 // as waitpid() tells it
  std::string output;              // on its standard output
  std::vector<JoinRequest> joins;  // what it has told when it joined
};

// Members are known by their numbers, in the order of their starts. Ranks are given in that order.
//
// Members of an epoch meet anew as soon as all of them that are alive, and do not leave, have joined; processes that
// have been started are waited for.
//
// Thread-compatible.
class ElasticLauncher {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  // Its members run argv, with `environment` and a RONDA_JOB_ID of their own.
  explicit ElasticLauncher(std::vector<std::string> argv, Environment environment = {});
  ~ElasticLauncher();

  // Starts a member, and lets it in as soon as it has joined: `environment` is its own.
  void Start(const Environment& environment = {});

  // Leads the job until all members have ended; the test fails, and they are killed, if minutes pass without any event.
  // Calls `on_met` whenever all members of an epoch have met, with their number.
  void Run(const std::function<void(int size)>& on_met = {});

  void Kill(size_t member, int signal) const;

  // Tells all members that are alive that there is no place for them any more; or those that join after `epochs`
  // epochs.
  void End(const std::string& reason) const;
  void EndAfter(size_t epochs, const std::string& reason) { last_ = {epochs, reason}; }

  // Closes its ends of all sockets, as if it were gone.
  void Vanish();

  // Of the members of the present epoch that are alive, ascending.
  std::vector<size_t> Present() const;

  const std::vector<MemberResult>& results() const { return results_; }

  // Sizes of the epochs in which all members have met.
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
  void NoteEnd(size_t member);
  void Tell(size_t member, const LauncherMessage& message) const;
  // Places for all that have joined, if nobody else is to come; else the others hear of newcomers.
  void Decide();

  const std::vector<std::string> argv_;
  Environment environment_;
  std::vector<Member> members_;
  std::vector<MemberResult> results_;
  std::vector<int> sizes_;
  int64_t epoch_ = -1;
  int size_ = 0;
  int unmet_ = -1;  // members of the epoch that have not said that they have met; -1 once all have, and the test knows
  bool is_change_told_ = false;
  std::optional<std::pair<size_t, std::string>> last_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_ELASTIC_LAUNCHER_H_
