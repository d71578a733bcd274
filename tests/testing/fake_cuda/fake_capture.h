// SPDX-License-Identifier: Apache-2.0

// Captures the work of streams as graphs, by the rules of CUDA's programming guide ("Stream Capture").
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

// The following functions return 0, or an error as the plugin's functions do. Modes and states have CUDA's numbers.
#define FAKE_CUDA_EXPORT __attribute__((visibility("default")))
FAKE_CUDA_EXPORT int fake_cuda_begin_capture(void* stream, int mode);
FAKE_CUDA_EXPORT int fake_cuda_end_capture(void* stream, void** graph);
FAKE_CUDA_EXPORT int fake_cuda_capture_state(void* stream, int* state, uint64_t* id);
FAKE_CUDA_EXPORT int fake_cuda_exchange_capture_mode(int* mode);  // of the calling thread

// Called by functions that a capture may forbid ("potentially unsafe API calls"). If a capture forbids such functions
// to this thread, the capture becomes invalid.
FAKE_CUDA_EXPORT int fake_cuda_begin_unsafe_call();
// Called by functions that query whether the stream has finished its work, or that wait for this.
FAKE_CUDA_EXPORT int fake_cuda_begin_wait_for_stream(void* stream);

// Creates a stream that is treated as ordered with the default stream. As in CUDA, while this stream is captured, the
// default stream may not be used. (The fake does not order the work of the two streams.)
FAKE_CUDA_EXPORT int fake_cuda_create_blocking_stream(void** stream);

// Makes a second handle of the graph. Each handle is destroyed once.
FAKE_CUDA_EXPORT int fake_cuda_copy_graph(void* graph, void** copy);
FAKE_CUDA_EXPORT int fake_cuda_launch_graph(void* graph, void* stream);
FAKE_CUDA_EXPORT int fake_cuda_destroy_graph(void* graph);

// Like fake_cuda_enqueue, for work that may be captured. A graph may do such work several times. Calls
// `release(context)` when the work will not be done again, or at once after an error.
FAKE_CUDA_EXPORT int fake_cuda_enqueue_owned(void* stream, void (*function)(void*), void* context,
                                             void (*release)(void*));
// Returns whether the stream's work goes into a graph.
FAKE_CUDA_EXPORT int fake_cuda_is_captured(void* stream);
}

namespace ronda::testing {

// A graph of pieces of work, and of the dependencies between them. Thread-compatible; const functions are thread-safe.
class FakeGraph {
 public:
  using Nodes = std::set<size_t>;

  // Adds work that comes after the given nodes.
  size_t Add(std::function<void()> run, Nodes after);

  // Returns whether each of `nodes` is one of `ends`, or must run before one of `ends`.
  bool LeadTo(const Nodes& nodes, const Nodes& ends) const;

  // Does the work in an order that the dependencies allow. This is the order of the capture, or a random order if
  // `seed` is not 0.
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

  // Begins a capture by this thread in the stream with the number `origin` (FakeStream::id).
  FakeCapture(uint64_t origin, Mode mode);

  uint64_t id() const { return id_; }

  // Adds work to a stream of the capture, or returns the error of an invalid capture.
  int Add(uint64_t stream, std::function<void()> run);
  // Returns the last nodes of a stream, on which its next work depends.
  FakeGraph::Nodes EndsOf(uint64_t stream) const;
  // Makes the next work of a stream come after these nodes as well.
  int Join(uint64_t stream, const FakeGraph::Nodes& nodes);

  // Returns `error`. After this call, the capture can only be ended, and gives no graph.
  int Invalidate(int error);
  bool is_valid() const;
  bool is_over() const;

  // Returns whether the capture forbids unsafe calls to the calling thread, which has the mode `mode_of_thread`.
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
