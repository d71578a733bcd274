// SPDX-License-Identifier: Apache-2.0

#include "client/c_api_support.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/per_thread.h"
#include "client/thread_limits.h"
#include "kernels/cpu/convert.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"

namespace ronda {
namespace {

// Converts the codes that mean the same in all parts of the runtime.
ronda_status CommonStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return RONDA_OK;
    case absl::StatusCode::kDeadlineExceeded:
      return RONDA_ERROR_DEADLINE;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return RONDA_ERROR_PEER_FAILED;
    case absl::StatusCode::kResourceExhausted:
      return RONDA_ERROR_OUT_OF_MEMORY;
    default:
      return RONDA_ERROR_INTERNAL;
  }
}

// Returns the C ABI status for an error at the start of a job. If no rank has failed but the ranks cannot connect, the
// setup of the job is wrong.
ronda_status StartupStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:  // other versions or sizes
    case absl::StatusCode::kAlreadyExists:       // a job id, a rank or a port that is taken
    case absl::StatusCode::kNotFound:            // the rendezvous host
    case absl::StatusCode::kPermissionDenied:    // another secret
    case absl::StatusCode::kUnauthenticated:
      return RONDA_ERROR_INVALID_ARGUMENT;
    case absl::StatusCode::kDataLoss:  // from a member of an elastic job
      return RONDA_ERROR_MEMBERSHIP;
    default:
      return CommonStatus(code);
  }
}

ronda_status SubmissionStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:  // a tensor in a GPU's memory, and no GPU; a stream that is captured
      return RONDA_ERROR_INVALID_ARGUMENT;
    case absl::StatusCode::kAlreadyExists:
      return RONDA_ERROR_DUPLICATE_NAME;
    case absl::StatusCode::kCancelled:  // after Shutdown
      return RONDA_ERROR_NOT_INITIALIZED;
    default:
      return CommonStatus(code);
  }
}

}  // namespace

ronda_status ToRondaStatus(absl::StatusCode code, Answer from) {
  switch (from) {
    case Answer::kStartup:
      return StartupStatus(code);
    case Answer::kSubmission:
      return SubmissionStatus(code);
    case Answer::kCompletion:
      if (code == absl::StatusCode::kFailedPrecondition) return RONDA_ERROR_MISMATCH;
      // OUT_OF_RANGE means that the caller's output is too small.
      return code == absl::StatusCode::kOutOfRange ? RONDA_ERROR_INVALID_ARGUMENT : CommonStatus(code);
  }
  return RONDA_ERROR_INTERNAL;
}

bool IsForkOfRank() {
  for (const Globals* parents = globals().parents; parents != nullptr; parents = parents->parents) {
    if (parents->runtime.Exists()) return true;
  }
  return false;
}

Outcome NotInitialized() {
  if (IsForkOfRank()) {
    return {
        RONDA_ERROR_NOT_INITIALIZED,
        "this process is a child that a rank has made with fork(), and is no rank itself: let the parent communicate, "
        "or execute a program in the child"};
  }
  const bool has_ended = globals().runtime.has_ended();
  return {RONDA_ERROR_NOT_INITIALIZED, has_ended ? "Ronda has been shut down: call ronda_init() to join a job again"
                                                 : "Ronda is not initialized: call ronda_init() first"};
}

const char* DefaultRuntime::DescribeConflict(State state) {
  switch (state) {
    case State::kStarting:
      return "another thread is in ronda_init(): call it once per process";
    case State::kStopping:
      return "another thread is in ronda_shutdown(): wait for it before ronda_init()";
    default:
      return "Ronda is already initialized: call ronda_init() once per process, or ronda_shutdown() before the next "
             "one";
  }
}

void DefaultRuntime::SetStateLocked(State state) {
  if (state == State::kNone) claim_.Release();
  if (state == State::kStopping) has_ended_.store(true, std::memory_order_relaxed);
  state_ = state;
  exists_.store(state != State::kNone, std::memory_order_release);
}

Outcome DefaultRuntime::Start(const Factory& factory) {
  {
    MutexLock lock(&mu_);
    if (state_ != State::kNone) return {RONDA_ERROR_ALREADY_INITIALIZED, DescribeConflict(state_)};
    if (!usable_.ok()) return Failure(usable_, Answer::kStartup);
    SetStateLocked(State::kStarting);
  }
  absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("not started");
  try {
    session = factory();
  } catch (...) {
    MutexLock lock(&mu_);
    SetStateLocked(State::kNone);
    throw;
  }
  MutexLock lock(&mu_);
  SetStateLocked(session.ok() ? State::kRunning : State::kNone);
  if (!session.ok()) {
    return {ToRondaStatus(session.status().code(), Answer::kStartup), std::string(session.status().message())};
  }
  session_ = *std::move(session);
  return {};
}

