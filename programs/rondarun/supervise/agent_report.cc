// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/agent_report.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/version.h"

namespace ronda {

using Kind = AgentMessage::Kind;

void AgentReport::SayHello(const std::string& address, const FreePorts& ports) {
  queue_->Append(kAgentGreeting);
  Send({.kind = Kind::kHello, .numbers = {ports.free, ports.store}, .texts = {kVersion, address}});
}

void AgentReport::OnRankStart(RankId rank, pid_t pid, const std::string&) {
  Send({.kind = Kind::kRankStart, .numbers = {rank, pid}, .texts = {}});
}

void AgentReport::OnOutput(RankId rank, Stream stream, absl::string_view bytes) {
  Send({.kind = Kind::kOutput, .numbers = {rank, static_cast<int>(stream)}, .texts = {std::string(bytes)}});
}

void AgentReport::OnOutputEnd(RankId rank, Stream stream) {
  Send({.kind = Kind::kOutputEnd, .numbers = {rank, static_cast<int>(stream)}, .texts = {}});
}

void AgentReport::OnRankEnd(RankEnd end) {
  if (before_ends_) before_ends_(end.rank);
  const int told = end.cause == RankEnd::Cause::kLauncher ? 1 : 0;
  Send({.kind = Kind::kRankEnd,
        .numbers = {end.rank, end.pid, end.exit_code, end.signal, told, end.oom_kills.of_host, end.oom_kills.of_group},
        .texts = {end.last_error}});
}

void AgentReport::OnHelperLine(absl::string_view helper, absl::string_view line) {
  Say(absl::StrCat(helper, ": ", line));
}

void AgentReport::OnJobFailure(absl::string_view what, int exit_code) {
  Send({.kind = Kind::kFailure, .numbers = {exit_code}, .texts = {std::string(what)}});
}

void AgentReport::Say(absl::string_view text) {
  Send({.kind = Kind::kText, .numbers = {}, .texts = {std::string(text)}});
}

}  // namespace ronda
