// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/agent.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/options/hosts.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

// The maximum size of a message to or from an agent. No environment or command line is that long.
constexpr uint64_t kMaxLength = uint64_t{64} << 20;
constexpr size_t kLengthSize = 8;

// Appends `number` in little-endian byte order.
void AppendNumber(uint64_t number, std::string* out) {
  for (size_t i = 0; i < 8; ++i) out->push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t DecodeNumber(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return number;
}

// Reads successive numbers and texts from bytes that may be invalid.
class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  std::optional<uint64_t> Number() {
    if (bytes_.size() < 8) return std::nullopt;
    const uint64_t number = DecodeNumber(bytes_);
    bytes_.remove_prefix(8);
    return number;
  }

  std::optional<std::string> Text() {
    const std::optional<uint64_t> size = Number();
    if (!size || *size > bytes_.size()) return std::nullopt;
    std::string text(bytes_.substr(0, *size));
    bytes_.remove_prefix(*size);
    return text;
  }

  bool at_end() const { return bytes_.empty(); }

 private:
  absl::string_view bytes_;
};

std::optional<AgentMessage> Decode(absl::string_view bytes) {
  Cursor cursor(bytes);
  AgentMessage message;
  const std::optional<uint64_t> kind = cursor.Number();
  if (!kind || *kind > static_cast<uint64_t>(AgentMessage::Kind::kAlive)) return std::nullopt;
  message.kind = static_cast<AgentMessage::Kind>(*kind);
  const std::optional<uint64_t> numbers = cursor.Number();
  for (uint64_t i = 0; i < numbers.value_or(0); ++i) {
    const std::optional<uint64_t> number = cursor.Number();
    if (!number) return std::nullopt;
    message.numbers.push_back(static_cast<int64_t>(*number));
  }
  while (!cursor.at_end()) {
    std::optional<std::string> text = cursor.Text();
    if (!text) return std::nullopt;
    message.texts.push_back(*std::move(text));
  }
  return numbers ? std::optional<AgentMessage>(std::move(message)) : std::nullopt;
}

}  // namespace

const std::string& AgentMessage::text(size_t index) const {
  static const std::string kNone;
  return index < texts.size() ? texts[index] : kNone;
}

std::string Encode(const AgentMessage& message) {
  std::string body;
  AppendNumber(static_cast<uint64_t>(message.kind), &body);
  AppendNumber(message.numbers.size(), &body);
  for (const int64_t number : message.numbers) AppendNumber(static_cast<uint64_t>(number), &body);
  for (const std::string& text : message.texts) {
    AppendNumber(text.size(), &body);
    body += text;
  }
  std::string encoded;
  AppendNumber(body.size(), &encoded);
  return encoded + body;
}

bool AgentMessageReader::SkipPreface() {
  if (greeted_) return true;
  const size_t at = bytes_.find(kAgentGreeting.data(), 0, kAgentGreeting.size());
  if (at == std::string::npos) return false;
  bytes_.erase(0, at + kAgentGreeting.size());
  greeted_ = true;
  return true;
}

absl::Status AgentMessageReader::Feed(absl::string_view bytes, absl::FunctionRef<void(AgentMessage)> emit) {
  bytes_.append(bytes.data(), bytes.size());
  if (!SkipPreface()) {
    return bytes_.size() < kMaxLength ? absl::OkStatus() : absl::InvalidArgumentError("no agent answers");
  }
  size_t begin = 0;
  while (bytes_.size() - begin >= kLengthSize) {
    const uint64_t length = DecodeNumber(absl::string_view(bytes_).substr(begin));
    if (length > kMaxLength) return absl::InvalidArgumentError("a message of the agent is too long");
    if (bytes_.size() - begin - kLengthSize < length) break;
    auto message = Decode(absl::string_view(bytes_).substr(begin + kLengthSize, length));
    if (!message) return absl::InvalidArgumentError("a message of the agent makes no sense");
    begin += kLengthSize + length;
    emit(*std::move(message));
  }
  bytes_.erase(0, begin);
  return absl::OkStatus();
}

using Kind = AgentMessage::Kind;

AgentPart::AgentPart(Options options, std::vector<RankId> ranks, OnHello on_hello)
    : JobPart(std::move(options.process)),
      host_(std::move(options.host)),
      directory_(std::move(options.directory)),
      command_(std::move(options.command)),
      binding_(options.binding),
      ranks_(std::move(ranks)),
      on_hello_(std::move(on_hello)),
      members_(options.members) {}

void AgentPart::SendJob(const std::vector<std::string>& common) {
  Send({.kind = Kind::kJob, .numbers = {static_cast<int>(binding_)}, .texts = {directory_, host_}});
  Send({.kind = Kind::kVariables, .numbers = {}, .texts = common});
  Send({.kind = Kind::kCommand, .numbers = {}, .texts = command_});
}

