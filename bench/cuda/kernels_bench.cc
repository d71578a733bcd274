// How fast the CUDA kernels pack and unpack a model's gradients, next to the device's own copies:
//
//   bazel run //bench/cuda:kernels_bench
//
// Every line counts the bytes read and the bytes written, once each, copies too: a copy moves as many elements as the
// model has, in float32. Contestants take turns, so that all have the same clocks; figures are medians over the
// rounds. "host us" is what one call costs the thread that makes it.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/shapes/presets.h"
#include "bench/statistics.h"
#include "bench/table.h"
#include "kernels/cpu/fp8_format.h"
#include "kernels/cuda/device_kernels.h"

namespace ronda::bench {
namespace {

using kernels::Scale;
using kernels::cuda::PackCall;
using kernels::cuda::PackSegment;
using kernels::cuda::UnpackCall;
using kernels::cuda::UnpackSegment;
using kernels::cuda::Wire;

constexpr int kRounds = 21;
constexpr int kCallsARound = 10;
constexpr int kWarmUpRounds = 3;

// Ends the program if a call to CUDA failed.
void Check(int error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::exit(1);
}

struct FreeDeviceMemory {
  void operator()(uint8_t* memory) const { cudaFree(memory); }
};
using DeviceBytes = std::unique_ptr<uint8_t, FreeDeviceMemory>;

DeviceBytes AllocateOnDevice(size_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes), "cudaMalloc");
  Check(cudaMemset(memory, 0, bytes), "cudaMemset");
  return DeviceBytes(static_cast<uint8_t*>(memory));
}

