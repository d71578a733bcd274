#include "runtime/rendezvous/grpc_rendezvous.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/ronda/v1/rendezvous.grpc.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/grpc.h"
#include "runtime/rendezvous/rendezvous_codec.h"
#include "runtime/rendezvous/rendezvous_service.h"

namespace ronda {
namespace {

// A JoinRequest with all that the codec lets through is below 40 KiB; no caller can make this rank buffer more.
constexpr int kMaxRequestBytes = 64 << 10;

// For answers under way, when the server is destroyed.
constexpr std::chrono::seconds kShutdownGrace(5);

// One Join that waits for its answer without holding a thread. Deletes itself when gRPC is done with it.
class JoinCall final : public grpc::ServerUnaryReactor {
 public:
  JoinCall(RendezvousService* service, const v1::JoinRequest& request, v1::JoinResponse* response) : service_(service) {
    ticket_ = service_->Join(request, [this, response](const absl::StatusOr<v1::JoinResponse>& answer) {
      if (answer.ok()) *response = *answer;
      Finish(ToGrpcStatus(answer.status()));
    });
  }

  // gRPC calls neither of these before the constructor has returned, even if Finish was called in it.
  void OnCancel() override { service_->Abandon(ticket_); }
  void OnDone() override { delete this; }

 private:
  RendezvousService* const service_;
  RendezvousService::Ticket ticket_ = 0;
};

// Puts a RendezvousService on the network.
class GrpcRendezvous final : public v1::Rendezvous::CallbackService {
 public:
  explicit GrpcRendezvous(RendezvousService::Options options) : service_(std::move(options)) {}

  RendezvousService& service() { return service_; }

  grpc::ServerUnaryReactor* Challenge(grpc::CallbackServerContext* context, const v1::ChallengeRequest*,
                                      v1::ChallengeResponse* response) override {
    const absl::StatusOr<v1::ChallengeResponse> answer = service_.Challenge(absl::Now());
    if (answer.ok()) *response = *answer;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(answer.status()));
    return reactor;
  }

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext*, const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return new JoinCall(&service_, *request, response);
  }

 private:
  RendezvousService service_;
};

RendezvousService::Options ServiceOptions(const RendezvousServer::Options& options) {
  return {.table = {.job_id = options.job_id, .size = options.claim.size, .coordinator = options.claim.member},
          .secret = options.secret,
          .deadline = absl::Now() + options.timeout,
          .timeout = options.timeout};
}

// Rank 0 answers by its own deadline, with a better text than ours; this is for the answer to arrive.
constexpr absl::Duration kAnswerGrace = absl::Seconds(5);

// Bounds what the answer says about rank 0's deadline; the longest that RONDA_START_TIMEOUT can be.
constexpr absl::Duration kMaxWait = absl::Hours(24);

absl::StatusOr<v1::ChallengeResponse> Challenge(v1::Rendezvous::Stub* stub, const RendezvousClientOptions& options) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  context.set_wait_for_ready(true);
  v1::ChallengeResponse challenge;
  const grpc::Status status = stub->Challenge(&context, v1::ChallengeRequest(), &challenge);
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat(ToString(options.claim.member.peer), " found no rank 0 at ",
                                     ToString(options.endpoint), " within ", absl::FormatDuration(options.timeout),
                                     ": ", options.advice, " (", status.error_message(), ")"));
  }
  if (challenge.nonce().size() != kNonceBytes || challenge.wait_ms() < 0) {
    return absl::InvalidArgumentError("rendezvous: rank 0 sent a damaged challenge");
  }
  return challenge;
}

absl::StatusOr<v1::JoinResponse> Join(v1::Rendezvous::Stub* stub, const v1::ChallengeResponse& challenge,
                                      const RendezvousClientOptions& options) {
  v1::JoinRequest request = EncodeClaim(options.claim);
  request.set_nonce(challenge.nonce());
  if (!options.secret.empty()) request.set_proof(JoinProof(options.secret, challenge.nonce(), options.claim));
  const absl::Duration wait = std::min(absl::Milliseconds(challenge.wait_ms()), kMaxWait) + kAnswerGrace;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + wait));
  v1::JoinResponse response;
  const absl::Status status = FromGrpcStatus(stub->Join(&context, request, &response));
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(absl::StrCat("rank 0 at ", ToString(options.endpoint), " went away before all of ",
                                               options.claim.size, " ranks had joined (", status.message(), ")"));
  }
  if (!status.ok()) return status;
  return response;
}

}  // namespace

class RendezvousServer::Impl {
 public:
  explicit Impl(const Options& options)
      : coordinator_(options.claim.member.peer), rendezvous_(ServiceOptions(options)) {}

  ~Impl() {
    rendezvous_.service().Fail(absl::CancelledError(absl::StrCat(ToString(coordinator_), " does not wait any more")));
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  }

  absl::Status Listen(const Endpoint& endpoint) {
    grpc::ServerBuilder builder;
    // gRPC's default lets a second job's server share the port, and ranks would land in either job.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    builder.AddListeningPort(NumericText(endpoint), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&rendezvous_);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port_ > 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("gRPC cannot listen on ", ToString(endpoint)));
  }

  int port() const { return port_; }
  absl::StatusOr<Membership> Await() { return rendezvous_.service().Await(); }

 private:
  const Peer coordinator_;
  GrpcRendezvous rendezvous_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(const Options& options) {
  RONDA_RETURN_IF_ERROR(CheckSecret(options.endpoint, options.secret));
  // gRPC does not say why it cannot listen.
  RONDA_RETURN_IF_ERROR(CheckCanListen(options.endpoint));
  auto impl = std::make_unique<Impl>(options);
  RONDA_RETURN_IF_ERROR(impl->Listen(options.endpoint));
  return std::unique_ptr<RendezvousServer>(new RendezvousServer(std::move(impl)));
}

RendezvousServer::RendezvousServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::port() const { return impl_->port(); }
absl::StatusOr<Membership> RendezvousServer::Await() { return impl_->Await(); }

absl::StatusOr<Membership> JoinRendezvous(const RendezvousClientOptions& options) {
  RONDA_RETURN_IF_ERROR(CheckSecret(options.endpoint, options.secret));
  // Takes messages of any length: the table of a large job is long, and DecodeMembership checks it.
  const std::unique_ptr<v1::Rendezvous::Stub> stub = v1::Rendezvous::NewStub(ConnectChannel(options.endpoint, {}));
  RONDA_ASSIGN_OR_RETURN(const v1::ChallengeResponse challenge, Challenge(stub.get(), options));
  RONDA_ASSIGN_OR_RETURN(const v1::JoinResponse response, Join(stub.get(), challenge, options));
  return DecodeMembership(response, options.claim);
}

}  // namespace ronda
