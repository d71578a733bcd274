// SPDX-License-Identifier: Apache-2.0

// Code shared by the C ABI functions: outcomes with error texts, the session of the process, and the table that maps
// handle numbers to operations. Call() turns exceptions into error codes.
#ifndef RONDA_CLIENT_C_API_SUPPORT_H_
#define RONDA_CLIENT_C_API_SUPPORT_H_

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/elastic.h"
#include "client/lane_blocks.h"
#include "client/rank_claim.h"
#include "client/ronda.h"
#include "client/session.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// The part of the runtime that returned a status. What an absl code means to the caller depends on this part.
enum class Answer {
  kStartup,     // reading the configuration, finding the other ranks
  kSubmission,  // Runtime::Submit
  kCompletion,  // Handle::Wait, Runtime::Shutdown
};

// Returns the C ABI's code for `code`. Pure.
ronda_status ToRondaStatus(absl::StatusCode code, Answer from);

// The result of a call, in terms of the C ABI.
struct Outcome {
  ronda_status code = RONDA_OK;
  std::string text;  // empty if the code is RONDA_OK

  bool ok() const { return code == RONDA_OK; }
};

// Owns the session behind the C ABI. Its states form a cycle: none, starting, running, stopping, none.
//
// Thread-safe. Start() and Stop() block without holding the lock, so other threads can still call Get(), which returns
// null meanwhile.
class DefaultRuntime {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<Session>>()>;

  // Calls `factory`, and makes its result the session of the process.
  // Errors: ALREADY_INITIALIZED; INTERNAL if this process abandoned a GPU in an earlier job, because a new job would
  // block on that GPU; the factory's errors.
  Outcome Start(const Factory& factory);

  // Shuts down the runtime and drops it, even after an error. Sessions that Get() has returned stay alive, but accept
  // no more tensors.
  // Errors: NOT_INITIALIZED; the job's failure.
  Outcome Stop();

  // Returns the session, or null if no runtime is running.
  std::shared_ptr<Session> Get() const;

  // Returns whether a runtime is running, starting or stopping. Takes no lock, because a lock that another thread held
  // during fork() stays locked in the child.
  bool Exists() const { return exists_.load(std::memory_order_acquire); }

  // Returns whether a runtime has been shut down. Takes no lock, for the same reason as Exists().
  bool has_ended() const { return has_ended_.load(std::memory_order_relaxed); }

  // The claim of this process to its rank. The factory passed to Start() acquires it. It is released when the runtime
  // ends or the factory fails.
  RankClaim& claim() { return claim_; }
  const RankClaim& claim() const { return claim_; }

 private:
  enum class State { kNone, kStarting, kRunning, kStopping };

  static const char* DescribeConflict(State state);
  void SetStateLocked(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  RankClaim claim_;  // used by the thread that starts or stops
  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kNone;
  std::atomic<bool> exists_{false};                        // follows state_
  std::atomic<bool> has_ended_{false};                     // once kStopping
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);  // null unless kRunning
  absl::Status usable_ ABSL_GUARDED_BY(mu_);  // the reason why this process can never join a job again, or OK
};

// Returns whether this process, or one of its ancestors, was forked by a process that was in a job.
bool IsForkOfRank();

// Returns the error for calls before ronda_init(), after ronda_shutdown(), and in a forked child of a rank.
Outcome NotInitialized();

// The result of ronda_output(). An Output is valid as long as its operation exists.
struct Output {
  const void* data = nullptr;
  int64_t rows = 0;
  absl::Span<const int64_t> rows_per_member;  // empty if the rows do not come from members
};

// Converts the runtime's result of a submission into the result that the C caller requested.
//
// Thread-safe.
class Interpretation {
 public:
  virtual ~Interpretation() = default;

  // Returns the caller's status for an operation that succeeded in the runtime.
  virtual absl::Status Check(const OperationResult&) const { return absl::OkStatus(); }

  // Returns the caller's output, given `plain`, the runtime's output. The result is valid as long as this object
  // exists.
  virtual Output Read(const OperationResult& result, Output plain) const = 0;
};

