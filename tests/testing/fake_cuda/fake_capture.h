// SPDX-License-Identifier: Apache-2.0

// Captures the work of streams into graphs, by the rules of CUDA's programming guide ("Stream Capture").
#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CAPTURE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CAPTURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

extern "C" {

// The following functions return 0 or an error, as the plugin's functions do. Modes and states are numbered as in CUDA.
#define FAKE_CUDA_EXPORT __attribute__((visibility("default")))
FAKE_CUDA_EXPORT int fake_cuda_begin_capture(void* stream, int mode);
FAKE_CUDA_EXPORT int fake_cuda_end_capture(void* stream, void** graph);
FAKE_CUDA_EXPORT int fake_cuda_capture_state(void* stream, int* state, uint64_t* id);
FAKE_CUDA_EXPORT int fake_cuda_exchange_capture_mode(int* mode);  // of the calling thread

// Functions that a capture may forbid ("potentially unsafe API calls") call this first. If a capture forbids such
// functions on this thread, the capture becomes invalid.
FAKE_CUDA_EXPORT int fake_cuda_begin_unsafe_call();
// Functions that wait for the stream, or query whether it is idle, call this first.
FAKE_CUDA_EXPORT int fake_cuda_begin_wait_for_stream(void* stream);

// Creates a stream that counts as ordered with the default stream. As in CUDA, the default stream cannot be used while
// this stream is being captured. (The fake does not really order the work of the two streams.)
FAKE_CUDA_EXPORT int fake_cuda_create_blocking_stream(void** stream);

// Creates a second handle to the graph. Each handle must be destroyed once.
FAKE_CUDA_EXPORT int fake_cuda_copy_graph(void* graph, void** copy);
FAKE_CUDA_EXPORT int fake_cuda_launch_graph(void* graph, void* stream);
FAKE_CUDA_EXPORT int fake_cuda_destroy_graph(void* graph);

// Like fake_cuda_enqueue, for work that may be captured, and that a graph may therefore run several times. Calls
// `release(context)` once the work cannot run again, or immediately after an error.
FAKE_CUDA_EXPORT int fake_cuda_enqueue_owned(void* stream, void (*function)(void*), void* context,
                                             void (*release)(void*));
// Returns whether the stream is being captured.
FAKE_CUDA_EXPORT int fake_cuda_is_captured(void* stream);
}

namespace ronda::testing {

// A graph whose nodes are pieces of work. Thread-compatible; const functions are thread-safe.
class FakeGraph {
 public:
  using Nodes = std::set<size_t>;

  // Adds work that depends on the nodes `after`, and returns its node.
  size_t Add(std::function<void()> run, Nodes after);

  // Returns whether each of `nodes` is one of `ends`, or must run before one of `ends`.
  bool LeadTo(const Nodes& nodes, const Nodes& ends) const;

  // Runs the work in the order in which it was captured or, if `seed` is not 0, in a random order that respects the
  // dependencies.
  void Run(uint64_t seed) const;

 private:
  struct Node {
    std::function<void()> run;
    Nodes after;
  };
  std::vector<Node> nodes_;
};

// A capture in progress. Thread-safe.
class FakeCapture {
 public:
  enum class Mode { kGlobal, kThreadLocal, kRelaxed };

  // Makes this thread begin to capture the stream whose FakeStream::id() is `origin`.
  FakeCapture(uint64_t origin, Mode mode);

  uint64_t id() const { return id_; }

  // Adds work to a captured stream. Returns 0, or an error if the capture is invalid or over.
  int Add(uint64_t stream, std::function<void()> run);
  // Returns the nodes on which the stream's next work will depend.
  FakeGraph::Nodes EndsOf(uint64_t stream) const;
  // Makes the stream's next work depend on these nodes, too.
  int Join(uint64_t stream, const FakeGraph::Nodes& nodes);

  // Returns `error`. After this call, the capture can only be ended, and produces no graph.
  int Invalidate(int error);
  bool is_valid() const;
  bool is_over() const;

  // Returns whether the capture forbids unsafe calls to the calling thread, whose capture mode is `mode_of_thread`.
  bool Forbids(Mode mode_of_thread) const;

  // Ends the capture. *graph is nullptr after an error.
  int End(uint64_t stream, std::shared_ptr<const FakeGraph>* graph);

 private:
  const uint64_t id_;
  const uint64_t origin_;
  const Mode mode_;
  const std::thread::id thread_ = std::this_thread::get_id();
  mutable Mutex mu_;
  std::shared_ptr<FakeGraph> graph_ ABSL_GUARDED_BY(mu_) = std::make_shared<FakeGraph>();
  std::map<uint64_t, FakeGraph::Nodes> ends_ ABSL_GUARDED_BY(mu_);  // by stream
  bool is_valid_ ABSL_GUARDED_BY(mu_) = true;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CAPTURE_H_
