// SPDX-License-Identifier: Apache-2.0

// The messages between a launcher and its agents on other hosts, over the agents' stdin and stdout. Also contains the
// launcher's side of these connections.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_AGENT_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_AGENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/output/console.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/members.h"

namespace ronda {

// A message to or from an agent.
struct AgentMessage {
  enum class Kind : uint8_t {
    // Messages to the agent (their numbers; their texts):
    //   kJob           the LaunchOptions::Binding; the working directory, the host's name
    //   kVariables     "NAME=value" for all ranks
    //   kCommand       the command
    //   kRank          a rank of this host; its own variables
    //   kGo            start the ranks
    //   kSignal        the signal to send to the ranks
    kJob,
    kVariables,
    kCommand,
    kRank,
    kGo,
    kSignal,
    // Messages to the agent in an elastic job, which has no kRank:
    //   kMembers       SignsOfLife in milliseconds, 0 for never; the job's id
    //   kMember        start a member: its number, its slot, the slots of the host
    //   kMemberSignal  member, signal
    kMembers,
    kMember,
    kMemberSignal,
    // Tells a node, which is not a child of the launcher, that the job has ended, with the job's exit code and the
    // reason.
    kEnd,
    // Tells a node that is numbered by arrival what its number is.
    kNodeNumber,
    // Messages from the agent:
    //   kHello         two free ports; Ronda's version, an address of the host (empty: none)
    //   kRankStart     rank, pid
    //   kOutput        rank, stream; text
    //   kOutputEnd     rank, stream
    //   kRankEnd       rank, pid, exit code, signal, 1 if the launcher had sent it a signal, the OomKills;
    //                  the error that the rank has written (ErrorFile)
    //   kText          a line
    //   kFailure       exit code; text
    kHello,
    kRankStart,
    kOutput,
    kOutputEnd,
    kRankEnd,
    kText,
    kFailure,
    // Messages from the agent about members:
    //   kNotStarted    member, exit code; reason
    //   kMisbehaviour  member; reason
    //   kMotion        member, 1 if it has stopped and 0 if it has continued
    kNotStarted,
    kMisbehaviour,
    kMotion,
    // Messages in both directions:
    //   kMemberMessage member, and from the agent a port of its host that is free now; text
    //   kAlive         a sign of life, in an elastic job
    kMemberMessage,
    kAlive,
  };

  Kind kind = Kind::kGo;
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;

  // Return the number or text at `index`, or 0 or "" if the message has none there.
  int64_t number(size_t index) const { return index < numbers.size() ? numbers[index] : 0; }
  const std::string& text(size_t index) const;

  bool operator==(const AgentMessage&) const = default;
};

// The first line that an agent prints. The host may print other lines before it, for example at login.
inline constexpr absl::string_view kAgentGreeting = "\nronda-agent\n";

std::string Encode(const AgentMessage& message);

// Decodes the messages in a byte stream. Thread-compatible.
class AgentMessageReader {
 public:
  // kAgentsOutput: the messages start after kAgentGreeting, before which the host may print other bytes.
  enum class Stream { kMessages, kAgentsOutput };

  explicit AgentMessageReader(Stream stream) : greeted_(stream == Stream::kMessages) {}

  // Adds the next bytes, and emits each message that is now complete. Errors: INVALID_ARGUMENT for bytes that Encode
  // cannot have produced. After an error, the reader cannot decode any more messages.
  absl::Status Feed(absl::string_view bytes, absl::FunctionRef<void(AgentMessage)> emit);

  // Until the greeting has arrived, returns all bytes received so far. Afterwards, returns "".
  absl::string_view preface() const { return greeted_ ? absl::string_view() : absl::string_view(bytes_); }

 private:
  bool SkipPreface();

  std::string bytes_;
  bool greeted_;
};

// Receives the events of members that run on an agent's host.
class AgentListener : public MemberListener {
 public:
  // Reports a `port` of the agent's host on which no program is listening now. Called before each OnMessage.
  virtual void OnFreePort(int port) = 0;
  // The process of the member could not be started; `why` completes a sentence that starts with "member 3 ".
  virtual void OnNotStarted(int member, int exit_code, absl::string_view why) = 0;
  // The connection to the agent has ended. The exits of the agent's members are reported after this call.
  virtual void OnGone(absl::string_view why) = 0;
};

// The ranks on one host, and the child process through which the launcher reaches them. This process is usually ssh,
// and leads to an agent that starts the ranks on the host (RunAgent). In an elastic job, the ranks are members that
// come and go. Losing the agent then does not end the job.
//
// Thread-compatible.
class AgentPart final : public JobPart {
 public:
  // An agent's first message.
  struct Hello {
    std::string address;  // of its host, numeric; empty: none
    int free_port = 0;
    int store_port = 0;  // different from free_port
  };
  using OnHello = std::function<void(const Hello& hello)>;