// Returns whether a call that makes a stream wait for an operation also blocks until the device has finished the
// operation. Returns true only in an elastic job. After a failure, the stream would continue with undefined data, and
// its next work might change state that outlives the epoch.
bool WaitsForDevice();

// Call Handle::LaunchesBy, Handle::OrderBefore and Handle::OnLaunch. If WaitsForDevice() is true, MayOrderBy(),
// OrderStream() and OnceOrderable() also wait for the device.
bool MayOrderBy(const Handle& handle, absl::Duration deadline);
absl::Status OrderStream(const Handle& handle, WaitingStream& stream);
absl::Status OnceOrderable(Handle& handle, std::function<void(const absl::Status&)> callback);

// An operation submitted by a C caller: the handle of the submission, and the conversion of its result. Copies of an
// Operation refer to the same operation. Creating an Operation allocates nothing.
//
// Thread-safe, except for assignment.
class Operation {
 public:
  Operation() = default;  // none
  explicit Operation(std::shared_ptr<Handle> handle, OpType op,
                     std::shared_ptr<const Interpretation> interpretation = nullptr)
      : handle_(std::move(handle)), interpretation_(std::move(interpretation)), op_(op) {}

  // Whether this object refers to an operation. If not, no other function may be called.
  bool exists() const { return handle_ != nullptr; }

  OpType op() const { return op_; }
  Handle& handle() const { return *handle_; }
  bool done() const { return handle_->done(); }

  // Blocks until the operation has completed, and returns its status.
  absl::Status Wait() const;

  // Like Wait(), but gives up when MonotonicTime() reaches `deadline`. Returns whether the operation has completed.
  bool WaitUntil(absl::Duration deadline) const { return handle_->WaitUntil(deadline); }

  // Calls OrderStream(), which makes `stream` (a cudaStream_t) wait for this operation if its buffers are in GPU
  // memory.
  absl::Status OrderBefore(void* stream) const;

  // Blocks until OrderBefore() can return at once, but at most until MonotonicTime() reaches `deadline`. Returns
  // whether OrderBefore() can return at once.
  bool MayOrderBy(absl::Duration deadline) const { return ronda::MayOrderBy(*handle_, deadline); }

  // Records in this copy that a stream waits for the operation, so no thread needs to.
  void MarkOrdered() { is_ordered_ = true; }
  bool is_ordered() const { return is_ordered_; }

  // Returns whether the handle owns the operation's result.
  bool HasOutput() const;

  // Whether the operation is a reduction.
  bool Reduces() const;

  // Returns the operation's result. REQUIRES: HasOutput() is true, and Wait() or OrderBefore() has returned OK.
  Output output() const;

 private:
  absl::Status Checked() const;

  std::shared_ptr<Handle> handle_;
  std::shared_ptr<const Interpretation> interpretation_;  // null: the caller gets the runtime's result
  OpType op_ = OpType::kAllreduce;
  bool is_ordered_ = false;
};

// The operations that C callers hold, by number. Numbers are never reused, so a released number, or one from an earlier
// job, cannot refer to another operation.
//
// A number combines the index of the operation's slot with the slot's use count, so a lookup is one array access. Slots
// are reused. A slot whose use count has reached its maximum is retired.
//
// Thread-safe.
class HandleTable {
 public:
  // Reserves room for `count` operations before they are submitted, so that adding them cannot fail afterwards. Throws
  // std::bad_alloc if memory is exhausted, or if the table would need more than 2^24 slots. Each reservation is
  // consumed by one Add() or returned by Unreserve().
  void Reserve(size_t count);
  void Unreserve(size_t count);

  // Keeps `operation` until Remove(). May throw like Reserve() if no room is reserved.
  ronda_handle Add(Operation operation);

  // Returns the operation, or one whose exists() is false if `id` was never issued or has been removed.
  Operation Find(ronda_handle id) const;

  // Calls Operation::MarkOrdered for the operation, if it is still in the table.
  void MarkOrdered(ronda_handle id);

