// SPDX-License-Identifier: Apache-2.0

// Functions that capture streams as graphs (tests/testing/fake_cuda/fake_capture.h), and launch the graphs.
#include <cuda_runtime_api.h>

#include "tests/testing/fake_cudart/fake_device.h"
#include "tests/testing/fake_cudart/results.h"

namespace {

using ronda::testing::DefaultOr;
using ronda::testing::FakeDevices;
using ronda::testing::Result;

cudaError_t StateOf(cudaStream_t stream, cudaStreamCaptureStatus* status, uint64_t* id) {
  int state = 0;
  const int error = FakeDevices::Get().capture_state(DefaultOr(stream), &state, id);
  *status = static_cast<cudaStreamCaptureStatus>(state);
  return Result(error);
}

cudaError_t Copy(cudaGraphExec_t* copy, cudaGraph_t graph) {
  return Result(FakeDevices::Get().copy_graph(graph, reinterpret_cast<void**>(copy)));
}

}  // namespace

EXPORTED cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Result(FakeDevices::Get().begin_capture(DefaultOr(stream), mode));
}
EXPORTED cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Result(FakeDevices::Get().end_capture(DefaultOr(stream), reinterpret_cast<void**>(graph)));
}

EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  uint64_t id = 0;
  return StateOf(stream, status, &id);
}
EXPORTED cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                              unsigned long long* id, cudaGraph_t* graph,
                                              const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                              size_t* count) {
  uint64_t number = 0;
  const cudaError_t error = StateOf(stream, status, &number);
  if (id != nullptr) *id = number;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return error;
}
EXPORTED cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  int exchanged = *mode;
  const int error = FakeDevices::Get().exchange_capture_mode(&exchanged);
  *mode = static_cast<cudaStreamCaptureMode>(exchanged);
  return Result(error);
}

EXPORTED cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return Copy(executable, graph);
}
EXPORTED cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return Copy(executable, graph);
}
EXPORTED cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Result(FakeDevices::Get().launch_graph(executable, DefaultOr(stream)));
}
EXPORTED cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return Result(FakeDevices::Get().destroy_graph(graph)); }
EXPORTED cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Result(FakeDevices::Get().destroy_graph(executable));
}
EXPORTED cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  *count = 1;  // PyTorch warns of graphs without nodes
  return cudaSuccess;
}
