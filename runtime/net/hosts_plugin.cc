// SPDX-License-Identifier: Apache-2.0

// The implementation of libronda_hosts.so, which consists of this file and gRPC.
#include "runtime/net/hosts_plugin.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

// The common base of the client's end and the server's end of a stream.
struct ronda_hosts_stream {
 public:
  virtual ~ronda_hosts_stream() = default;
  virtual void Open(const ronda_hosts_events* events, void* owner) = 0;
  virtual void Write(const void* data, size_t size) = 0;
  virtual void End(const grpc::Status& status) = 0;
};

struct ronda_hosts_channel {
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<grpc::ClientContext> last_call;  // nullptr: no call yet
};

namespace {

using grpc::ByteBuffer;

std::chrono::system_clock::time_point After(int64_t ms) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

ByteBuffer BufferOf(const void* data, size_t size) {
  const grpc::Slice slice(data, size);
  return ByteBuffer(&slice, 1);
}

// Implements the reads, writes and events of either end of a stream. `Reactor` is gRPC's class for that end.
template <typename Reactor>
class Stream : public Reactor, public ronda_hosts_stream {
 public:
  void Write(const void* data, size_t size) final {
    out_ = BufferOf(data, size);
    this->StartWrite(&out_);
  }

  void OnReadDone(bool ok) final {
    if (!ok) return events()->reads_end(owner_);
    Deliver();
    this->StartRead(&in_);
  }
  void OnWriteDone(bool) final { events()->written(owner_); }

 protected:
  // Returns the owner's callbacks, or nullptr if the stream is not open yet.
  const ronda_hosts_events* events() const { return events_.load(std::memory_order_acquire); }
  void* owner() const { return owner_; }

  void BeginReading(const ronda_hosts_events* events, void* owner) {
    owner_ = owner;
    events_.store(events, std::memory_order_release);
    this->StartRead(&in_);
  }

 private:
  // Passes the received message to the owner. Most messages are a single slice, which needs no copy.
  void Deliver() {
    grpc::Slice whole;
    if (!in_.TrySingleSlice(&whole).ok() && !in_.DumpToSingleSlice(&whole).ok()) return;
    events()->message(owner_, whole.begin(), whole.size());
  }

  void* owner_ = nullptr;  // constant once open
  // Written after owner_, because another thread may cancel the stream while it is being opened.
  std::atomic<const ronda_hosts_events*> events_{nullptr};
  ByteBuffer in_;
  ByteBuffer out_;
};

class ServerStream final : public Stream<grpc::ServerGenericBidiReactor> {
 public:
  void Open(const ronda_hosts_events* events, void* owner) override { BeginReading(events, owner); }
  // The server must call Finish() even if the connection is broken, because gRPC calls OnDone() only after Finish().
  void End(const grpc::Status& status) override { Finish(status); }

  void OnCancel() override {
    if (events() != nullptr) events()->cancelled(owner());
  }
  void OnDone() override {
    if (events() != nullptr) events()->closed(owner(), grpc::StatusCode::OK, "", 0);
    delete this;
  }
};

class ClientStream final : public Stream<grpc::ClientBidiReactor<ByteBuffer, ByteBuffer>> {
 public:
  ClientStream(const ronda_hosts_channel& channel, std::string method)
      : channel_(channel.channel), context_(channel.last_call), method_(std::move(method)) {}

  void Open(const ronda_hosts_events* events, void* owner) override {
    grpc::GenericStub(channel_).PrepareBidiStreamingCall(context_.get(), method_, {}, this);
    // gRPC requires a hold because some writes start outside its callbacks. End() removes the hold.
    AddHold();
    BeginReading(events, owner);
    StartCall();
  }

  void End(const grpc::Status&) override {
    if (events() == nullptr) {
      delete this;
      return;
    }
    StartWritesDone();
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    // Drops the references to the channel before it notifies the owner, who may then disconnect the channel. Otherwise
    // these could be the last references, and this gRPC thread would destroy the channel and have to join itself.
    channel_.reset();
    context_.reset();
    const std::string text = status.error_message();
    events()->closed(owner(), status.error_code(), text.data(), text.size());
    delete this;
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;        // constant until the stream closes; so is context_
  std::shared_ptr<grpc::ClientContext> context_;  // also referenced by the channel
  const std::string method_;
};

}  // namespace

struct ronda_hosts_server final : public grpc::CallbackGenericService {
 public:
  using Accepted = void (*)(void* context, const char* method, const char* client, ronda_hosts_stream* stream);

