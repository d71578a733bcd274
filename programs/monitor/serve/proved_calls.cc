// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/proved_calls.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "programs/monitor/serve/host_report.h"
#include "proto/ronda/v1/monitor.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/net/message_streams.h"

namespace ronda {
namespace {

constexpr char kGetSamples[] = "/ronda.v1.MonitorService/GetSamples";
constexpr absl::string_view kReading[] = {"/ronda.v1.MonitorService/GetJobs", "/ronda.v1.MonitorService/Explain",
                                          kGetSamples};

constexpr absl::string_view kCallersPurpose = "ronda.v1.MonitorService";
constexpr absl::string_view kMonitorsPurpose = "ronda.v1.MonitorService.Samples";

constexpr absl::Duration kTimeout = absl::Seconds(2);
// The number of round trips to compare. The shortest one is the time that the network takes. During a longer one, some
// thread has also waited for a core.
constexpr size_t kRoundTrips = 5;

template <typename Message>
absl::StatusOr<Message> Parsed(absl::string_view bytes) {
  Message message;
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return message;
  return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are no ", message.GetTypeName()));
}

}  // namespace

absl::StatusOr<std::string> ProvedCalls::Challenge() {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  v1::MonitorChallengeResponse response;
  response.set_nonce(nonce);
  MutexLock lock(&mu_);
  nonces_.Issue(std::move(nonce));
  return response.SerializeAsString();
}

absl::StatusOr<std::string> ProvedCalls::Answer(absl::string_view method, absl::string_view request) {
  if (method == kMonitorChallenge) return Challenge();
  if (std::find(std::begin(kReading), std::end(kReading), method) == std::end(kReading)) {
    return absl::PermissionDeniedError(
        absl::StrCat(method, " is not for callers over a network: use the socket of the job's user"));
  }
  // The proof has the same field number in every request type. So any request can be decoded as a GetSamplesRequest to
  // obtain its proof.
  RONDA_ASSIGN_OR_RETURN(const auto proved, Parsed<v1::GetSamplesRequest>(request));
  const v1::CallProof& proof = proved.proof();
  bool is_fresh = false;
  {
    MutexLock lock(&mu_);
    is_fresh = nonces_.Consume(proof.nonce());
  }
  if (!is_fresh) {
    return absl::UnauthenticatedError(
        "the call has no proof, or one with a nonce that is unknown or used up: call Challenge before each");
  }
  if (!IsSameProof(proof.proof(), SecretProof(secret_, {kCallersPurpose, proof.nonce(), method}))) {
    return absl::PermissionDeniedError("the proof is not of this job's secret");
  }
  RONDA_ASSIGN_OR_RETURN(std::string answer, service_->Answer(method, request));
  if (method != kGetSamples) return answer;
  RONDA_ASSIGN_OR_RETURN(auto samples, Parsed<v1::GetSamplesResponse>(answer));
  samples.set_proof(SecretProof(secret_, {kMonitorsPurpose, proof.own_nonce(), samples.report()}));
  return samples.SerializeAsString();
}

absl::StatusOr<OtherHost> AskForRanks(const std::string& job, const std::string& secret, MonitorCaller call) {
  RONDA_ASSIGN_OR_RETURN(const std::string challenged, call(kMonitorChallenge, ""));
  RONDA_ASSIGN_OR_RETURN(const auto challenge, Parsed<v1::MonitorChallengeResponse>(challenged));
  RONDA_ASSIGN_OR_RETURN(const std::string nonce, RandomBytes(kNonceBytes));
  v1::GetSamplesRequest request;
  request.set_job(job);
  request.mutable_proof()->set_nonce(challenge.nonce());
  request.mutable_proof()->set_proof(SecretProof(secret, {kCallersPurpose, challenge.nonce(), kGetSamples}));
  request.mutable_proof()->set_own_nonce(nonce);
  const FlightTime asked = FlightNow();
  RONDA_ASSIGN_OR_RETURN(const std::string answered, call(kGetSamples, request.SerializeAsString()));
  const FlightTime now = FlightNow();
  RONDA_ASSIGN_OR_RETURN(const auto answer, Parsed<v1::GetSamplesResponse>(answered));
  if (!IsSameProof(answer.proof(), SecretProof(secret, {kMonitorsPurpose, nonce, answer.report()}))) {
    return absl::PermissionDeniedError("the monitor there has another job's secret");
  }
  RONDA_ASSIGN_OR_RETURN(OtherHost host, DecodeHostReport(answer.report(), {.asked = asked, .answered = now}));
  host.round_trip = now - asked;
  return host;
}

// The connection to the other monitor.
class OtherMonitor::Line {
 public:
  explicit Line(std::unique_ptr<MessageChannel> channel) : channel_(std::move(channel)) {}

  absl::StatusOr<std::string> Call(const std::string& method, const std::string& request) const {
    return CallOnce(channel_->Call(method, MessageChannel::Absent::kIsAnError, kTimeout), request);
  }

 private:
  const std::unique_ptr<MessageChannel> channel_;
};

absl::StatusOr<std::unique_ptr<OtherMonitor>> OtherMonitor::Start(Options options) {
  RONDA_ASSIGN_OR_RETURN(auto channel, MessageChannel::Connect(options.plugin, options.endpoint, {}));
  auto line = std::make_unique<Line>(std::move(channel));
  return std::unique_ptr<OtherMonitor>(new OtherMonitor(std::move(options), std::move(line)));
}

OtherMonitor::OtherMonitor(Options options, std::unique_ptr<Line> line)
    : options_(std::move(options)),
      line_(std::move(line)),
      heard_(absl::UnavailableError("it has not answered yet")),
      thread_([this] { Run(); }) {}

OtherMonitor::~OtherMonitor() {
  {
    MutexLock lock(&mu_);
    is_over_ = true;
    ends_.NotifyAll();
  }
  thread_.join();
}

void OtherMonitor::Run() {
  while (true) {
    RecordAnswer(AskForRanks(
        options_.job, options_.secret,
        [this](const std::string& method, const std::string& request) { return line_->Call(method, request); }));
    MutexLock lock(&mu_);
    if (!is_over_) ends_.WaitFor(&mu_, options_.period);
    if (is_over_) return;
  }
}

void OtherMonitor::RecordAnswer(absl::StatusOr<OtherHost> answer) {
  if (answer.ok()) {
    answer->address = ToString(options_.endpoint);
    round_trips_.push_back(answer->round_trip);
    if (round_trips_.size() > kRoundTrips) round_trips_.erase(round_trips_.begin());
    answer->round_trip = *std::min_element(round_trips_.begin(), round_trips_.end());
  }
  MutexLock lock(&mu_);
  // While the other host cannot be reached, its last answer remains valid. A refusal replaces the answer, because the
  // user can do something about it.
  if (answer.ok() || !heard_.ok() || absl::IsPermissionDenied(answer.status())) heard_ = std::move(answer);
}

}  // namespace ronda
