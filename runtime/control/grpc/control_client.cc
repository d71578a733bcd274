#include "runtime/control/grpc/control_client.h"

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "proto/ronda/v1/control.grpc.pb.h"
#include "runtime/control/rendezvous/grpc_channel.h"
#include "runtime/control/rendezvous/grpc_status.h"
#include "runtime/control/tree/frame_stream.h"

namespace ronda {
namespace {

class ClientStream final : public grpc::ClientBidiReactor<v1::ControlPiece, v1::ControlPiece>, public ControlStream {
 public:
  ClientStream(std::shared_ptr<v1::Control::Stub> stub, std::shared_ptr<grpc::ClientContext> context)
      : stub_(std::move(stub)), context_(std::move(context)) {}

  void Open(std::shared_ptr<ControlStreamOwner> owner) override {
    owner_ = std::move(owner);
    stub_->async()->Attach(context_.get(), this);
    // Until End: writes start outside of gRPC's calls too.
    AddHold();
    StartRead(&in_);
    StartCall();
  }
  void Write(std::string piece) override {
    out_.set_data(std::move(piece));
    StartWrite(&out_);
  }
  void End(const absl::Status&) override {
    if (owner_ == nullptr) {
      delete this;
      return;
    }
    StartWritesDone();
    RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return owner_->OnReadsEnd(this);
    owner_->OnPiece(this, in_.data());
    StartRead(&in_);
  }
  void OnWriteDone(bool) override { owner_->OnWritten(this); }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<ControlStreamOwner> owner = std::move(owner_);
    // Who hears of the end may destroy the client. Were these the last references then, the channel would be destroyed
    // here, on a thread of gRPC's that it has to join.
    stub_.reset();
    context_.reset();
    owner->OnClosed(this, FromGrpcStatus(status));
    delete this;
  }

 private:
  std::shared_ptr<v1::Control::Stub> stub_;       // constant until it closes, like the next
  std::shared_ptr<grpc::ClientContext> context_;  // of ControlClient, too
  std::shared_ptr<ControlStreamOwner> owner_;     // constant from Open until it closes
  v1::ControlPiece in_;
  v1::ControlPiece out_;
};

}  // namespace

class ControlClient::Impl {
 public:
  explicit Impl(const Endpoint& parent)
      : stub_(v1::Control::NewStub(ConnectChannel(
            parent, {.max_message_bytes = 2 * kControlPieceBytes, .window_bytes = kControlWindowBytes}))),
        context_(std::make_shared<grpc::ClientContext>()) {
    context_->set_wait_for_ready(true);
  }

  ControlStream* MakeStream() { return new ClientStream(stub_, context_); }
  void Cancel() { context_->TryCancel(); }

 private:
  const std::shared_ptr<v1::Control::Stub> stub_;
  const std::shared_ptr<grpc::ClientContext> context_;
};

ControlClient::ControlClient(const Endpoint& parent) : impl_(std::make_unique<Impl>(parent)) {}
ControlClient::~ControlClient() = default;

ControlStream* ControlClient::MakeStream() { return impl_->MakeStream(); }
void ControlClient::Cancel() { impl_->Cancel(); }

}  // namespace ronda
