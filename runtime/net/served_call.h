// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NET_SERVED_CALL_H_
#define RONDA_RUNTIME_NET_SERVED_CALL_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/net/message_streams.h"

namespace ronda {

// The server's end of a call: one request, one answer. A ServedCall deletes itself when the stream has closed.
class ServedCall : public MessageStreamOwner {
 public:
  void OnMessage(absl::string_view request) final {
    if (!std::exchange(has_request_, true)) Serve(request);
  }
  void OnReadsEnd() final {
    if (!has_request_) stream_.End(absl::InvalidArgumentError("a call without a request"));
  }
  void OnWritten() final { stream_.End(absl::OkStatus()); }
  void OnClosed(const absl::Status&) final { delete this; }

 protected:
  explicit ServedCall(MessageStream stream) : stream_(std::move(stream)) {}

  virtual void Serve(absl::string_view request) = 0;

  // Must be called when the client has authenticated, and before Answer(), because the client may disconnect as soon as
  // it has the answer.
  void Authenticated() const { stream_.Authenticated(); }

  // Sends the answer to the client, as bytes or as a protobuf message. Must be called exactly once per request.
  void Answer(const absl::StatusOr<std::string>& answer) {
    if (!answer.ok()) return stream_.End(answer.status());
    stream_.Write(*answer);
  }
  template <typename Message>
  void Answer(const absl::StatusOr<Message>& answer) {
    if (!answer.ok()) return stream_.End(answer.status());
    stream_.Write(answer->SerializeAsString());
  }

 private:
  MessageStream stream_;
  bool has_request_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_SERVED_CALL_H_
