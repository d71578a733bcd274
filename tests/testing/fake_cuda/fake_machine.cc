// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cuda/fake_machine.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"

namespace ronda::testing {
namespace {

std::atomic<uint64_t> streams_so_far{0};

}  // namespace

uint64_t FakeQueue::Enter() {
  const MutexLock lock(&mu_);
  return entered_++;
}

void FakeQueue::AwaitTurn(uint64_t place) {
  const MutexLock lock(&mu_);
  while (left_ != place) changed_.Wait(&mu_);
}

void FakeQueue::Leave() {
  {
    const MutexLock lock(&mu_);
    ++left_;
  }
  changed_.NotifyAll();
}

FakeStream::FakeStream(int device, std::shared_ptr<FakeQueue> queue, uint64_t delay_seed)
    : device_(device),
      queue_(std::move(queue)),
      id_(++streams_so_far),
      random_(delay_seed),
      delay_seed_(delay_seed),
      thread_([this] { Run(); }) {}

FakeStream::~FakeStream() {
  {
    const MutexLock lock(&mu_);
    is_closing_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

int FakeStream::Enqueue(std::function<void()> run, Task task) {
  {
    const MutexLock lock(&mu_);
    if (capture_ != nullptr && !capture_->is_over()) return capture_->Add(id_, std::move(run));
    tasks_.push_back({.run = std::move(run), .task = task, .place = queue_->Enter()});
  }
  changed_.NotifyAll();
  return kCudaSuccess;
}

std::shared_ptr<FakeCapture> FakeStream::capture() const {
  const MutexLock lock(&mu_);
  return capture_ != nullptr && !capture_->is_over() ? capture_ : nullptr;
}

void FakeStream::set_capture(std::shared_ptr<FakeCapture> capture) {
  const MutexLock lock(&mu_);
  capture_ = std::move(capture);
}

bool FakeStream::IsIdle() const {
  const MutexLock lock(&mu_);
  return tasks_.empty();
}

void FakeStream::SetCapturing(int capturing) {
  const MutexLock lock(&mu_);
  capturing_ = capturing;
}

int FakeStream::capturing() const {
  const MutexLock lock(&mu_);
  return capturing_;
}

void FakeStream::Run() {
  while (true) {
    Entry entry;
    {
      const MutexLock lock(&mu_);
      while (tasks_.empty() && !is_closing_) changed_.Wait(&mu_);
      if (tasks_.empty()) return;
      entry = tasks_.front();
    }
    RunEntry(entry);
    entry.run = nullptr;
    const MutexLock lock(&mu_);
    tasks_.pop_front();
  }
}

void FakeStream::RunEntry(const Entry& entry) {
  queue_->AwaitTurn(entry.place);
  if (entry.task == Task::kWork) queue_->Leave();
  Pause();
  entry.run();
  if (entry.task == Task::kWait) queue_->Leave();
}

// Before about every fourth task, sleeps for up to 0.2 ms.
void FakeStream::Pause() {
  if (delay_seed_ == 0 || random_() % 4 != 0) return;
  absl::SleepFor(absl::Microseconds(random_() % 200));
}

void FakeEvent::RecordCaptured(Captured captured) {
  const MutexLock lock(&mu_);
  captured_ = std::move(captured);
}

FakeEvent::Captured FakeEvent::captured() const {
  const MutexLock lock(&mu_);
  return captured_;
}

uint64_t FakeEvent::Record() {
  const MutexLock lock(&mu_);
  captured_ = {};
  incomplete_.insert(++recorded_);
  return recorded_;
}

void FakeEvent::Pass(uint64_t recording) {
  {
    const MutexLock lock(&mu_);
    incomplete_.erase(recording);
    passed_at_ = SteadyNow();
  }
  changed_.NotifyAll();
}

uint64_t FakeEvent::last_recording() const {
  const MutexLock lock(&mu_);
  return recorded_;
}

bool FakeEvent::IsPassed(uint64_t recording) const {
  const MutexLock lock(&mu_);
  return !incomplete_.contains(recording);
}

void FakeEvent::AwaitPassing(uint64_t recording) const {
  const MutexLock lock(&mu_);
  while (incomplete_.contains(recording)) changed_.Wait(&mu_);
}

absl::Time FakeEvent::passed_at() const {
  const MutexLock lock(&mu_);
  return passed_at_;
}

namespace {

template <typename Object>
std::shared_ptr<Object> Find(const std::map<void*, std::shared_ptr<Object>>& objects, void* handle) {
  const auto found = objects.find(handle);
  return found == objects.end() ? nullptr : found->second;
}

}  // namespace

FakeMachine::FakeMachine(const FakeCuda::Options& options)
    : options_(options),
      memory_(options.devices, options.memory_bytes, options.host_access),
      errors_(options.devices),
      have_kernels_(options.devices),
      have_contexts_(options.devices),
      queues_(options.devices),
      default_streams_(options.devices) {
  for (Queues& queues : queues_) {
    for (int i = 0; i < options.queues; ++i) queues.all.push_back(std::make_shared<FakeQueue>());
  }
  for (std::atomic<bool>& has_kernels : have_kernels_) {
    has_kernels.store(options.loading == FakeCuda::Options::Loading::kEager);
  }
}

int FakeMachine::ErrorOf(int device) const {
  if (options_.driver_error != kCudaSuccess) return options_.driver_error;
  if (options_.devices == 0) return kCudaNoDevice;
  if (device < 0 || device >= options_.devices) return kCudaInvalidDevice;
  return errors_[device].load();
}

void FakeMachine::Report(int device, int error, absl::string_view what) {
  Log(LogLevel::kError, -1, absl::StrCat("fake CUDA, device ", device, ": ", what));
  FailDevice(device, error);
}

bool FakeMachine::MayUse(int device, const std::vector<const void*>& memory) {
  if (!memory_.IsAnyFreed(memory)) return true;
  Report(device, kCudaIllegalAddress, "a stream uses memory that has been freed before, in the order of the streams");
  return false;
}

void FakeMachine::RecordRange(const char* name) {
  const MutexLock lock(&mu_);
  ranges_.emplace_back(name);
}

std::vector<std::string> FakeMachine::TakeRanges() {
  const MutexLock lock(&mu_);
  return std::exchange(ranges_, {});
}

bool FakeMachine::Release(int device, void* memory) {
  return memory_.Release(device, memory, AreStreamsIdle() ? FakeMemory::Use::kOver : FakeMemory::Use::kPossible);
}

void FakeMachine::AwaitDevice(int device) const {
  while (!AreStreamsIdle(device)) absl::SleepFor(absl::Microseconds(50));
}

bool FakeMachine::AreStreamsIdle(std::optional<int> device) const {
  const auto is_idle = [device](const std::shared_ptr<FakeStream>& stream) {
    return stream == nullptr || (device.has_value() && stream->device() != *device) || stream->IsIdle();
  };
  const MutexLock lock(&mu_);
  return std::all_of(default_streams_.begin(), default_streams_.end(), is_idle) &&
         std::all_of(destroyed_streams_.begin(), destroyed_streams_.end(), is_idle) &&
         std::all_of(streams_.begin(), streams_.end(), [&](const auto& entry) { return is_idle(entry.second); });
}

std::shared_ptr<FakeStream> FakeMachine::NewStreamLocked(int device) {
  Queues& queues = queues_[device];
  return std::make_shared<FakeStream>(device, queues.all[queues.next++ % queues.all.size()], options_.delay_seed);
}

void* FakeMachine::CreateStream(int device) {
  std::vector<std::shared_ptr<FakeStream>> idle;  // joined after the lock is released
  const MutexLock lock(&mu_);
  std::shared_ptr<FakeStream> stream = NewStreamLocked(device);
  std::erase_if(destroyed_streams_, [&](std::shared_ptr<FakeStream>& old) {
    if (!old->IsIdle()) return false;
    idle.push_back(std::move(old));
    return true;
  });
  void* const handle = stream.get();
  streams_[handle] = std::move(stream);
  return handle;
}

bool FakeMachine::DestroyStream(void* handle) {
  const MutexLock lock(&mu_);
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return false;
  destroyed_streams_.push_back(std::move(found->second));
  streams_.erase(found);
  return true;
}

std::shared_ptr<FakeStream> FakeMachine::StreamOf(void* handle, int current_device) {
  const MutexLock lock(&mu_);
  if (handle != nullptr) return Find(streams_, handle);
  std::shared_ptr<FakeStream>& stream = default_streams_[current_device];
  if (stream == nullptr) stream = NewStreamLocked(current_device);
  return stream;
}

void FakeMachine::AddCapture(const std::shared_ptr<FakeCapture>& capture) {
  const MutexLock lock(&mu_);
  std::erase_if(captures_, [](const auto& earlier) { return earlier->is_over(); });
  captures_.push_back(capture);
}

std::vector<std::shared_ptr<FakeCapture>> FakeMachine::captures() const {
  const MutexLock lock(&mu_);
  return captures_;
}

std::shared_ptr<FakeCapture> FakeMachine::CaptureBesideDefaultStream(int device) const {
  const MutexLock lock(&mu_);
  for (const auto& [handle, stream] : streams_) {
    if (stream->device() != device || !stream->is_blocking()) continue;
    if (std::shared_ptr<FakeCapture> capture = stream->capture()) return capture;
  }
  return nullptr;
}

void* FakeMachine::AddGraph(std::shared_ptr<const FakeGraph> graph) {
  const MutexLock lock(&mu_);
  void* const handle = reinterpret_cast<void*>(++graphs_so_far_);  // any unique number
  graphs_[handle] = std::move(graph);
  return handle;
}

std::shared_ptr<const FakeGraph> FakeMachine::GraphOf(void* handle) {
  const MutexLock lock(&mu_);
  return Find(graphs_, handle);
}

bool FakeMachine::DestroyGraph(void* handle) {
  const MutexLock lock(&mu_);
  return graphs_.erase(handle) == 1;
}

void* FakeMachine::CreateEvent(int device, bool has_times) {
  auto event = std::make_shared<FakeEvent>(device, has_times);
  const MutexLock lock(&mu_);
  ++created_events_;
  void* const handle = event.get();
  events_[handle] = std::move(event);
  return handle;
}

bool FakeMachine::DestroyEvent(void* handle) {
  const MutexLock lock(&mu_);
  return events_.erase(handle) == 1;
}

std::shared_ptr<FakeEvent> FakeMachine::EventOf(void* handle) {
  const MutexLock lock(&mu_);
  return Find(events_, handle);
}

size_t FakeMachine::created_events() const {
  const MutexLock lock(&mu_);
  return created_events_;
}

std::string FakeMachine::Leaks() const {
  const MutexLock lock(&mu_);
  std::vector<std::string> leaks;
  if (!streams_.empty()) leaks.push_back(absl::StrCat(streams_.size(), " streams"));
  if (!events_.empty()) leaks.push_back(absl::StrCat(events_.size(), " events"));
  if (!graphs_.empty()) leaks.push_back(absl::StrCat(graphs_.size(), " graphs"));
  if (memory_.live() > 0) leaks.push_back(absl::StrCat(memory_.live(), " allocations"));
  return absl::StrJoin(leaks, ", ");
}

}  // namespace ronda::testing