Outcome DefaultRuntime::Stop() {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mu_);
    if (state_ != State::kRunning) return NotInitialized();
    if (session_->runtime().InCallback()) {
      return {RONDA_ERROR_INVALID_ARGUMENT,
              "ronda_shutdown() in a callback, which it would have to wait for: call it elsewhere"};
    }
    SetStateLocked(State::kStopping);
    session = std::move(session_);
  }
  const absl::Status status = session->runtime().Shutdown();
  const std::shared_ptr<const Device> device = session->runtime().device();
  // Releases this reference to the session now. If it is the last one, the transport ends before the next Start(),
  // which may connect to the same ranks again.
  session.reset();
  MutexLock lock(&mu_);
  if (device != nullptr && usable_.ok()) usable_ = device->CheckUsable();
  SetStateLocked(State::kNone);
  return {ToRondaStatus(status.code(), Answer::kCompletion), std::string(status.message())};
}

std::shared_ptr<Session> DefaultRuntime::Get() const {
  MutexLock lock(&mu_);
  return session_;
}

bool WaitsForDevice() { return globals().member.is_known_member(); }

bool MayOrderBy(const Handle& handle, absl::Duration deadline) {
  return WaitsForDevice() ? handle.WaitUntil(deadline) : handle.LaunchesBy(deadline);
}

absl::Status OrderStream(const Handle& handle, WaitingStream& stream) {
  if (WaitsForDevice()) RONDA_RETURN_IF_ERROR(handle.Wait());
  return handle.OrderBefore(stream);
}

absl::Status OnceOrderable(Handle& handle, std::function<void(const absl::Status&)> callback) {
  return WaitsForDevice() ? handle.OnCompletion(std::move(callback)) : handle.OnLaunch(std::move(callback));
}

absl::Status Operation::Wait() const {
  RONDA_RETURN_IF_ERROR(handle_->Wait());
  return Checked();
}

absl::Status Operation::OrderBefore(void* stream) const {
  WaitingStream waiting(stream);
  RONDA_RETURN_IF_ERROR(OrderStream(*handle_, waiting));
  return Checked();
}

absl::Status Operation::Checked() const {
  return interpretation_ == nullptr ? absl::OkStatus() : interpretation_->Check(handle_->result());
}

bool Operation::HasOutput() const { return TraitsOf(op_).by_rows; }

bool Operation::Reduces() const { return TraitsOf(op_).reduces; }

Output Operation::output() const {
  const OperationResult& result = handle_->result();
  const RowCounts& rows = result.first_dims;
  Output output{.data = result.rows(), .rows = std::accumulate(rows.begin(), rows.end(), int64_t{0})};
  const FirstDimension meaning = TraitsOf(op_).first_dimension;
  if (meaning == FirstDimension::kGathered || meaning == FirstDimension::kLocal) output.rows_per_member = rows;
  return interpretation_ == nullptr ? output : interpretation_->Read(result, output);
}

void HandleTable::AddSlotLocked() {
  if (slots_.size() >> kIndexBits != 0) throw std::bad_alloc();
  if (free_.capacity() <= slots_.size()) free_.reserve(std::max<size_t>(64, 2 * slots_.size()));
  slots_.emplace_back();
  free_.push_back(slots_.size() - 1);
}

void HandleTable::Reserve(size_t count) {
  MutexLock lock(&mu_);
  while (free_.size() < reserved_ + count) AddSlotLocked();
  reserved_ += count;
}

void HandleTable::Unreserve(size_t count) {
  MutexLock lock(&mu_);
  reserved_ -= count;
}

ronda_handle HandleTable::Add(Operation operation) {
  MutexLock lock(&mu_);
  if (reserved_ > 0) {
    --reserved_;
  } else if (free_.empty()) {
    AddSlotLocked();
  }
  const size_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.operation = std::move(operation);
  return ++slot.uses << kIndexBits | static_cast<int64_t>(index);
}

const HandleTable::Slot* HandleTable::SlotLocked(ronda_handle id) const {
  const size_t index = IndexOf(id);
  return index < slots_.size() && slots_[index].uses == id >> kIndexBits ? &slots_[index] : nullptr;
}

