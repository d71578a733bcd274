// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/grpc_rendezvous.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/loopback_users.h"
#include "runtime/net/message_streams.h"
#include "runtime/net/served_call.h"
#include "runtime/net/sockets.h"
#include "runtime/rendezvous/rendezvous_codec.h"
#include "runtime/rendezvous/rendezvous_service.h"

namespace ronda {
namespace {

// The method names of the service in proto/ronda/v1/rendezvous.proto.
constexpr char kChallenge[] = "/ronda.v1.Rendezvous/Challenge";
constexpr char kJoin[] = "/ronda.v1.Rendezvous/Join";

// Rank 0 rejects larger requests without buffering them. The codec accepts no JoinRequest of 40 KiB or more.
constexpr size_t kMaxRequestBytes = size_t{64} << 10;

// How long the server's destructor waits for the last answers to be sent.
constexpr absl::Duration kShutdownGrace = absl::Seconds(5);

bool Parse(absl::string_view bytes, google::protobuf::MessageLite* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

class ChallengeCall final : public ServedCall {
 public:
  ChallengeCall(RendezvousService* service, MessageStream stream) : ServedCall(std::move(stream)), service_(service) {}

 private:
  void Serve(absl::string_view) override { Answer(service_->Challenge(SteadyNow())); }

  RendezvousService* const service_;
};

// A Join call, which waits for its answer without blocking a thread.
class JoinCall final : public ServedCall {
 public:
  JoinCall(RendezvousService* service, MessageStream stream) : ServedCall(std::move(stream)), service_(service) {}

  void OnCancelled() override {
    std::optional<RendezvousService::Ticket> ticket;
    {
      MutexLock lock(&mu_);
      is_cancelled_ = true;
      ticket = ticket_;
    }
    if (ticket.has_value()) service_->Abandon(*ticket);
  }

 private:
  // This object outlives Serve(): even if the answer arrives earlier, the stream closes only after Serve() returns.
  void Serve(absl::string_view bytes) override {
    v1::JoinRequest request;
    if (!Parse(bytes, &request)) {
      return Answer<v1::JoinResponse>(absl::InvalidArgumentError("rendezvous: a damaged request"));
    }
    const std::optional<RendezvousService::Ticket> ticket =
        service_->Join(request, [this](const absl::StatusOr<v1::JoinResponse>& answer) {
          // Authenticated() must come before the answer, because the rank may disconnect as soon as it has the answer.
          if (answer.ok()) Authenticated();
          Answer(answer);
        });
    if (!ticket.has_value()) return;
    Authenticated();
    bool is_cancelled = false;
    {
      MutexLock lock(&mu_);
      ticket_ = ticket;
      is_cancelled = is_cancelled_;
    }
    if (is_cancelled) service_->Abandon(*ticket);
  }

  RendezvousService* const service_;
  Mutex mu_;
  std::optional<RendezvousService::Ticket> ticket_ ABSL_GUARDED_BY(mu_);
  bool is_cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

// Handles a new call to `service` on `stream`.
void Accept(RendezvousService* service, absl::string_view method, MessageStream stream) {
  if (method == kChallenge) return stream.Open(new ChallengeCall(service, stream));
  if (method == kJoin) return stream.Open(new JoinCall(service, stream));
  stream.End(absl::UnimplementedError(absl::StrCat("there is no ", method)));
}

RendezvousService::Options ServiceOptions(const RendezvousServer::Options& options) {
  return {.table = {.job_id = options.job_id,
                    .size = options.claim.size,
                    .epoch = options.claim.epoch,
                    .coordinator = options.claim.member},
          .secret = options.secret,
          .deadline = SteadyNow() + options.timeout,
          .timeout = options.timeout};
}

// How much longer this rank waits than rank 0, whose deadline error is more informative than this rank's would be.
constexpr absl::Duration kAnswerGrace = absl::Seconds(5);

// Limits the wait that rank 0 announces in its answer: the largest RONDA_START_TIMEOUT.
constexpr absl::Duration kMaxWait = absl::Hours(24);

absl::StatusOr<v1::ChallengeResponse> Challenge(MessageChannel& channel, const RendezvousClientOptions& options) {
  const absl::StatusOr<std::string> answer =
      CallOnce(channel.Call(kChallenge, MessageChannel::Absent::kIsAwaited, options.timeout),
               v1::ChallengeRequest().SerializeAsString());
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat(ToString(options.claim.member.peer), " found no rank 0 at ",
                                     ToString(options.endpoint), " within ", absl::FormatDuration(options.timeout),
                                     ": ", options.advice, " (", answer.status().message(), ")"));
  }
  v1::ChallengeResponse challenge;
  if (!Parse(*answer, &challenge) || challenge.nonce().size() != kNonceBytes || challenge.wait_ms() < 0) {
    return absl::InvalidArgumentError("rendezvous: rank 0 sent a damaged challenge");
  }
  return challenge;
}

absl::StatusOr<v1::JoinResponse> Join(MessageChannel& channel, const v1::ChallengeResponse& challenge,
                                      const RendezvousClientOptions& options) {
  v1::JoinRequest request = EncodeClaim(options.claim);
  request.set_nonce(challenge.nonce());
  if (!options.secret.empty()) request.set_proof(JoinProof(options.secret, challenge.nonce(), options.claim));
  const absl::Duration wait = std::min(absl::Milliseconds(challenge.wait_ms()), kMaxWait) + kAnswerGrace;
  const absl::StatusOr<std::string> answer =
      CallOnce(channel.Call(kJoin, MessageChannel::Absent::kIsAnError, wait), request.SerializeAsString());
  if (absl::IsUnavailable(answer.status())) {
    return absl::UnavailableError(absl::StrCat("rank 0 at ", ToString(options.endpoint), " went away before all of ",
                                               options.claim.size, " ranks had joined (", answer.status().message(),
                                               ")"));
  }
  if (!answer.ok()) return answer.status();
  v1::JoinResponse response;
  if (!Parse(*answer, &response)) return absl::InvalidArgumentError("rendezvous: rank 0 sent a damaged membership");
  return response;
}

// Checks the route to a loopback endpoint. A route to any other host may still appear later.
absl::Status CheckLoopback(const Endpoint& endpoint) {
  return endpoint.loopback ? CheckRoute(endpoint) : absl::OkStatus();
}

}  // namespace

class RendezvousServer::Impl {
 public:
  explicit Impl(const Options& options) : coordinator_(options.claim.member.peer), service_(ServiceOptions(options)) {}