  struct Options {
    ChildProcess::Options process;  // with Input::kPipe
    std::string host;
    std::string directory;             // the ranks' working directory, if it exists there
    std::vector<std::string> command;  // of the ranks
    LaunchOptions::Binding binding = LaunchOptions::Binding::kNone;
    AgentListener* members = nullptr;  // of an elastic job, which outlives this; nullptr: the job keeps its ranks
  };

  // `on_hello` is called once, when the agent has sent its hello.
  AgentPart(Options options, std::vector<RankId> ranks, OnHello on_hello);

  // Orders the agent to start the ranks. `common` are the variables of all ranks; `of_ranks` are the variables of the
  // individual ranks, in rank order. REQUIRES: the agent has sent its hello.
  void StartRanks(const std::vector<std::string>& common, const std::vector<std::vector<std::string>>& of_ranks);

  // Orders the agent to supervise the members of an elastic job. `common` are the variables of all members. The agent
  // sends a sign of life every `period`. If it receives nothing for `timeout`, it ends its members and itself.
  // REQUIRES: the agent has sent its hello.
  struct SignsOfLife {
    absl::Duration period = absl::Seconds(1);
    absl::Duration timeout = absl::Seconds(60);
  };
  void StartMembers(const std::vector<std::string>& common, const std::string& job_id, const SignsOfLife& signs);

  // The following functions are for the members of an elastic job. Their messages are held back until the agent has
  // sent its hello.
  void StartMember(int member, int slot, int slots);
  void SendToMember(int member, absl::string_view text);
  void SignalMember(int member, int signo);
  void SendSignOfLife() { SendOnceGreeted({.kind = AgentMessage::Kind::kAlive, .numbers = {}, .texts = {}}); }

  // Treats the agent and its members as lost.
  void Abandon(absl::string_view why);

  bool is_greeted() const { return greeted_; }
  // Returns how many bytes have been received from the agent.
  uint64_t bytes_heard() const { return bytes_heard_; }

  bool carries_job() const override { return members_ == nullptr || !ranks_.empty(); }

  bool mixes_streams() const override { return true; }

  // Returns the ranks that have not ended.
  std::vector<RankId> RunningRanks() const override { return running() ? ranks_ : std::vector<RankId>(); }

  // Returns the ranks whose start has not been reported by the agent.
  std::vector<AwaitedRank> AwaitedRanks() const override;

 private:
  void OnStart() override {}
  void OnBytes(Stream stream, absl::string_view bytes) override;
  void OnBytesEnd(Stream stream) override;
  void OnEnd(const ChildProcess::End& end) override;
  void Pass(int signo) override;
  void SetMotion(int signo) override;

  void Send(const AgentMessage& message) { input()->Append(Encode(message)); }
  void SendOnceGreeted(const AgentMessage& message);
  void SendJob(const std::vector<std::string>& common);
  void Receive(const AgentMessage& message);
  void ReceiveMemberMessage(const AgentMessage& message);
  void ReceiveHello(const AgentMessage& message);
  void ReceiveRankEnd(const AgentMessage& message);
  void ReceiveLine(absl::string_view line);
  void ReceiveRankStart(RankId rank, pid_t pid);
  bool IsOurs(RankId rank) const;
  void LoseRanks(const std::string& why);

  // Gives up on an agent that violates the protocol or is of another version. This also fails the job, unless the job
  // is elastic.
  void GiveUp(absl::string_view why);

  const std::string host_;
  const std::string directory_;
  const std::vector<std::string> command_;
  const LaunchOptions::Binding binding_;
  std::vector<RankId> ranks_;    // that have not ended
  std::vector<RankId> started_;  // that have begun
  const OnHello on_hello_;
  AgentListener* const members_;
  AgentMessageReader messages_{AgentMessageReader::Stream::kAgentsOutput};
  LineSplitter errors_;
  std::string last_line_;  // on stderr
  std::string held_;       // messages for the agent until its hello
  std::string abandoned_;  // the reason; empty: it is not abandoned
  uint64_t bytes_heard_ = 0;
  bool greeted_ = false;
  bool given_up_ = false;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_AGENT_H_
