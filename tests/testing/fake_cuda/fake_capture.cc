// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cuda/fake_capture.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "tests/testing/fake_cuda/fake_calls.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

std::atomic<uint64_t> captures_so_far{0};

}  // namespace

size_t FakeGraph::Add(std::function<void()> run, Nodes after) {
  nodes_.push_back({.run = std::move(run), .after = std::move(after)});
  return nodes_.size() - 1;
}

bool FakeGraph::LeadTo(const Nodes& nodes, const Nodes& ends) const {
  Nodes before = ends;
  // A node depends only on nodes with smaller numbers.
  for (size_t node = nodes_.size(); node-- > 0;) {
    if (before.count(node) != 0) before.insert(nodes_[node].after.begin(), nodes_[node].after.end());
  }
  return std::includes(before.begin(), before.end(), nodes.begin(), nodes.end());
}

void FakeGraph::Run(uint64_t seed) const {
  std::mt19937 random(seed);
  std::vector<Nodes> missing;
  Nodes ready;
  for (const Node& node : nodes_) {
    if (node.after.empty()) ready.insert(missing.size());
    missing.push_back(node.after);
  }
  while (!ready.empty()) {
    const auto next = std::next(ready.begin(), seed == 0 ? 0 : static_cast<ptrdiff_t>(random() % ready.size()));
    const size_t done = *next;
    ready.erase(next);
    nodes_[done].run();
    for (size_t node = done + 1; node < nodes_.size(); ++node) {
      if (missing[node].erase(done) == 1 && missing[node].empty()) ready.insert(node);
    }
  }
}

FakeCapture::FakeCapture(uint64_t origin, Mode mode) : id_(++captures_so_far), origin_(origin), mode_(mode) {}

int FakeCapture::Add(uint64_t stream, std::function<void()> run) {
  const MutexLock lock(&mu_);
  if (!is_valid_ || is_over_) return kCudaCaptureInvalidated;
  FakeGraph::Nodes& ends = ends_[stream];
  ends = {graph_->Add(std::move(run), std::move(ends))};
  return kCudaSuccess;
}

FakeGraph::Nodes FakeCapture::EndsOf(uint64_t stream) const {
  const MutexLock lock(&mu_);
  const auto found = ends_.find(stream);
  return found == ends_.end() ? FakeGraph::Nodes() : found->second;
}

int FakeCapture::Join(uint64_t stream, const FakeGraph::Nodes& nodes) {
  const MutexLock lock(&mu_);
  if (!is_valid_) return kCudaCaptureInvalidated;
  ends_[stream].insert(nodes.begin(), nodes.end());
  return kCudaSuccess;
}

int FakeCapture::Invalidate(int error) {
  const MutexLock lock(&mu_);
  is_valid_ = false;
  return error;
}

bool FakeCapture::is_valid() const {
  const MutexLock lock(&mu_);
  return is_valid_;
}

bool FakeCapture::is_over() const {
  const MutexLock lock(&mu_);
  return is_over_;
}

bool FakeCapture::Forbids(Mode mode_of_thread) const {
  if (is_over() || mode_ == Mode::kRelaxed || mode_of_thread == Mode::kRelaxed) return false;
  if (thread_ == std::this_thread::get_id()) return true;
  return mode_ == Mode::kGlobal && mode_of_thread == Mode::kGlobal;
}

int FakeCapture::End(uint64_t stream, std::shared_ptr<const FakeGraph>* graph) {
  *graph = nullptr;
  const MutexLock lock(&mu_);
  if (stream != origin_) return kCudaCaptureUnmatched;
  if (mode_ != Mode::kRelaxed && thread_ != std::this_thread::get_id()) return kCudaCaptureWrongThread;
  is_over_ = true;
  const std::shared_ptr<const FakeGraph> captured = std::exchange(graph_, nullptr);
  if (!is_valid_) return kCudaCaptureInvalidated;
  const FakeGraph::Nodes ends = ends_[origin_];
  const bool are_joined = std::all_of(ends_.begin(), ends_.end(),
                                      [&](const auto& stream) { return captured->LeadTo(stream.second, ends); });
  if (!are_joined) return kCudaCaptureUnjoined;
  *graph = captured;
  return kCudaSuccess;
}

}  // namespace ronda::testing