size_t RoundedUp(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

size_t WireBytes(const Wire& wire, size_t count) {
  return wire.blocks == Wire::Blocks::kNone ? count * SizeOf(wire.dtype) : kernels::Fp8Bytes(count);
}

// A model's gradients, float32, in memory of the device, each where an allocator would have put it.
class Gradients {
 public:
  explicit Gradients(const ModelShapes& model) {
    size_t bytes = 0;
    for (const Parameter& parameter : model.parameters) {
      const auto count = static_cast<size_t>(parameter.count());
      places_.push_back({bytes, count});
      bytes += RoundedUp(count * sizeof(float), 512);
      count_ += count;
    }
    memory_ = AllocateOnDevice(bytes);
  }

  struct Place {
    size_t begin;  // bytes
    size_t count;
  };
  const std::vector<Place>& places() const { return places_; }
  uint8_t* At(const Place& place) const { return memory_.get() + place.begin; }
  size_t bytes() const { return count_ * sizeof(float); }

 private:
  std::vector<Place> places_;
  size_t count_ = 0;
  DeviceBytes memory_;
};

// A bucket of all gradients, on a wire of this format.
struct Bucket {
  Bucket(const Gradients& gradients, const Wire& bucket_wire) : wire(bucket_wire) {
    size_t offset = 0;
    for (const Gradients::Place& place : gradients.places()) {
      pack.push_back({.input = gradients.At(place), .count = place.count, .offset = offset});
      unpack.push_back({.output = gradients.At(place), .count = place.count, .offset = offset});
      const size_t bytes = WireBytes(wire, place.count);
      moved += place.count * sizeof(float) + bytes;
      offset += RoundedUp(bytes, 16);
    }
    buffer = AllocateOnDevice(offset);
  }

  PackCall Pack() const {
    return {.segments = pack.data(),
            .segment_count = static_cast<int>(pack.size()),
            .wire = wire,
            .scale = scale,
            .buffer = buffer.get()};
  }
  UnpackCall Unpack() const {
    return {.segments = unpack.data(),
            .segment_count = static_cast<int>(unpack.size()),
            .wire = wire,
            .scale = scale,
            .buffer = buffer.get()};
  }

  Wire wire;
  Scale scale = {.divisor = 8};
  std::vector<PackSegment> pack;
  std::vector<UnpackSegment> unpack;
  DeviceBytes buffer;
  size_t moved = 0;
};

struct Contestant {
  std::string name;
  size_t bytes;  // moved by a call
  std::function<int(cudaStream_t)> call;
  std::vector<double> device_us = {};
  std::vector<double> host_us = {};
};

// Times contestants on a stream of its own.
class Stopwatch {
 public:
  Stopwatch() {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // One round of calls, one right after the other.
  void Time(Contestant& contestant) const {
    using Clock = std::chrono::steady_clock;
    Check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    const auto start = Clock::now();
    for (int i = 0; i < kCallsARound; ++i) Check(contestant.call(stream_), contestant.name.c_str());
    const std::chrono::duration<double, std::micro> host = Clock::now() - start;
    Check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    Check(cudaEventSynchronize(end_), contestant.name.c_str());
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    contestant.device_us.push_back(1e3 * ms / kCallsARound);
    contestant.host_us.push_back(host.count() / kCallsARound);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

double Rate(const Contestant& contestant) {  // GB/s
  return static_cast<double>(contestant.bytes) / Median(contestant.device_us) / 1e3;
}

void Compete(std::vector<Contestant>& contestants) {
  const Stopwatch stopwatch;
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    for (Contestant& contestant : contestants) {
      stopwatch.Time(contestant);
      if (round >= 0) continue;
      contestant.device_us.clear();
      contestant.host_us.clear();
    }
  }
}

// The first is the copy.
void Print(const std::string& model, const std::vector<Contestant>& contestants) {
  const Table table({{.title = model, .width = 22, .align = Table::Column::Align::kLeft},
                     {.title = "MB", .width = 8},
                     {.title = "us", .width = 9},
                     {.title = "GB/s", .width = 8},
                     {.title = "% of copy", .width = 9},
                     {.title = "host us", .width = 8}});
  std::fputs(table.Header().c_str(), stdout);
  for (const Contestant& contestant : contestants) {
    const double share = 100 * Rate(contestant) / Rate(contestants.front());
    std::fputs(table
                   .Row({contestant.name, Fixed(static_cast<double>(contestant.bytes) / 1e6, 1),
                         Fixed(Median(contestant.device_us), 1), Fixed(Rate(contestant), 0), Fixed(share, 1),
                         Fixed(Median(contestant.host_us), 1)})
                   .c_str(),
               stdout);
  }
  std::fputs("\n", stdout);
}

void Benchmark(const ModelShapes& model) {
  const Gradients gradients(model);
  const DeviceBytes copy = AllocateOnDevice(gradients.bytes());
  const DeviceBytes copied = AllocateOnDevice(gradients.bytes());
  std::vector<Contestant> contestants = {{"copy", 2 * gradients.bytes(), [&](cudaStream_t stream) {
                                            return cudaMemcpyAsync(copied.get(), copy.get(), gradients.bytes(),
                                                                   cudaMemcpyDeviceToDevice, stream);
                                          }}};
  const std::pair<const char*, Wire> wires[] = {{"float32", {.dtype = DType::kFloat32}},
                                                {"float16", {.dtype = DType::kFloat16}},
                                                {"bfloat16", {.dtype = DType::kBfloat16}},
                                                {"fp8 E4M3", {.blocks = Wire::Blocks::kE4M3}}};
  std::vector<std::unique_ptr<Bucket>> buckets;
  for (const auto& [name, wire] : wires) {
    const Bucket& bucket = *buckets.emplace_back(std::make_unique<Bucket>(gradients, wire));
    contestants.push_back({absl::StrCat("pack to ", name), bucket.moved, [&bucket](cudaStream_t stream) {
                             return kernels::cuda::DevicePack(bucket.Pack(), stream);
                           }});
    contestants.push_back({absl::StrCat("unpack from ", name), bucket.moved, [&bucket](cudaStream_t stream) {
                             return kernels::cuda::DeviceUnpack(bucket.Unpack(), stream);
                           }});
  }
  Compete(contestants);
  Print(absl::StrCat(model.name, ", ", model.parameters.size()), contestants);
}

int Main() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("no GPU: %s\n", error != cudaSuccess ? cudaGetErrorString(error) : "the driver knows none");
    return 0;
  }
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("# %s, %d multiprocessors; medians of %d rounds of %d calls\n", properties.name,
              properties.multiProcessorCount, kRounds, kCallsARound);
  for (const char* name : {"resnet50", "bert-large"}) {
    const auto model = PresetShapes(name);
    if (!model.ok()) {
      std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
      return 1;
    }
    Benchmark(*model);
  }
  return 0;
}

}  // namespace
}  // namespace ronda::bench

int main() { return ronda::bench::Main(); }
