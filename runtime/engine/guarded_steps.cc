// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/guarded_steps.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/out_of_memory.h"

namespace ronda {
namespace {

// This much memory suffices to record a failure and to complete the handles with it.
constexpr size_t kEmergencyBytes = size_t{256} << 10;

// While this object exists, the calling thread has the default floating-point environment: rounding to nearest,
// denormals unchanged, no traps. Trainers change the environment of their threads (flush to zero, traps). But a
// reduction on a trainer's thread must give the same bits as on all other ranks.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

#ifdef __x86_64__
  ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
    if (!IsDefault(saved_)) _mm_setcsr(kDefault);
  }
  ~ScopedFloatEnvironment() {
    if (!IsDefault(saved_)) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kFlags = 0x3f;      // exceptions since the last clear: not part of the environment
  static constexpr unsigned kDefault = 0x1f80;  // the state of a new thread

  static bool IsDefault(unsigned state) { return (state & ~kFlags) == kDefault; }

  const unsigned saved_;  // state of the SSE unit; switching only this takes nanoseconds
#else
  ScopedFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFloatEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

}  // namespace

GuardedSteps::GuardedSteps(const Parts& parts, std::unique_ptr<CoordinationLoop> loop)
    : parts_(parts), loop_(std::move(loop)), emergency_memory_(new std::byte[kEmergencyBytes]) {}

ProgressEngine::Steps::Progress GuardedSteps::Advance() {
  return Guard([this] { return loop_->Step(); });
}

ProgressEngine::Steps::Progress GuardedSteps::OnSubmission(absl::Time now) {
  return Guard([this, now]() -> absl::StatusOr<Progress> { return loop_->OnSubmission(now); });
}

ProgressEngine::Steps::Progress GuardedSteps::Guard(Step step) {
  const absl::StatusOr<Progress> progress = StepOrCatch(step);
  if (progress.ok() && *progress != Progress::kOver) return *progress;
  if (progress.ok()) {
    End();
  } else {
    outcome_ = FailOrRetry(progress.status());
  }
  return Progress::kOver;
}

// Runs `step`. Returns an exception as an error. Only the standard library throws, mostly when memory runs out. The
// step may be left half done, because the job is then over.
absl::StatusOr<ProgressEngine::Steps::Progress> GuardedSteps::StepOrCatch(Step step) {
  try {
    // Every thread sets this floating-point environment before it makes a step, because all ranks must compute the same
    // bits.
    const ScopedFloatEnvironment default_environment;
    return step();
  } catch (const std::bad_alloc&) {
    // The queue refuses submissions before the emergency memory is freed, so that new submissions cannot use up this
    // memory.
    parts_.queue->Refuse(out_of_memory_);
    emergency_memory_.reset();
    static_cast<void>(loop_.release());
    return out_of_memory_;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception in the progress engine: ", error.what()));
  }
}

// Repeats its work until it gets the little memory that it needs, because no failure may be recorded any more.
void GuardedSteps::End() {
  has_ended_.store(true);
  emergency_memory_.reset();
  UntilMemoryIsFound([this] {
    parts_.control->Depart();
    parts_.devices->Close(absl::OkStatus());
    parts_.queue->Close(shut_down_);
  });
}

// Repeats Fail until it gets the little memory that it needs. Other threads may take the emergency memory first, but
// the queue already refuses their submissions, so the memory becomes free again.
absl::Status GuardedSteps::FailOrRetry(const absl::Status& cause) {
  return UntilMemoryIsFound([&] { return Fail(cause); });
}

absl::Status GuardedSteps::Fail(const absl::Status& cause) {
  parts_.control->Fail(cause);
  absl::Status failure = parts_.control->failure();
  Log(LogLevel::kError, parts_.rank, failure.message());
  // The queue is closed first, because ending the work on a device may take long, and no thread must wait for that.
  parts_.queue->Close(failure);
  parts_.devices->Close(failure);
  return failure;
}

}  // namespace ronda
