// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_CALLBACK_THREAD_H_
#define RONDA_RUNTIME_ENGINE_CALLBACK_THREAD_H_

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace ronda {

// Runs the callbacks of completed handles on a separate thread, one after the other in the order of completion. So a
// callback may take long, submit tensors and wait for them, while the background thread goes on. The thread starts with
// the first callback that is requested.
//
// Thread-safe. A runtime and its handles share this object. The runtime stops it; the handles may outlive the runtime.
class CallbackThread : public std::enable_shared_from_this<CallbackThread> {
 public:
  struct Callback {
    std::function<void(const absl::Status&)> function;
    absl::Status status;                        // of the operation
    std::shared_ptr<const std::string> tensor;  // its name, for messages
  };

  // Called on the callback thread, without a lock.
  struct Hooks {
    std::function<void(const absl::Status&)> thrown;  // a callback threw; the status names the tensor
    std::function<void()> idle;                       // no callback is left
  };

  static std::shared_ptr<CallbackThread> Create(Hooks hooks);

  // REQUIRES: Stop() was called, or no callback was ever requested.
  ~CallbackThread();

  // Call before Post. Does nothing if the thread already runs.
  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give.
  absl::Status Start();

  // Runs `callbacks` soon; after Stop, at once in this thread. Allocates nothing.
  // REQUIRES: Start() has returned OK, or `callbacks` is empty.
  void Post(std::list<Callback> callbacks);

  // Whether no callback is waiting or running.
  bool idle() const;

  bool IsThisThread() const;

  // Waits for the callbacks that have been posted, and ends the thread. On the callback thread itself, Stop does not
  // wait. The hooks are not called after Stop has returned.
  void Stop();

 private:
  explicit CallbackThread(Hooks hooks) : hooks_(std::move(hooks)) {}

  void Run();
  // Waits for a callback and moves it to `next`; returns false if no more will come.
  bool PopNext(std::list<Callback>* next);
  // The callback that PopNext returned has run.
  enum class Left { kNone, kSome };
  Left Finish();

  // The callback thread calls the hooks, and they are cleared after the thread has ended. So the hooks need no lock.
  Hooks hooks_;

  mutable Mutex mu_;
  CondVar changed_;
  std::list<Callback> queue_ ABSL_GUARDED_BY(mu_);  // callbacks that have not begun
  bool running_ ABSL_GUARDED_BY(mu_) = false;       // whether a callback is running
  enum class State { kNew, kStarted, kStopped } state_ ABSL_GUARDED_BY(mu_) = State::kNew;
  std::thread thread_ ABSL_GUARDED_BY(mu_);
  std::thread::id id_ ABSL_GUARDED_BY(mu_);  // stays set while Stop waits for the thread
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_CALLBACK_THREAD_H_