  ronda_hosts_server(Accepted accepted, void* context) : accepted_(accepted), context_(context) {}

  bool Start(const ronda_hosts_limits& limits) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_message_bytes));
    // The server does not listen on a port, where gRPC would accept any number of connections. Instead it serves the
    // sockets that it gets from Adopt(), and closes them at the end.
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    return server_ != nullptr;
  }

  void Adopt(int socket) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket;
    acceptor_->HandleNewConnection(&connection);
  }

  void ShutDown(int64_t grace_ms) { server_->Shutdown(After(grace_ms)); }

  // gRPC calls the stream only after CreateReactor() has returned.
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    auto* const stream = new ServerStream();
    accepted_(context_, context->method().c_str(), context->peer().c_str(), stream);
    return stream;
  }

 private:
  const Accepted accepted_;
  void* const context_;
  // Constant after the server has started.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

namespace {

const char* Library() {
  static const std::string* const text = new std::string("gRPC " + grpc::Version());
  return text->c_str();
}

ronda_hosts_server* Serve(const ronda_hosts_limits* limits, ronda_hosts_server::Accepted accepted, void* context) {
  auto server = std::make_unique<ronda_hosts_server>(accepted, context);
  return server->Start(*limits) ? server.release() : nullptr;
}

void Adopt(ronda_hosts_server* server, int socket) { server->Adopt(socket); }

void ShutDown(ronda_hosts_server* server, int64_t grace_ms) {
  server->ShutDown(grace_ms);
  delete server;
}

ronda_hosts_channel* Connect(const char* target, const ronda_hosts_limits* limits) {
  grpc::ChannelArguments arguments;
  // The other rank may start later than this one. With its default backoff, gRPC would wait for seconds before it tries
  // to connect again.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // Ranks connect to each other directly, even if http_proxy is set.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // With gRPC's global pool, all channels of this process would share connections, and the backoff after a failed
  // connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(limits->max_message_bytes));
  return new ronda_hosts_channel{
      .channel = grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments),
      .last_call = nullptr};
}

void Disconnect(ronda_hosts_channel* channel) { delete channel; }

ronda_hosts_stream* Call(ronda_hosts_channel* channel, const char* method, int waits, int64_t timeout_ms) {
  channel->last_call = std::make_shared<grpc::ClientContext>();
  channel->last_call->set_wait_for_ready(waits != 0);
  if (timeout_ms >= 0) channel->last_call->set_deadline(After(timeout_ms));
  return new ClientStream(*channel, method);
}

void Cancel(ronda_hosts_channel* channel) {
  if (channel->last_call != nullptr) channel->last_call->TryCancel();
}

void Open(ronda_hosts_stream* stream, const ronda_hosts_events* events, void* owner) { stream->Open(events, owner); }

void Write(ronda_hosts_stream* stream, const void* data, size_t size) { stream->Write(data, size); }

// Ends the stream. gRPC's status codes equal those of absl::Status.
void End(ronda_hosts_stream* stream, int code, const char* text, size_t size) {
  // gRPC sends the text percent-encoded in a header, and drops headers that exceed 8 KiB in total.
  constexpr size_t kMaxTextBytes = 2000;
  stream->End(grpc::Status(static_cast<grpc::StatusCode>(code), std::string(text, std::min(size, kMaxTextBytes))));
}

constexpr ronda_hosts_plugin kTable = {.version = RONDA_HOSTS_PLUGIN_VERSION,
                                       .library = Library,
                                       .serve = Serve,
                                       .adopt = Adopt,
                                       .shut_down = ShutDown,
                                       .connect = Connect,
                                       .disconnect = Disconnect,
                                       .call = Call,
                                       .cancel = Cancel,
                                       .open = Open,
                                       .write = Write,
                                       .end = End};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ronda_hosts_plugin* ronda_hosts_plugin_table(void) {
  return &kTable;
}
