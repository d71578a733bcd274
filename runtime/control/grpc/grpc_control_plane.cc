// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/grpc/grpc_control_plane.h"

#include <string>
#include <thread>
#include <utility>

#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/grpc/grpc_streams.h"
#include "runtime/control/tree/control_core.h"

namespace ronda {
namespace {

// How long neighbours have to receive the departure or the exit. Healthy ones answer within a round trip.
constexpr absl::Duration kDepartureTime = absl::Seconds(2);

class GrpcControlPlane final : public ControlPlane {
 public:
  GrpcControlPlane(ControlCore::Options options, std::unique_ptr<ControlListener> listener)
      : rank_(options.job.rank),
        listener_(std::move(listener)),
        core_(std::make_shared<ControlCore>(std::move(options))),
        pulse_([core = core_] { core->Run(); }) {}

  ~GrpcControlPlane() override {
    core_->Close(kDepartureTime);
    if (client_ != nullptr) client_->Cancel();
    listener_.reset();
    core_->AwaitStreams();
    core_->Stop();
    pulse_.join();
  }

  absl::Status Connect(const Endpoint& parent, const std::string& plugin) {
    if (listener_ != nullptr) listener_->server().Serve(core_);
    if (rank_ != kCoordinatorRank) {
      RONDA_ASSIGN_OR_RETURN(client_, ControlClient::Connect(parent, plugin));
      RONDA_RETURN_IF_ERROR(core_->Attach(client_->MakeStream()));
    }
    return core_->AwaitStart();
  }

  absl::Status SendToCoordinator(absl::string_view payload) override { return core_->SendToCoordinator(payload); }
  absl::Status Broadcast(absl::string_view payload) override {
    RONDA_CHECK(rank_ == kCoordinatorRank);
    return core_->Broadcast(payload);
  }
  absl::StatusOr<Inbox> Receive() override { return core_->Receive(); }
  void Wait(absl::Time deadline) override { core_->Wait(deadline); }
  void Wake() override { core_->Wake(); }
  void RequestUnlock(uint64_t schedule) override { core_->RequestUnlock(schedule); }
  void Fail(const absl::Status& failure) override { core_->Fail(failure); }
  absl::Status failure() const override { return core_->failure(); }
  void Depart() override { core_->Depart(); }
  void AnnounceExit() override { core_->AnnounceExit(kDepartureTime); }

 private:
  const RankId rank_;
  std::unique_ptr<ControlListener> listener_;
  std::unique_ptr<ControlClient> client_;
  const std::shared_ptr<ControlCore> core_;
  std::thread pulse_;
};

ControlCore::Options CoreOptions(const GrpcControlPlaneOptions& options) {
  const ControlTree tree = {.size = static_cast<int>(options.peers.size()), .fan_out = options.fan_out};
  return {.job = {.rank = options.rank,
                  .peers = options.peers,
                  .tree = tree,
                  .job_id = options.job_id,
                  .secret = options.secret},
          .node = {.rank = options.rank,
                   .peers = options.peers,
                   .tree = tree,
                   .heartbeat = options.heartbeat,
                   .heartbeat_timeout = options.heartbeat_timeout,
                   .flights = options.flights},
          .start_timeout = options.start_timeout,
          .parent_address = ToString(options.parent),
          .on_failure = options.on_failure};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlListener>> ControlListener::Start(const Endpoint& endpoint,
                                                                        const std::string& plugin,
                                                                        MessageServer::Callers callers) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<ControlServer> server, ControlServer::Start(endpoint, plugin, callers));
  return std::unique_ptr<ControlListener>(new ControlListener(endpoint, std::move(server)));
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectGrpcControlPlane(GrpcControlPlaneOptions options) {
  if (options.listener != nullptr) RONDA_RETURN_IF_ERROR(CheckSecret(options.listener->endpoint(), options.secret));
  if (options.rank != kCoordinatorRank) RONDA_RETURN_IF_ERROR(CheckSecret(options.parent, options.secret));
  auto plane = std::make_unique<GrpcControlPlane>(CoreOptions(options), std::move(options.listener));
  RONDA_RETURN_IF_ERROR(plane->Connect(options.parent, options.plugin));
  return plane;
}

}  // namespace ronda