HandleTable::Slot* HandleTable::SlotLocked(ronda_handle id) {
  // Uses static_cast, because with std::as_const() clang's analysis does not see that both objects have the same mutex.
  return const_cast<Slot*>(static_cast<const HandleTable*>(this)->SlotLocked(id));
}

Operation HandleTable::Find(ronda_handle id) const {
  MutexLock lock(&mu_);
  const Slot* const slot = SlotLocked(id);
  return slot == nullptr ? Operation() : slot->operation;
}

void HandleTable::MarkOrdered(ronda_handle id) {
  MutexLock lock(&mu_);
  Slot* const slot = SlotLocked(id);
  if (slot != nullptr) slot->operation.MarkOrdered();
}

Operation HandleTable::Remove(ronda_handle id) {
  MutexLock lock(&mu_);
  Slot* const slot = SlotLocked(id);
  if (slot == nullptr) return Operation();
  if (slot->operation.exists() && slot->uses < kMaxUses) free_.push_back(IndexOf(id));
  return std::exchange(slot->operation, Operation());
}

absl::StatusOr<std::unique_ptr<ObjectBroadcast::Plan>> ObjectBroadcast::Prepare(std::shared_ptr<const Group> members,
                                                                                RankId rank, Submission* object) {
  TensorRequest& request = object->request;
  const std::string what = absl::StrCat("broadcast_object '", request.name, "'");
  if (!members->Contains(request.root)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": root ", request.root, " is not in process set ",
                                                   request.process_set, ": name one of its ranks"));
  }
  auto plan = std::make_unique<Plan>(
      Plan{.name = request.name, .root = request.root, .members = std::move(members), .contribution = {}});
  const int64_t size = request.shape.front();
  if (request.root == rank) {
    if (size > 0 && object->input == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": data is NULL, but there are ", size, " bytes"));
    }
    plan->contribution.assign(static_cast<const char*>(object->input), static_cast<size_t>(size));
    plan->contribution.push_back('\0');
  }
  object->input = plan->contribution.data();
  request.shape = {static_cast<int64_t>(plan->contribution.size())};
  request.root = 0;  // an allgather has none
  return plan;
}

absl::Status ObjectBroadcast::Check(const OperationResult& result) const {
  const RowCounts& sizes = result.first_dims;
  for (int i = 0; i < plan_->members->size(); ++i) {
    const RankId member = (*plan_->members)[i];
    if ((sizes[i] > 0) == (member == plan_->root)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "broadcast_object '", plan_->name, "': root is ", plan_->root, " on this rank, but rank ", member,
        member == plan_->root ? " sent nothing: it has joined, or has another root" : " takes itself for the root",
        "; pass the same root on every rank"));
  }
  return absl::OkStatus();
}

Output ObjectBroadcast::Read(const OperationResult&, Output plain) const {
  --plain.rows;  // the root's additional byte, the last one
  plain.rows_per_member = {};
  return plain;
}

Output SparseAverage::Read(const OperationResult& result, Output plain) const {
  const size_t count = static_cast<size_t>(plain.rows * row_);
  MutexLock lock(&mu_);
  if (averages_.empty()) {
    averages_.resize(count * SizeOf(dtype_));
    kernels::Convert(plain.data, dtype_, averages_.data(), dtype_, count, {.divisor = result.number});
  }
  plain.data = averages_.data();
  return plain;
}

