#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_AGENT_PART_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_AGENT_PART_H_

#include <functional>
#include <string>
#include <vector>

#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/output/console.h"
#include "runtime/launch/supervise/agent_message.h"
#include "runtime/launch/supervise/job_part.h"

namespace ronda {

// The ranks of one host, behind an agent that starts them there (RunAgent), and the program that leads to it, usually
// ssh.
//
// Thread-compatible.
class AgentPart final : public JobPart {
 public:
  // The first message of an agent.
  struct Hello {
    std::string address;  // of its host, numeric; empty: none
    int free_port = 0;
  };
  using OnHello = std::function<void(const Hello& hello)>;

  struct Options {
    ChildProcess::Options process;  // with Input::kPipe
    std::string host;
    std::string directory;             // in which the ranks work, if it exists there
    std::vector<std::string> command;  // of the ranks
    LaunchOptions::Binding binding = LaunchOptions::Binding::kNone;
  };

  // `on_hello` is called once, when the agent is there.
  AgentPart(Options options, std::vector<RankId> ranks, OnHello on_hello);

  // Has the agent start the ranks, with the variables that all of them get, and each its own, in the order of the
  // ranks. REQUIRES: the agent has said hello.
  void StartRanks(const std::vector<std::string>& common, const std::vector<std::vector<std::string>>& of_ranks);

  bool mixes_streams() const override { return true; }

  // Those that have not ended.
  std::vector<RankId> RunningRanks() const override { return running() ? ranks_ : std::vector<RankId>(); }

  // Those of which the agent has not said yet that they run.
  std::vector<AwaitedRank> AwaitedRanks() const override;

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;

  void Send(const AgentMessage& message) { input()->Append(Encode(message)); }
  void Take(const AgentMessage& message);
  void TakeHello(const AgentMessage& message);
  void TakeRankEnd(const AgentMessage& message);
  void TakeLine(absl::string_view line);
  void TakeRankStart(RankId rank, pid_t pid);
  bool IsOurs(RankId rank) const;

  // The agent breaks the protocol, or is of another version: the job cannot go on.
  void GiveUp(absl::string_view why);

  const std::string host_;
  const std::string directory_;
  const std::vector<std::string> command_;
  const LaunchOptions::Binding binding_;
  std::vector<RankId> ranks_;    // that have not ended
  std::vector<RankId> started_;  // that have begun
  const OnHello on_hello_;
  AgentMessageReader messages_{AgentMessageReader::Stream::kAgentsOutput};
  LineSplitter errors_;
  std::string last_line_;  // on stderr
  bool greeted_ = false;
  bool given_up_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_AGENT_PART_H_
