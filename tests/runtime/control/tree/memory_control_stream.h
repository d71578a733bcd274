// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_CONTROL_TREE_MEMORY_CONTROL_STREAM_H_
#define RONDA_TESTS_RUNTIME_CONTROL_TREE_MEMORY_CONTROL_STREAM_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/control/tree/control_core.h"
#include "runtime/control/tree/frame_stream.h"

namespace ronda::testing {

// One end of a stream within the process. It does not use gRPC, because ThreadSanitizer cannot follow gRPC's own
// threads. Each end has a thread that calls its owner.
class MemoryControlStream final : public ControlStream {
 public:
  // Makes both ends. Gives the parent's end to `parent`, and returns the child's end, which the caller must open.
  static ControlStream* Connect(ControlCore& parent) {
    auto* const parents = new MemoryControlStream();
    auto* const childs = new MemoryControlStream();
    parents->inbox_->other = childs->inbox_;
    childs->inbox_->other = parents->inbox_;
    parent.OnAccepted(parents);
    return childs;
  }

  void Open(std::shared_ptr<ControlCore> owner) override {
    owner_ = std::move(owner);
    std::thread([this] { Run(); }).detach();
  }
  void Write(std::string piece) override {
    inbox_->other->Push({.kind = Event::kPiece, .piece = std::move(piece)});
    inbox_->Push({.kind = Event::kWritten});
  }
  void End(const absl::Status& status) override {
    inbox_->other->Push({.kind = Event::kEnd, .status = status});
    inbox_->Push({.kind = Event::kOwnEnd});
  }

 private:
  struct Event {
    enum Kind { kPiece, kWritten, kEnd, kOwnEnd } kind;
    std::string piece = {};
    absl::Status status = {};
  };

  // Outlives its end for as long as the other end may write to it.
  struct Inbox {
    void Push(Event event) {
      MutexLock lock(&mu);
      events.push_back(std::move(event));
      changed.NotifyAll();
    }
    Event Pop() {
      MutexLock lock(&mu);
      while (events.empty()) changed.Wait(&mu);
      Event event = std::move(events.front());
      events.pop_front();
      return event;
    }

    Mutex mu;
    CondVar changed;
    std::deque<Event> events ABSL_GUARDED_BY(mu);
    std::shared_ptr<Inbox> other;  // constant once connected, until this end closes
  };

  void Run() {
    absl::Status end_status;
    for (int ends = 0; ends < 2;) {
      Event event = inbox_->Pop();
      if (event.kind == Event::kPiece) owner_->OnPiece(this, event.piece);
      if (event.kind == Event::kWritten) owner_->OnWritten(this);
      if (event.kind == Event::kEnd) {
        end_status = event.status;
        owner_->OnReadsEnd(this);
      }
      if (event.kind == Event::kEnd || event.kind == Event::kOwnEnd) ++ends;
    }
    owner_->OnClosed(this, end_status);
    inbox_->other.reset();
    delete this;
  }

  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::shared_ptr<ControlCore> owner_;  // constant once open
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_TREE_MEMORY_CONTROL_STREAM_H_