using namespace ronda::testing;  // NOLINT: these are functions of the fake, outside its namespace as C has none

int fake_cuda_enqueue_owned(void* stream, void (*function)(void*), void* context, void (*release)(void*)) {
  const std::shared_ptr<void> owned(context, release);
  return Enqueue(stream, [=] { function(owned.get()); });
}

int fake_cuda_is_captured(void* stream) {
  int state = 0;
  uint64_t id = 0;
  return fake_cuda_capture_state(stream, &state, &id) != 0 || state != 0 ? 1 : 0;
}

int fake_cuda_begin_capture(void* stream, int mode) {
  if (stream == nullptr) return kCudaCaptureUnsupported;
  return WithStream(stream, [=](FakeStream& known) {
    if (known.capture() != nullptr) return kCudaIllegalState;
    const auto capture = std::make_shared<FakeCapture>(known.id(), static_cast<FakeCapture::Mode>(mode));
    Machine().AddCapture(capture);
    known.set_capture(capture);
    return kCudaSuccess;
  });
}

int fake_cuda_end_capture(void* stream, void** graph) {
  *graph = nullptr;
  return WithStream(stream, [=](FakeStream& known) -> int {
    const auto capture = known.capture();
    if (capture == nullptr) return kCudaIllegalState;
    std::shared_ptr<const FakeGraph> captured;
    const int error = capture->End(known.id(), &captured);
    if (captured != nullptr) *graph = Machine().AddGraph(std::move(captured));
    return error;
  });
}

int fake_cuda_capture_state(void* stream, int* state, uint64_t* id) {
  return WithStream(stream, [=](const FakeStream& known) {
    *state = 0;
    *id = 0;
    // This query does not invalidate a capture.
    if (stream == nullptr && Machine().CaptureBesideDefaultStream(known.device()) != nullptr) {
      return kCudaCaptureImplicit;
    }
    if (const auto capture = known.capture()) {
      *state = capture->is_valid() ? 1 : 2;
      *id = capture->id();
    }
    return kCudaSuccess;
  });
}

int fake_cuda_exchange_capture_mode(int* mode) {
  std::swap(*mode, this_threads_capture_mode);
  return kCudaSuccess;
}

int fake_cuda_begin_unsafe_call() {
  const auto mode = static_cast<FakeCapture::Mode>(this_threads_capture_mode);
  int error = kCudaSuccess;
  for (const auto& capture : Machine().captures()) {
    if (capture->Forbids(mode)) error = capture->Invalidate(kCudaCaptureUnsupported);
  }
  return error;
}

int fake_cuda_begin_wait_for_stream(void* stream) {
  return WithStreamForWork(stream, [](const FakeStream& known) -> int {
    const auto capture = known.capture();
    return capture == nullptr ? 0 : capture->Invalidate(kCudaCaptureUnsupported);
  });
}

int fake_cuda_create_blocking_stream(void** stream) {
  if (const int error = ErrorOfOpening(); error != 0) return error;
  *stream = Machine().CreateStream(this_threads_device);
  Machine().StreamOf(*stream, this_threads_device)->set_blocking();
  return kCudaSuccess;
}

int fake_cuda_copy_graph(void* graph, void** copy) {
  *copy = nullptr;
  const auto known = Machine().GraphOf(graph);
  if (known == nullptr) return kCudaInvalidValue;
  *copy = Machine().AddGraph(known);
  return kCudaSuccess;
}

int fake_cuda_launch_graph(void* graph, void* stream) {
  static std::atomic<uint64_t> launches{0};
  const auto known = Machine().GraphOf(graph);
  if (known == nullptr) return kCudaInvalidValue;
  const uint64_t delay_seed = Machine().options().delay_seed;
  const uint64_t seed = delay_seed == 0 ? 0 : delay_seed + launches.fetch_add(1);
  return Enqueue(stream, [known, seed] { known->Run(seed); });
}

int fake_cuda_destroy_graph(void* graph) { return Machine().DestroyGraph(graph) ? kCudaSuccess : kCudaInvalidValue; }
