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

// Runs the callbacks of completed handles on a separate thread, one at a time, in the order of completion. So the
// background thread can continue while a callback runs, even if the callback takes long or waits for tensors that it
// has submitted. The thread starts with the first request for a callback.
//
// Thread-safe. A runtime and its handles share this object: the runtime stops the thread, and the handles may outlive
// the runtime.
class CallbackThread : public std::enable_shared_from_this<CallbackThread> {
 public:
  struct Callback {
    std::function<void(const absl::Status&)> function;
    absl::Status status;                        // of the operation
    std::shared_ptr<const std::string> tensor;  // its name, for messages
  };

  // Functions that the callback thread calls without holding a lock.
  struct Hooks {
    std::function<void(const absl::Status&)> thrown;  // a callback threw; the status names the tensor
    std::function<void()> idle;                       // no callback is left
  };

  static std::shared_ptr<CallbackThread> Create(Hooks hooks);

  // REQUIRES: Stop() was called, or no callback was ever requested.
  ~CallbackThread();

  // Must be called before Post. Does nothing if the thread is already running.
  // Errors: RESOURCE_EXHAUSTED if the system cannot create a thread.
  absl::Status Start();

  // Queues `callbacks` for the callback thread. After Stop, runs them at once on the calling thread. Allocates no
  // memory. REQUIRES: Start() has returned OK, or `callbacks` is empty.
  void Post(std::list<Callback> callbacks);

  // Returns true if no callback is waiting or running.
  bool idle() const;

  bool IsThisThread() const;

  // Waits for the posted callbacks, and ends the thread. Does not wait if the callback thread itself calls Stop. No
  // hook is called after Stop has returned.
  void Stop();

 private:
  explicit CallbackThread(Hooks hooks) : hooks_(std::move(hooks)) {}

  void Run();
  // Waits for a callback, and moves it to `next`. Returns false if no more callbacks will come.
  bool PopNext(std::list<Callback>* next);
  // Must be called after the callback from PopNext has run.
  enum class Left { kNone, kSome };
  Left Finish();

  // The hooks need no lock: only the callback thread calls them, and Stop clears them after this thread has ended.
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