void AgentPart::StartRanks(const std::vector<std::string>& common,
                           const std::vector<std::vector<std::string>>& of_ranks) {
  SendJob(common);
  for (size_t i = 0; i < of_ranks.size(); ++i) {
    Send({.kind = Kind::kRank, .numbers = {ranks_[i]}, .texts = of_ranks[i]});
  }
  Send({.kind = Kind::kGo, .numbers = {}, .texts = {}});
}

void AgentPart::StartMembers(const std::vector<std::string>& common, const std::string& job_id,
                             const SignsOfLife& signs) {
  const auto milliseconds = [](absl::Duration time) {
    return time == absl::InfiniteDuration() ? 0 : absl::ToInt64Milliseconds(time);
  };
  SendJob(common);
  Send({.kind = Kind::kMembers,
        .numbers = {milliseconds(signs.period), milliseconds(signs.timeout)},
        .texts = {job_id}});
  Send({.kind = Kind::kGo, .numbers = {}, .texts = {}});
}

void AgentPart::SendOnceGreeted(const AgentMessage& message) {
  if (greeted_) {
    Send(message);
  } else {
    held_ += Encode(message);
  }
}

void AgentPart::StartMember(int member, int slot, int slots) {
  ranks_.push_back(member);
  SendOnceGreeted({.kind = Kind::kMember, .numbers = {member, slot, slots}, .texts = {}});
}

void AgentPart::SendToMember(int member, absl::string_view text) {
  SendOnceGreeted({.kind = Kind::kMemberMessage, .numbers = {member}, .texts = {std::string(text)}});
}

void AgentPart::SignalMember(int member, int signo) {
  SendOnceGreeted({.kind = Kind::kMemberSignal, .numbers = {member, signo}, .texts = {}});
}

void AgentPart::Abandon(absl::string_view why) {
  if (abandoned_.empty()) abandoned_ = std::string(why);
  process().SignalGroup(SIGKILL);
}

void AgentPart::OnBytes(Stream stream, absl::string_view bytes) {
  bytes_heard_ += bytes.size();
  if (stream == Stream::kStderr) {
    errors_.Feed(bytes, [this](absl::string_view line) { ReceiveLine(line); });
    return;
  }
  if (given_up_) return;
  const absl::Status status = messages_.Feed(bytes, [this](const AgentMessage& message) { Receive(message); });
  if (!status.ok()) GiveUp(status.message());
}

void AgentPart::OnBytesEnd(Stream stream) {
  if (stream == Stream::kStderr) errors_.Finish([this](absl::string_view line) { ReceiveLine(line); });
}

void AgentPart::ReceiveLine(absl::string_view line) {
  if (!line.empty()) last_line_ = std::string(line);
  listener().OnHelperLine(absl::StrCat("host ", host_), line);
}

bool AgentPart::IsOurs(RankId rank) const { return std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end(); }

void AgentPart::Receive(const AgentMessage& message) {
  const auto rank = static_cast<RankId>(message.number(0));
  const auto stream = message.number(1) == 0 ? Stream::kStdout : Stream::kStderr;
  switch (message.kind) {
    case Kind::kHello:
      return ReceiveHello(message);
    case Kind::kRankStart:
      return ReceiveRankStart(rank, static_cast<pid_t>(message.number(1)));
    case Kind::kOutput:
      if (IsOurs(rank)) listener().OnOutput(rank, stream, message.text(0));
      return;
    case Kind::kOutputEnd:
      if (IsOurs(rank)) listener().OnOutputEnd(rank, stream);
      return;
    case Kind::kRankEnd:
      return ReceiveRankEnd(message);
    case Kind::kText:
      return listener().OnHelperLine(absl::StrCat("host ", host_), message.text(0));
    case Kind::kFailure:
      if (members_ != nullptr) return Abandon(message.text(0));
      return listener().OnJobFailure(absl::StrCat("host ", host_, ": ", message.text(0)),
                                     static_cast<int>(message.number(0)));
    case Kind::kNotStarted:
    case Kind::kMisbehaviour:
    case Kind::kMotion:
    case Kind::kMemberMessage:
    case Kind::kAlive:
      if (members_ != nullptr && (IsOurs(rank) || message.kind == Kind::kAlive)) ReceiveMemberMessage(message);
      return;
    case Kind::kJob:
    case Kind::kVariables:
    case Kind::kCommand:
    case Kind::kRank:
    case Kind::kGo:
    case Kind::kSignal:
    case Kind::kMembers:
    case Kind::kMember:
    case Kind::kMemberSignal:
    case Kind::kEnd:
    case Kind::kNodeNumber:
      return GiveUp("its agent says what only the launcher says");
  }
}

