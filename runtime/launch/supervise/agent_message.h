// The messages between rondarun and its agents on other hosts, over the agents' stdin and stdout.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_AGENT_MESSAGE_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_AGENT_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ronda {

struct AgentMessage {
  enum class Kind : uint8_t {
    // To the agent. kJob: number is the LaunchOptions::Binding, texts are the working directory and the host's name;
    // kVariables: "NAME=value" for
    // all ranks; kCommand: the command; kRank: number is a rank of this host, texts its own variables; kGo: start them;
    // kSignal: number is the signal they are to get.
    kJob,
    kVariables,
    kCommand,
    kRank,
    kGo,
    kSignal,
    // From the agent. kHello: numbers are a free port, texts Ronda's version and an address of the host (empty: none);
    // kRankStart: rank, pid; kOutput: rank, stream, text; kOutputEnd: rank, stream; kRankEnd: rank, pid, exit code,
    // signal, 1 if it was told to end; kText: a line; kFailure: exit code, text.
    kHello,
    kRankStart,
    kOutput,
    kOutputEnd,
    kRankEnd,
    kText,
    kFailure,
  };

  Kind kind = Kind::kGo;
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;

  // 0 and "" where there are not so many.
  int64_t number(size_t index) const { return index < numbers.size() ? numbers[index] : 0; }
  const std::string& text(size_t index) const;

  bool operator==(const AgentMessage&) const = default;
};

// The agent's first line: lines that a host prints before it (at login, say) are none of the agent's.
inline constexpr absl::string_view kAgentGreeting = "\nronda-agent\n";

std::string Encode(const AgentMessage& message);

// Puts messages together from the bytes of a stream. Thread-compatible.
class AgentMessageReader {
 public:
  // kAgentsOutput: messages begin behind kAgentGreeting.
  enum class Stream { kMessages, kAgentsOutput };

  explicit AgentMessageReader(Stream stream) : greeted_(stream == Stream::kMessages) {}

  // Takes the next bytes, and emits the messages that they complete.
  // Errors: INVALID_ARGUMENT for bytes that Encode does not make; nothing more can be read then.
  absl::Status Feed(absl::string_view bytes, absl::FunctionRef<void(AgentMessage)> emit);

  // The bytes before the greeting, until that comes.
  absl::string_view preface() const { return greeted_ ? absl::string_view() : absl::string_view(bytes_); }

 private:
  bool SkipPreface();

  std::string bytes_;
  bool greeted_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_AGENT_MESSAGE_H_