namespace {

// The text of this thread's last error. Points into the thread's LastErrorStorage, or to a literal if memory was
// exhausted.
constinit thread_local const char* last_error = "";

struct LastErrorStorage {
  ~LastErrorStorage() {
    if (last_error == text.c_str()) last_error = "";
  }
  std::string text;
};

// The globals of this process. In a forked child, the child's globals point to the parent's, so that leak checkers do
// not report the latter.
std::atomic<Globals*> current_globals{nullptr};

// Runs in a forked child before fork() returns there. Takes no lock, because another thread of the parent may have held
// it during the fork.
void LeaveTheParentsJob() {
  Globals* const parents = current_globals.load(std::memory_order_acquire);
  if (parents == nullptr) return;
  parents->runtime.claim().LeaveToParent();
  auto* const own = new Globals;
  own->parents = parents;
  current_globals.store(own, std::memory_order_release);
  RankContexts::Leave();
}

// How long an exiting process waits for the other ranks to learn of its exit. A rank that has not learned of the exit
// by then reports that the exiting rank has died.
constexpr std::chrono::seconds kExitTimeout(1);

// Runs after the program's atexit() functions and static destructors, because these may still call Ronda and may shut
// it down. Changes nothing in this process, because other threads may still be in calls and hold locks. A separate
// thread does the work that may block, and the exiting thread waits for it only briefly. If all programs of a job exit
// without ronda_shutdown(), this announcement keeps the last ranks from reporting the first ones as failed.
[[gnu::destructor]] void AnnounceExit() {
  const Globals* const globals = current_globals.load(std::memory_order_acquire);
  if (globals == nullptr || globals->process != getpid() || !globals->runtime.Exists()) return;
  SetLogLevel(LogLevel::kOff);
  try {
    std::packaged_task<void()> tell([globals] {
      if (const std::shared_ptr<Session> session = globals->runtime.Get()) session->runtime().AnnounceExit();
    });
    const std::future<void> told = tell.get_future();
    std::thread(std::move(tell)).detach();
    told.wait_for(kExitTimeout);
  } catch (const std::exception&) {
    // Without memory or a thread for the announcement, the other ranks still see that the process has exited.
  }
}

// Returns whether `status` is the failure of this thread's job.
bool IsFailureOfJob(const absl::Status& status) {
  if (status.ok()) return false;
  const std::shared_ptr<Session> session = CurrentSession();
  return session != nullptr && session->runtime().failure() == status;
}

Globals& MakeGlobals() {
  // If pthread_atfork() runs out of memory, the globals could not be allocated either.
  static const int registered = pthread_atfork(nullptr, nullptr, LeaveTheParentsJob);
  if (registered != 0) throw std::bad_alloc();
  auto made = std::make_unique<Globals>();
  Globals* existing = nullptr;
  if (!current_globals.compare_exchange_strong(existing, made.get(), std::memory_order_acq_rel)) return *existing;
  return *made.release();
}

}  // namespace

Globals& globals() {
  Globals* const existing = current_globals.load(std::memory_order_acquire);
  return existing != nullptr ? *existing : MakeGlobals();
}

Scratch& scratch() { return PerThread<Scratch>::Get(); }

std::shared_ptr<Session> CurrentSession() {
  return RankContexts::Current() == 0 ? globals().runtime.Get() : RankContexts::CurrentSession();
}

const char* LastErrorText() { return last_error; }

ronda_status FailWith(Outcome outcome) {
  // An empty text means that there was no memory for the text.
  if (outcome.text.empty()) return FailWithLiteral(outcome.code, "out of memory");
  std::string& storage = PerThread<LastErrorStorage>::Get().text;
  storage = std::move(outcome.text);
  last_error = storage.c_str();
  return outcome.code;
}

ronda_status FailWithLiteral(ronda_status code, const char* text) noexcept {
  last_error = text;
  return code;
}

ronda_status FailWithException(const std::exception& error) noexcept {
  // The exception owns its text. Copying the text may throw again, which would end the process because of noexcept.
  try {
    const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
    if (of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again) {
      return FailWith({RONDA_ERROR_OUT_OF_MEMORY, DescribeThreadError(EAGAIN)});
    }
    return FailWith({RONDA_ERROR_INTERNAL, error.what()});
  } catch (...) {
    return FailWithLiteral(RONDA_ERROR_INTERNAL, "an exception was thrown, and there is no memory for its text");
  }
}

Outcome Failure(const absl::Status& status, Answer from) {
  const bool is_of_job = from == Answer::kSubmission && IsFailureOfJob(status);
  return {ToRondaStatus(status.code(), is_of_job ? Answer::kCompletion : from), std::string(status.message())};
}

Outcome NullArgument(absl::string_view function, absl::string_view argument) {
  return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": ", argument, " is NULL: pass where to write it")};
}

Outcome NullText(absl::string_view function, absl::string_view argument) {
  return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": ", argument, " is NULL: pass a text")};
}

absl::StatusOr<absl::Duration> DeadlineOf(absl::string_view function, double timeout_s) {
  if (std::isnan(timeout_s)) {
    return absl::InvalidArgumentError(absl::StrCat(function, ": timeout_s is not a number"));
  }
  if (timeout_s < 0) return absl::InfiniteDuration();
  return MonotonicTime() + absl::Seconds(timeout_s);
}

Outcome UnknownHandle(absl::string_view function, ronda_handle handle) {
  if (handle > 0 && CurrentSession() == nullptr) return NotInitialized();
  return {RONDA_ERROR_INVALID_ARGUMENT,
          absl::StrCat(function, ": there is no handle ", handle, ": it was never given out, or it was released")};
}

}  // namespace ronda
