#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/engine_driver.h"

namespace ronda {

// What a bucket that has been given to a device still has before it: the device. Shared by the bucket's handles and by
// the DeviceWatch, which settles it.
//
// Settled once: by whoever first finds that the device has got there, or that the job has failed. Who only wants to
// know asks the device; who waits sleeps until the watch has found out.
//
// Thread-safe. Memory ordering: status_ is written before settled_ becomes true with release, and not after that.
class DeviceCompletion {
 public:
  struct Options {
    std::string label;  // "conv1/weight and 9 more"
    OpType op = OpType::kAllreduce;
    uint64_t bytes = 0;  // of this rank's tensors
    WaitLimits limits;
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceEvent> event;  // recorded behind the bucket
    std::shared_ptr<CallbackThread> callbacks;
    std::shared_ptr<EngineDriver> driver;  // may be null
    // The failure of the job, or of what moves the data: work that was ended by one has come to its end, too, but has
    // not been done. nullptr: there is none. Called under the completion's lock, and not once this is settled: whoever
    // ends what it looks at settles this before.
    std::shared_ptr<const std::function<absl::Status()>> failure;
  };

  explicit DeviceCompletion(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }

  // Whether the operation is complete, or has failed.
  bool done();

  // Blocks until done. The device's error, or the job's failure.
  absl::Status Wait();

  // REQUIRES: done.
  const absl::Status& status() const { return status_; }

  // Makes what `stream` is given from now on wait for the operation; the caller does not wait.
  // Errors: the operation's, if it has failed; the device's.
  absl::Status OrderBefore(StreamHandle stream);

  // Has `callbacks` run once it is done, with its status and after those of earlier calls. False if it is done already:
  // nothing has happened.
  // REQUIRES: the callback thread has been started.
  bool Then(std::list<CallbackThread::Callback>* callbacks);

  // Only the first call has an effect.
  void Settle(absl::Status status);

 private:
  void SettleAs(absl::FunctionRef<absl::Status()> outcome);

  const Options options_;
  std::atomic<bool> settled_{false};
  Mutex mu_;
  CondVar changed_;
  std::list<CallbackThread::Callback> callbacks_ ABSL_GUARDED_BY(mu_);
  absl::Status status_;  // written before settled_ is true, read after
};

// `status` as an error of the tensor of this name.
absl::Status AboutTensor(const std::string& name, const absl::Status& status);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
