// SPDX-License-Identifier: Apache-2.0

// Makes Gloo a peer of the benchmarks. Gloo uses TCP over the loopback interface, and a file-based rendezvous. The peer
// offers every allreduce algorithm of Debian's libgloo (2022), so that the benchmark can choose the fastest.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/peers/peer.h"

// An operation and its arguments, ready to run.
struct ronda_bench_prepared {
  std::function<void()> run;
};

namespace ronda::bench {
namespace {

using Call = ronda_bench_call;
using Prepared = ronda_bench_prepared;

// This process' membership. Finalize() leaves the job; a static destructor does not.
struct OwnRank {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::string error;
};

OwnRank& Self() {
  static auto* const self = new OwnRank;
  return *self;
}

// Runs `body`, and reports an exception as an error of the peer's functions.
int Guard(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    Self().error = error.what();
    return 1;
  }
}

enum class Allreduce { kRing, kBcube, kOldRing, kRingChunked, kHalvingDoubling, kOldBcube };
constexpr const char* kAllreduceNames[] = {"ring",         "bcube", "ring (class)", "ring chunked", "halving doubling",
                                           "bcube (class)"};
constexpr int kAllreduceCount = 6;

// Returns whether the number of ranks is a power of two, as Gloo's hypercube algorithms require.
bool HasHypercube() { return (Self().context->size & (Self().context->size - 1)) == 0; }

template <typename T>
void Sum(void* output, const void* left, const void* right, size_t count) {
  gloo::sum<T>(output, left, right, count);
}

// Gloo does not write to inputs, although it takes them as non-const pointers.
template <typename T>
T* InputOf(const Call& call) {
  return static_cast<T*>(const_cast<void*>(call.input));
}

template <typename T>
std::function<void()> WithOptions(const Call& call, gloo::AllreduceOptions::Algorithm algorithm) {
  const auto options = std::make_shared<gloo::AllreduceOptions>(Self().context);
  options->setAlgorithm(algorithm);
  if (call.input != call.output) options->setInput(InputOf<T>(call), call.count);
  options->setOutput(static_cast<T*>(call.output), call.count);
  options->setReduceFunction(Sum<T>);
  return [options] { gloo::allreduce(*options); };
}

// Returns a function that runs one of Gloo's algorithm classes, all of which reduce in place.
template <typename Algorithm, typename T>
std::function<void()> WithClass(const Call& call) {
  const auto algorithm = std::make_shared<Algorithm>(Self().context, std::vector<T*>{static_cast<T*>(call.output)},
                                                     static_cast<int>(call.count));
  return [algorithm, call] {
    if (call.input != call.output) std::memcpy(call.output, call.input, call.count * sizeof(T));
    algorithm->run();
  };
}

template <typename T>
std::function<void()> PrepareAllreduce(const Call& call, int algorithm) {
  switch (static_cast<Allreduce>(algorithm)) {
    case Allreduce::kRing:
      return WithOptions<T>(call, gloo::AllreduceOptions::Algorithm::RING);
    case Allreduce::kBcube:
      return WithOptions<T>(call, gloo::AllreduceOptions::Algorithm::BCUBE);
    case Allreduce::kOldRing:
      return WithClass<gloo::AllreduceRing<T>, T>(call);
    case Allreduce::kRingChunked:
      return WithClass<gloo::AllreduceRingChunked<T>, T>(call);
    case Allreduce::kHalvingDoubling:
      return WithClass<gloo::AllreduceHalvingDoubling<T>, T>(call);
    case Allreduce::kOldBcube:
      return WithClass<gloo::AllreduceBcube<T>, T>(call);
  }
  return nullptr;
}

template <typename T>
std::function<void()> PrepareReduce(const Call& call) {
  const auto options = std::make_shared<gloo::ReduceOptions>(Self().context);
  if (call.input != call.output) options->setInput(InputOf<T>(call), call.count);
  options->setOutput(static_cast<T*>(call.output), call.count);
  options->setRoot(0);
  options->setReduceFunction(Sum<T>);
  return [options] { gloo::reduce(*options); };
}

template <typename T>
std::function<void()> PrepareBroadcast(const Call& call) {
  const auto options = std::make_shared<gloo::BroadcastOptions>(Self().context);
  options->setOutput(static_cast<T*>(call.output), call.count);
  options->setRoot(0);
  return [options] { gloo::broadcast(*options); };
}

template <typename T>
std::function<void()> PrepareAllgather(const Call& call) {
  const auto options = std::make_shared<gloo::AllgatherOptions>(Self().context);
  options->setInput(InputOf<T>(call), call.count);
  options->setOutput(static_cast<T*>(call.output), call.count * static_cast<size_t>(Self().context->size));
  return [options] { gloo::allgather(*options); };
}

template <typename T>
std::function<void()> PrepareAlltoall(const Call& call) {
  const size_t elements = call.count * static_cast<size_t>(Self().context->size);
  const auto options = std::make_shared<gloo::AlltoallOptions>(Self().context);
  options->setInput(InputOf<T>(call), elements);
  options->setOutput(static_cast<T*>(call.output), elements);
  return [options] { gloo::alltoall(*options); };
}

std::function<void()> PrepareBarrier() {
  const auto options = std::make_shared<gloo::BarrierOptions>(Self().context);
  return [options] { gloo::barrier(*options); };
}

template <typename T>
std::function<void()> PrepareOf(const Call& call, int algorithm) {
  switch (call.op) {
    case RONDA_BENCH_ALLREDUCE:
      return PrepareAllreduce<T>(call, algorithm);
    case RONDA_BENCH_REDUCE:
      return PrepareReduce<T>(call);
    case RONDA_BENCH_BROADCAST:
      return PrepareBroadcast<T>(call);
    case RONDA_BENCH_ALLGATHER:
      return PrepareAllgather<T>(call);
    case RONDA_BENCH_ALLTOALL:
      return PrepareAlltoall<T>(call);
    case RONDA_BENCH_BARRIER:
      return PrepareBarrier();
    default:
      return nullptr;
  }
}

std::function<void()> PrepareAny(const Call& call, int algorithm) {
  switch (call.dtype) {
    case RONDA_BENCH_FLOAT32:
      return PrepareOf<float>(call, algorithm);
    case RONDA_BENCH_FLOAT64:
      return PrepareOf<double>(call, algorithm);
    case RONDA_BENCH_FLOAT16:
      return PrepareOf<gloo::float16>(call, algorithm);
    case RONDA_BENCH_INT32:
      return PrepareOf<int32_t>(call, algorithm);
    case RONDA_BENCH_INT64:
      return PrepareOf<int64_t>(call, algorithm);
    case RONDA_BENCH_UINT8:
      return PrepareOf<uint8_t>(call, algorithm);
    default:
      return nullptr;
  }
}

int Init(int rank, int size, const char* directory) {
  return Guard([&] {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    gloo::rendezvous::FileStore store(directory);
    context->connectFullMesh(store, device);
    Self().context = std::move(context);
  });
}

const char* Description() { return "Gloo (Debian's libgloo of 2022, TCP over loopback)"; }

int AlgorithmCount(const Call* call) {
  switch (call->op) {
    case RONDA_BENCH_ALLREDUCE:
      return HasHypercube() ? kAllreduceCount : kAllreduceCount - 1;
    case RONDA_BENCH_REDUCESCATTER:
      return 0;  // Gloo's algorithm overwrites its input
    default:
      return 1;
  }
}

const char* AlgorithmName(const Call* call, int algorithm) {
  return call->op == RONDA_BENCH_ALLREDUCE ? kAllreduceNames[algorithm] : "gloo's own";
}

Prepared* Prepare(const Call* call, int algorithm) {
  auto prepared = std::make_unique<Prepared>();
  if (Guard([&] { prepared->run = PrepareAny(*call, algorithm); }) != 0) return nullptr;
  if (prepared->run != nullptr) return prepared.release();
  Self().error = "no such operation";
  return nullptr;
}

int Run(Prepared* prepared) { return Guard(prepared->run); }

void Release(Prepared* prepared) { delete prepared; }

void Finalize() { Self().context.reset(); }

const char* LastError() { return Self().error.c_str(); }

constexpr ronda_bench_peer kTable = {.version = RONDA_BENCH_PEER_VERSION,
                                     .init = Init,
                                     .description = Description,
                                     .algorithm_count = AlgorithmCount,
                                     .algorithm_name = AlgorithmName,
                                     .prepare = Prepare,
                                     .run = Run,
                                     .release = Release,
                                     .finalize = Finalize,
                                     .last_error = LastError};

}  // namespace
}  // namespace ronda::bench

extern "C" __attribute__((visibility("default"))) const ronda_bench_peer* ronda_bench_peer_functions() {
  return &ronda::bench::kTable;
}