void AgentPart::ReceiveMemberMessage(const AgentMessage& message) {
  const int member = static_cast<int>(message.number(0));
  switch (message.kind) {
    case Kind::kNotStarted:
      ranks_.erase(std::find(ranks_.begin(), ranks_.end(), member));
      return members_->OnNotStarted(member, static_cast<int>(message.number(1)), message.text(0));
    case Kind::kMisbehaviour:
      return members_->OnMisbehaviour(member, message.text(0));
    case Kind::kMotion:
      return members_->OnMotion(
          member, message.number(1) != 0 ? MemberListener::Motion::kStopped : MemberListener::Motion::kGoesOn);
    case Kind::kMemberMessage:
      members_->OnFreePort(static_cast<int>(message.number(1)));
      return members_->OnMessage(member, message.text(0));
    default:
      return;
  }
}

std::vector<AwaitedRank> AgentPart::AwaitedRanks() const {
  std::vector<AwaitedRank> awaited;
  for (const RankId rank : ranks_) {
    if (std::find(started_.begin(), started_.end(), rank) == started_.end()) {
      awaited.push_back({.rank = rank, .host = host_});
    }
  }
  return awaited;
}

void AgentPart::ReceiveRankStart(RankId rank, pid_t pid) {
  if (!IsOurs(rank)) return;
  started_.push_back(rank);
  listener().OnRankStart(rank, pid, host_);
}

void AgentPart::ReceiveHello(const AgentMessage& message) {
  if (message.text(0) != kVersion) {
    GiveUp(absl::StrCat("its rondarun is of Ronda ", message.text(0), ", this one of ", kVersion));
    return;
  }
  if (std::exchange(greeted_, true)) return;
  on_hello_({.address = message.text(1),
             .free_port = static_cast<int>(message.number(0)),
             .store_port = static_cast<int>(message.number(1))});
  if (!held_.empty()) input()->Append(std::exchange(held_, {}));
}

void AgentPart::ReceiveRankEnd(const AgentMessage& message) {
  const auto rank = static_cast<RankId>(message.number(0));
  if (!IsOurs(rank)) return;
  ranks_.erase(std::find(ranks_.begin(), ranks_.end(), rank));
  std::erase(started_, rank);
  const bool told = message.number(4) != 0;
  listener().OnRankEnd({.rank = rank,
                        .pid = static_cast<pid_t>(message.number(1)),
                        .host = host_,
                        .exit_code = static_cast<int>(message.number(2)),
                        .signal = static_cast<int>(message.number(3)),
                        .cause = told ? RankEnd::Cause::kLauncher : RankEnd::Cause::kItself,
                        .last_error = message.text(0),
                        .oom_kills = {.of_host = message.number(5), .of_group = message.number(6)}});
}

void AgentPart::GiveUp(absl::string_view why) {
  given_up_ = true;
  if (members_ != nullptr) return Abandon(why);
  listener().OnJobFailure(absl::StrCat("host ", host_, ": ", why), 1);
}

void AgentPart::OnEnd(const ChildProcess::End& end) {
  const RankEnd own = {.exit_code = end.exit_code, .signal = end.signal};
  std::string what = absl::StrCat("the connection to its agent ", DescribeEnd(own));
  if (!last_line_.empty()) absl::StrAppend(&what, " (", last_line_, ")");
  if (members_ != nullptr) {
    members_->OnGone(abandoned_.empty() ? what : abandoned_);
    return LoseRanks("its host is lost");
  }
  const bool has_reported_all = greeted_ && ranks_.empty();
  if (!given_up_ && cause() == RankEnd::Cause::kItself && (has_reported_all ? own.failed() : !greeted_)) {
    if (!greeted_) {
      const HostSlots host = {.host = host_, .slots = static_cast<int>(ranks_.size())};
      absl::StrAppend(&what, "; rondarun --check -H ", FormatHosts({host}), " tells more");
    }
    listener().OnJobFailure(absl::StrCat("host ", host_, ": ", what), 1);
    return;
  }
  LoseRanks(what);
}

void AgentPart::LoseRanks(const std::string& why) {
  for (const RankId rank : std::exchange(ranks_, {})) {
    // A member that has not started has no output.
    const bool has_output = members_ == nullptr || std::find(started_.begin(), started_.end(), rank) != started_.end();
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      if (has_output) listener().OnOutputEnd(rank, stream);
    }
    // The loss of a host is reported once, not again for each member.
    const RankEnd::Cause told = members_ == nullptr ? cause() : RankEnd::Cause::kLauncher;
    listener().OnRankEnd({.rank = rank, .host = host_, .cause = told, .lost = why});
  }
}

// Stops the ranks on SIGTSTP, or lets them continue. Before the agent's hello, no rank has started, so there is nothing
// to send.
void AgentPart::SetMotion(int signo) {
  if (greeted_) Send({.kind = Kind::kSignal, .numbers = {signo}, .texts = {}});
}

void AgentPart::Pass(int signo) {
  if (signo == SIGKILL || !greeted_) {
    // An agent kills its ranks when its input ends. Kill the process that leads to the agent, because the host may not
    // respond.
    process().SignalGroup(SIGKILL);
  } else {
    Send({.kind = Kind::kSignal, .numbers = {signo}, .texts = {}});
  }
}

}  // namespace ronda
