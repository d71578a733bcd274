#include "runtime/control/grpc/grpc_streams.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/control.grpc.pb.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/tree/control_core.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/net/fork_guard.h"
#include "runtime/net/grpc.h"

namespace ronda {
namespace {

// Streams that wait for an owner: bounds the memory that unauthenticated callers can use, and is more than the children
// there can be.
constexpr size_t kMaxWaiting = 1024;

class ServerStream final : public grpc::ServerBidiReactor<v1::ControlPiece, v1::ControlPiece>, public ControlStream {
 public:
  void Open(std::shared_ptr<ControlCore> owner) override {
    owner_ = std::move(owner);
    StartRead(&in_);
  }
  void Write(std::string piece) override {
    out_.set_data(std::move(piece));
    StartWrite(&out_);
  }
  // gRPC calls OnDone only after this, even if the connection breaks.
  void End(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  void OnReadDone(bool ok) override {
    if (!ok) return owner_->OnReadsEnd(this);
    owner_->OnPiece(this, in_.data());
    StartRead(&in_);
  }
  void OnWriteDone(bool) override { owner_->OnWritten(this); }
  void OnCancel() override {}  // reads end
  void OnDone() override {
    if (owner_ != nullptr) owner_->OnClosed(this, absl::OkStatus());
    delete this;
  }

 private:
  std::shared_ptr<ControlCore> owner_;  // constant once open
  v1::ControlPiece in_;
  v1::ControlPiece out_;
};

class ClientStream final : public grpc::ClientBidiReactor<v1::ControlPiece, v1::ControlPiece>, public ControlStream {
 public:
  ClientStream(std::shared_ptr<v1::Control::Stub> stub, std::shared_ptr<grpc::ClientContext> context)
      : stub_(std::move(stub)), context_(std::move(context)) {}

  void Open(std::shared_ptr<ControlCore> owner) override {
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
    const std::shared_ptr<ControlCore> owner = std::move(owner_);
    // The owner may destroy the client when it hears of the end. If these were the last references, the channel would
    // be destroyed here, on a thread of gRPC's that it has to join.
    stub_.reset();
    context_.reset();
    owner->OnClosed(this, FromGrpcStatus(status));
    delete this;
  }

 private:
  std::shared_ptr<v1::Control::Stub> stub_;       // constant until it closes, like the next
  std::shared_ptr<grpc::ClientContext> context_;  // of ControlClient, too
  std::shared_ptr<ControlCore> owner_;            // constant from Open until it closes
  v1::ControlPiece in_;
  v1::ControlPiece out_;
};

}  // namespace

class ControlServer::Impl final : public v1::Control::CallbackService {
 public:
  ~Impl() override {
    std::vector<ControlStream*> waiting;
    {
      MutexLock lock(&mu_);
      waiting.swap(waiting_);
      closed_ = true;
    }
    for (ControlStream* const stream : waiting) stream->End(absl::CancelledError("this rank has given up"));
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  absl::Status Listen(const Endpoint& endpoint) {
    // gRPC does not say why it cannot listen.
    RONDA_RETURN_IF_ERROR(CheckCanListen(endpoint));
    grpc::ServerBuilder builder;
    // gRPC's default lets another server share the port, and children would reach either.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kControlWindowBytes);
    builder.SetMaxReceiveMessageSize(2 * static_cast<int>(kControlPieceBytes));
    builder.AddListeningPort(NumericText(endpoint), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ <= 0) {
      return absl::UnavailableError(absl::StrCat("gRPC cannot listen on ", ToString(endpoint)));
    }
    Endpoint bound = endpoint;
    bound.port = port_;
    guard_.emplace(bound);
    return absl::OkStatus();
  }

  int port() const { return port_; }

  void Serve(std::shared_ptr<ControlCore> owner) {
    std::vector<ControlStream*> waiting;
    {
      MutexLock lock(&mu_);
      owner_ = owner;
      waiting.swap(waiting_);
    }
    for (ControlStream* const stream : waiting) owner->OnAccepted(stream);
  }

  grpc::ServerBidiReactor<v1::ControlPiece, v1::ControlPiece>* Attach(grpc::CallbackServerContext*) override {
    auto* const stream = new ServerStream();
    // gRPC defers the calls of the stream until it knows the stream.
    if (const std::shared_ptr<ControlCore> owner = OwnerOrWait(stream); owner != nullptr) {
      owner->OnAccepted(stream);
    }
    return stream;
  }

 private:
  // nullptr if there is none yet: then `stream` waits for it, or is ended.
  std::shared_ptr<ControlCore> OwnerOrWait(ControlStream* stream) {
    {
      MutexLock lock(&mu_);
      if (owner_ != nullptr) return owner_;
      if (!closed_ && waiting_.size() < kMaxWaiting) {
        waiting_.push_back(stream);
        return nullptr;
      }
    }
    stream->End(absl::ResourceExhaustedError("this rank takes no more streams"));
    return nullptr;
  }

  int port_ = 0;
  std::optional<ForkGuard> guard_;
  Mutex mu_;
  std::shared_ptr<ControlCore> owner_ ABSL_GUARDED_BY(mu_);
  std::vector<ControlStream*> waiting_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<grpc::Server> server_;
};

ControlServer::ControlServer() : impl_(std::make_unique<Impl>()) {}
ControlServer::~ControlServer() = default;

absl::Status ControlServer::Listen(const Endpoint& endpoint) { return impl_->Listen(endpoint); }
int ControlServer::port() const { return impl_->port(); }
void ControlServer::Serve(std::shared_ptr<ControlCore> owner) { impl_->Serve(std::move(owner)); }

class ControlClient::Impl {
 public:
  explicit Impl(const Endpoint& parent)
      : stub_(v1::Control::NewStub(ConnectChannel(
            parent, {.max_message_bytes = 2 * kControlPieceBytes, .window_bytes = kControlWindowBytes}))),
        context_(std::make_shared<grpc::ClientContext>()),
        guard_(parent) {
    context_->set_wait_for_ready(true);
  }

  ControlStream* MakeStream() { return new ClientStream(stub_, context_); }
  void Cancel() { context_->TryCancel(); }

 private:
  const std::shared_ptr<v1::Control::Stub> stub_;
  const std::shared_ptr<grpc::ClientContext> context_;
  const ForkGuard guard_;
};

ControlClient::ControlClient(const Endpoint& parent) : impl_(std::make_unique<Impl>(parent)) {}
ControlClient::~ControlClient() = default;

ControlStream* ControlClient::MakeStream() { return impl_->MakeStream(); }
void ControlClient::Cancel() { impl_->Cancel(); }

}  // namespace ronda