  ~Impl() {
    service_.Fail(absl::CancelledError(absl::StrCat(ToString(coordinator_), " does not wait any more")));
    server_.reset();
  }

  absl::Status Listen(const Options& options) {
    absl::StatusOr<std::unique_ptr<MessageServer>> server =
        MessageServer::Start({.plugin = options.plugin,
                              .endpoint = options.endpoint,
                              .limits = {.max_message_bytes = kMaxRequestBytes},
                              .grace = kShutdownGrace,
                              .clients = static_cast<size_t>(options.claim.size),
                              .callers = MessageServer::CallersWith(options.secret),
                              .accept = [this](absl::string_view method, MessageStream stream) {
                                Accept(&service_, method, std::move(stream));
                              }});
    if (absl::IsAlreadyExists(server.status())) {
      return absl::AlreadyExistsError(
          absl::StrCat(server.status().message(),
                       "; choose another port, the same on every rank (torchrun keeps a store of its own on "
                       "MASTER_PORT: set RONDA_MASTER_PORT beside it)"));
    }
    RONDA_RETURN_IF_ERROR(server.status());
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  int port() const { return server_->port(); }

  absl::StatusOr<MemberList> Await() {
    absl::StatusOr<MemberList> member_list = service_.Await();
    const int64_t unauthenticated = server_->unauthenticated();
    if (!absl::IsDeadlineExceeded(member_list.status()) || unauthenticated == 0) return member_list;
    return absl::DeadlineExceededError(
        absl::StrCat(member_list.status().message(), "; port ", port(), " had ", unauthenticated,
                     unauthenticated == 1 ? " connection that did" : " connections that did",
                     " not authenticate as a rank of this job"));
  }

 private:
  const Peer coordinator_;
  RendezvousService service_;
  std::unique_ptr<MessageServer> server_;  // constant once it listens
};

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(const Options& options) {
  RONDA_RETURN_IF_ERROR(CheckSecret(options.endpoint, options.secret));
  RONDA_RETURN_IF_ERROR(CheckLoopback(options.endpoint));
  auto impl = std::make_unique<Impl>(options);
  RONDA_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<RendezvousServer>(new RendezvousServer(std::move(impl)));
}

RendezvousServer::RendezvousServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::port() const { return impl_->port(); }
absl::StatusOr<MemberList> RendezvousServer::Await() { return impl_->Await(); }

namespace {

// If the job has no secret, checks that rank 0 runs as the same user.
absl::Status CheckUserOfRankZero(const RendezvousClientOptions& options) {
  return options.secret.empty() ? CheckListener(options.endpoint) : absl::OkStatus();
}

absl::StatusOr<MemberList> JoinOnce(const RendezvousClientOptions& options) {
  // The channel does not limit the message length, because a large job has a long table, which DecodeMemberList()
  // checks.
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<MessageChannel> channel,
                         MessageChannel::Connect(options.plugin, options.endpoint, {}));
  // Checks the user before the call, because a rank 0 of a different user would not answer.
  RONDA_RETURN_IF_ERROR(CheckUserOfRankZero(options));
  const absl::StatusOr<v1::ChallengeResponse> challenge = Challenge(*channel, options);
  // Checks the user again, because rank 0 may have started listening between the first check and the call.
  RONDA_RETURN_IF_ERROR(CheckUserOfRankZero(options));
  RONDA_RETURN_IF_ERROR(challenge.status());
  RONDA_ASSIGN_OR_RETURN(const v1::JoinResponse response, Join(*channel, *challenge, options));
  return DecodeMemberList(response, options.claim);
}

// The pause before this rank tries again to join a rank 0 that is still in an earlier epoch. The attempt has told that
// rank 0 about the later epoch, so it will exit.
constexpr absl::Duration kPauseBetweenEpochs = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<MemberList> JoinRendezvous(const RendezvousClientOptions& options) {
  RONDA_RETURN_IF_ERROR(CheckSecret(options.endpoint, options.secret));
  RONDA_RETURN_IF_ERROR(CheckLoopback(options.endpoint));
  const absl::Time deadline = SteadyNow() + options.timeout;
  RendezvousClientOptions attempt = options;
  for (;;) {
    absl::StatusOr<MemberList> joined = JoinOnce(attempt);
    if (!absl::IsAborted(joined.status())) return joined;
    if (SteadyNow() + kPauseBetweenEpochs >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(joined.status().message(), " (it did not come to epoch ",
                                                      options.claim.epoch, " within ",
                                                      absl::FormatDuration(options.timeout), ")"));
    }
    absl::SleepFor(kPauseBetweenEpochs);
    attempt.timeout = deadline - SteadyNow();
  }
}

}  // namespace ronda
