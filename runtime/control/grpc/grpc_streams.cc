// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/grpc/grpc_streams.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/ronda/v1/control.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/tree/control_core.h"

namespace ronda {
namespace {

// As in proto/ronda/v1/control.proto.
constexpr char kAttach[] = "/ronda.v1.Control/Attach";

// Maximum number of streams that wait for an owner. It limits the memory that unauthenticated callers can use, and is
// larger than the possible number of children.
constexpr size_t kMaxWaiting = 1024;

constexpr MessageLimits kLimits = {.max_message_bytes = 2 * kControlPieceBytes, .window_bytes = kControlWindowBytes};

// Either end of a stream: carries the pieces of a ControlStream as messages of a MessageStream.
class PieceStream final : public ControlStream, public MessageStreamOwner {
 public:
  explicit PieceStream(MessageStream stream) : stream_(std::move(stream)) {}

  void Open(std::shared_ptr<ControlCore> owner) override {
    owner_ = std::move(owner);
    stream_.Open(this);
  }
  void Write(std::string piece) override {
    v1::ControlPiece message;
    message.set_data(std::move(piece));
    stream_.Write(message.SerializeAsString());
  }
  void End(const absl::Status& status) override {
    const bool is_open = owner_ != nullptr;
    stream_.End(status);
    if (!is_open) delete this;
  }
  void Authenticated() override { stream_.Authenticated(); }

  void OnMessage(absl::string_view message) override {
    v1::ControlPiece piece;
    if (!piece.ParseFromArray(message.data(), static_cast<int>(message.size()))) return OnReadsEnd();
    if (!reads_ended_) owner_->OnPiece(this, piece.data());
  }
  // Also called for a message that is no piece: the messages after it are meaningless.
  void OnReadsEnd() override {
    if (!std::exchange(reads_ended_, true)) owner_->OnReadsEnd(this);
  }
  void OnWritten() override { owner_->OnWritten(this); }
  void OnClosed(const absl::Status& status) override {
    const std::shared_ptr<ControlCore> owner = std::move(owner_);
    owner->OnClosed(this, status);
    delete this;
  }

 private:
  MessageStream stream_;
  std::shared_ptr<ControlCore> owner_;  // constant from Open until it closes
  bool reads_ended_ = false;            // belongs to the calls for messages
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const Endpoint& endpoint, const std::string& plugin,
                                                                    MessageServer::Callers callers) {
  std::unique_ptr<ControlServer> server(new ControlServer());
  RONDA_ASSIGN_OR_RETURN(
      server->server_,
      MessageServer::Start({.plugin = plugin,
                            .endpoint = endpoint,
                            .limits = kLimits,
                            .grace = absl::ZeroDuration(),
                            .clients = kControlFanOut,
                            .callers = callers,
                            .accept = [self = server.get()](absl::string_view method, MessageStream stream) {
                              self->Accept(method, std::move(stream));
                            }}));
  Endpoint bound = endpoint;
  bound.port = server->port();
  server->guard_ = std::make_unique<ForkGuard>(bound);
  return server;
}

ControlServer::~ControlServer() {
  std::vector<ControlStream*> waiting;
  {
    MutexLock lock(&mu_);
    waiting.swap(waiting_);
    closed_ = true;
  }
  for (ControlStream* const stream : waiting) stream->End(absl::CancelledError("this rank has given up"));
  server_.reset();
}

void ControlServer::Serve(const std::shared_ptr<ControlCore>& owner) {
  std::vector<ControlStream*> waiting;
  {
    MutexLock lock(&mu_);
    owner_ = owner;
    waiting.swap(waiting_);
  }
  for (ControlStream* const stream : waiting) owner->OnAccepted(stream);
}

void ControlServer::Accept(absl::string_view method, MessageStream stream) {
  if (method != kAttach) return stream.End(absl::UnimplementedError(absl::StrCat("there is no ", method)));
  auto* const pieces = new PieceStream(std::move(stream));
  if (const std::shared_ptr<ControlCore> owner = OwnerOrWait(pieces); owner != nullptr) owner->OnAccepted(pieces);
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it deletes itself

std::shared_ptr<ControlCore> ControlServer::OwnerOrWait(ControlStream* stream) {
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

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Connect(const Endpoint& parent,
                                                                      const std::string& plugin) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<MessageChannel> channel, MessageChannel::Connect(plugin, parent, kLimits));
  return std::unique_ptr<ControlClient>(new ControlClient(parent, std::move(channel)));
}

ControlStream* ControlClient::MakeStream() {
  return new PieceStream(channel_->Call(kAttach, MessageChannel::Absent::kIsAwaited, absl::InfiniteDuration()));
}

}  // namespace ronda
