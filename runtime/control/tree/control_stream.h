#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_STREAM_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_STREAM_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ronda {

class ControlStream;

// What streams tell whom they belong to, from threads of their own: one call at a time for reads, and one for writes.
class ControlStreamOwner {
 public:
  virtual ~ControlStreamOwner() = default;
  // Somebody has connected. `stream` is to be opened or ended, now or later.
  virtual void OnAccepted(ControlStream* stream) = 0;
  virtual void OnPiece(ControlStream* stream, absl::string_view piece) = 0;
  // Nothing more will come.
  virtual void OnReadsEnd(ControlStream* stream) = 0;
  // What Write was called with has gone, or never will; the stream takes the next.
  virtual void OnWritten(ControlStream* stream) = 0;
  // The last call; the stream is about to delete itself. `status` is the other end's word at the child's end, and OK at
  // the parent's.
  virtual void OnClosed(ControlStream* stream, const absl::Status& status) = 0;
};

// One end of the stream between a rank and its parent. Deletes itself, once its owner has heard OnClosed; that comes
// some time after End, never before. A stream that has not been opened may be ended too; then nobody hears of it again.
class ControlStream {
 public:
  virtual ~ControlStream() = default;
  // Begins to read. To be called once.
  virtual void Open(std::shared_ptr<ControlStreamOwner> owner) = 0;
  // REQUIRES: neither End nor another Write has been called that OnWritten has not followed.
  virtual void Write(std::string piece) = 0;
  // Says that nothing more will be written, and, at the parent's end, why. To be called once.
  // REQUIRES: as Write.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_STREAM_H_