  // Removes the operation and returns it. If the operation is not in the table, returns the same as Find().
  Operation Remove(ronda_handle id);

 private:
  static constexpr int kIndexBits = 24;
  static constexpr int64_t kMaxUses = INT64_MAX >> kIndexBits;

  struct Slot {
    int64_t uses = 0;     // including this one
    Operation operation;  // none: free
  };

  static size_t IndexOf(ronda_handle id) { return static_cast<size_t>(id) & ((size_t{1} << kIndexBits) - 1); }

  // Returns nullptr if `id` was never issued or has been removed.
  const Slot* SlotLocked(ronda_handle id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Slot* SlotLocked(ronda_handle id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void AddSlotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> free_ ABSL_GUARDED_BY(mu_);  // indices of slots; its capacity is enough for all slots
  size_t reserved_ ABSL_GUARDED_BY(mu_) = 0;       // how many free slots are reserved
};

// A broadcast of bytes whose length only the root knows. Implemented as an allgather to which only the root contributes
// bytes. The root appends one extra byte, so that all ranks see which ranks acted as root even if the object is empty.
//
// Thread-safe.
class ObjectBroadcast : public Interpretation {
 public:
  // The arguments of one rank. The plan owns the bytes that the rank sends, and must outlive the operation.
  struct Plan {
    std::string name;
    RankId root = 0;
    std::shared_ptr<const Group> members;
    std::string contribution;
  };

  // Turns `object`, which has the caller's bytes and root, into the submission of `rank`.
  // Errors: INVALID_ARGUMENT if the root is not one of `members`, or if this rank is the root and passes null for a
  // nonempty object.
  static absl::StatusOr<std::unique_ptr<Plan>> Prepare(std::shared_ptr<const Group> members, RankId rank,
                                                       Submission* object);

  // `handle` must be the handle of the submission for which `plan` was made.
  ObjectBroadcast(std::shared_ptr<Handle> handle, std::shared_ptr<const Plan> plan)
      : handle_(std::move(handle)), plan_(std::move(plan)) {}

  // Waits for the operation, because the operation reads the plan's bytes.
  ~ObjectBroadcast() override { handle_->Wait().IgnoreError(); }

  // Returns the operation of a submission for which `plan` was made.
  static Operation Of(const std::shared_ptr<Handle>& handle, std::shared_ptr<const Plan> plan) {
    return Operation(handle, OpType::kAllgather, std::make_shared<ObjectBroadcast>(handle, std::move(plan)));
  }

  // Errors: FAILED_PRECONDITION if a rank other than the root acted as root, or the root did not.
  absl::Status Check(const OperationResult& result) const override;

  Output Read(const OperationResult& result, Output plain) const override;

 private:
  const std::shared_ptr<Handle> handle_;
  const std::shared_ptr<const Plan> plan_;
};

// The values of a sparse average: the result of an allgather, divided by the number of ranks that the average counts.
//
// Thread-safe.
class SparseAverage : public Interpretation {
 public:
  // `row` is the number of elements in one row of values.
  SparseAverage(DType dtype, int64_t row) : dtype_(dtype), row_(row) {}

  // Returns the operation whose result is the averaged values.
  static Operation Of(std::shared_ptr<Handle> values, DType dtype, int64_t row) {
    return Operation(std::move(values), OpType::kAllgather, std::make_shared<SparseAverage>(dtype, row));
  }

  Output Read(const OperationResult& result, Output plain) const override;

 private:
  const DType dtype_;
  const int64_t row_;
  mutable Mutex mu_;
  mutable std::vector<std::byte> averages_ ABSL_GUARDED_BY(mu_);  // empty until they are requested
};

// The state of the C ABI, except per-thread state and the SIGTERM handler's state (stop.h).
struct Globals {
  // The globals of the parent process, or null if the parent had not called Ronda before the fork. This process never
  // changes them, because their locks may be held by threads that do not exist here.
  const Globals* parents = nullptr;
  const pid_t process = getpid();  // a copy made by clone(), without fork(), has its parent's number
  DefaultRuntime runtime;
  RankContexts ranks;
  HandleTable handles;
  LaneBlocks lane_blocks;
  ElasticMember member;
  StepMarks marks;
  std::once_flag unknown_variables_told;
};

// Returns the globals. They are never destroyed, because trainer threads may still use them when the process exits. A
// forked child gets new globals without a job, because the job's threads do not exist in the child. The exit of the
// child therefore does not end the parent's rank.
Globals& globals();

// Returns the session of the calling thread's rank, or null if that rank has no session or its session has ended.
std::shared_ptr<Session> CurrentSession();

// This thread's memory for submissions, kept between calls. A call uses it until the call returns, and leaves no
// handles in it.
struct Scratch {
  Submission submission;
  std::vector<Submission> group;
  std::vector<std::shared_ptr<Handle>> handles;
};
Scratch& scratch();

// LastErrorText() returns what ronda_last_error() returns in this thread. The FailWith functions set it.
const char* LastErrorText();
ronda_status FailWith(Outcome outcome);
ronda_status FailWithLiteral(ronda_status code, const char* text) noexcept;
ronda_status FailWithException(const std::exception& error) noexcept;

// Returns the error of a call. If the job has failed, a submission returns the job's failure, which gets the same code
// as in the operations that were in flight.
Outcome Failure(const absl::Status& status, Answer from);
// Return the errors for a missing output argument and a missing text argument.
Outcome NullArgument(absl::string_view function, absl::string_view argument);
Outcome NullText(absl::string_view function, absl::string_view argument);

// Writes as many fields as fit into the caller's struct. `type` is the struct's name.
template <typename T>
Outcome WriteSized(const T& known, T* to, absl::string_view type) {
  const size_t size = to->struct_size;
  if (size < sizeof(to->struct_size) || size > kMaxStructSize) {
    return {RONDA_ERROR_INVALID_ARGUMENT,
            absl::StrCat(type, ".struct_size is ", size, ", expected ", sizeof(T), ": begin with ",
                         absl::AsciiStrToUpper(type), "_INIT or set it to sizeof(", type, ")")};
  }
  std::memset(to, 0, size);
  std::memcpy(to, &known, std::min(size, sizeof(T)));
  to->struct_size = size;
  return {};
}

// Returns the value that MonotonicTime() will have in `timeout_s` seconds, or infinity if `timeout_s` is negative.
// Errors: INVALID_ARGUMENT if `timeout_s` is not a number.
absl::StatusOr<absl::Duration> DeadlineOf(absl::string_view function, double timeout_s);
Outcome UnknownHandle(absl::string_view function, ronda_handle handle);

// Runs the body of a C function, which returns an Outcome. An exception thrown by the body becomes an error code;
// Call() itself never throws.
template <typename Body>
ronda_status Call(const Body& body) noexcept {
  // A thread's first access to its last error allocates memory. This call makes that access now: once memory is
  // exhausted, the allocation could fail, and the thread could not report that error.
  LastErrorText();
  try {
    Outcome outcome = body();
    return outcome.ok() ? RONDA_OK : FailWith(std::move(outcome));
  } catch (const std::bad_alloc&) {
    return FailWithLiteral(RONDA_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return FailWithException(error);
  } catch (...) {
    return FailWithLiteral(RONDA_ERROR_INTERNAL, "an exception of an unknown type was thrown");
  }
}

// Like Call(), for a body that needs the session.
template <typename Body>
ronda_status CallWithSession(const Body& body) noexcept {
  return Call([&]() -> Outcome {
    const std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return NotInitialized();
    return body(*session);
  });
}

// Like CallWithSession(), for a body that needs an operation.
template <typename Body>
ronda_status CallWithOperation(const char* function, ronda_handle handle, const Body& body) noexcept {
  return Call([&]() -> Outcome {
    const Operation operation = globals().handles.Find(handle);
    if (!operation.exists()) return UnknownHandle(function, handle);
    return body(operation);
  });
}

}  // namespace ronda

#endif  // RONDA_CLIENT_C_API_SUPPORT_H_
