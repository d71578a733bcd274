// SPDX-License-Identifier: Apache-2.0

// This benchmark compares the speed at which the CUDA kernels pack and unpack a model's gradients with the speed of the
// device's own copies:
//
//   RONDA_CUDA_PLUGIN=.bazel/bin/runtime/cuda/libronda_cuda.so .bazel/bin/bench/cuda/kernels_bench [--preset LIST]
//
// Every line counts both the bytes read and the bytes written, for copies too. A copy moves as many elements as the
// model has, in float32. Kernels run in turn, so a change in the GPU's clock rate affects all of them. Figures are
// medians over the rounds. "host us" is the CPU time that one call takes on the calling thread.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/cuda/gpu.h"
#include "bench/harness/arguments.h"
#include "bench/harness/model_shapes.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "kernels/dtype.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

using kernels::Scale;
using kernels::cuda::PackCall;
using kernels::cuda::PackSegment;
using kernels::cuda::UnpackCall;
using kernels::cuda::UnpackSegment;
using kernels::cuda::Wire;

constexpr int kCallsARound = 10;
constexpr int kWarmUpRounds = 3;

struct KernelsOptions {
  std::vector<std::string> presets = {"resnet50", "bert-large"};
  int rounds = 21;
};

size_t RoundedUp(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

size_t WireBytes(const Wire& wire, size_t count) {
  return wire.blocks == Wire::Blocks::kNone ? count * SizeOf(wire.dtype) : kernels::Fp8Bytes(count);
}

// A bucket of all gradients, packed in one wire format. The gradients must outlive the bucket.
class Bucket {
 public:
  static absl::StatusOr<std::unique_ptr<Bucket>> Create(const GpuGradients& gradients, const Wire& wire, Gpu* gpu) {
    auto bucket = std::unique_ptr<Bucket>(new Bucket(wire));
    size_t offset = 0;
    for (const GpuGradients::Tensor& tensor : gradients.tensors()) {
      bucket->pack_.push_back({.input = tensor.data, .count = tensor.count, .offset = offset});
      bucket->unpack_.push_back({.output = tensor.data, .count = tensor.count, .offset = offset});
      const size_t bytes = WireBytes(wire, tensor.count);
      bucket->moved_ += tensor.count * sizeof(float) + bytes;
      offset += RoundedUp(bytes, 16);
    }
    RONDA_ASSIGN_OR_RETURN(bucket->buffer_, gpu->Allocate(offset));
    return bucket;
  }

  PackCall Pack() const {
    return {.segments = pack_.data(),
            .segment_count = static_cast<int>(pack_.size()),
            .wire = wire_,
            .scale = scale_,
            .buffer = buffer_.data()};
  }
  UnpackCall Unpack() const {
    return {.segments = unpack_.data(),
            .segment_count = static_cast<int>(unpack_.size()),
            .wire = wire_,
            .scale = scale_,
            .buffer = buffer_.data()};
  }
  size_t moved() const { return moved_; }  // bytes, by a kernel or a copy

 private:
  explicit Bucket(const Wire& wire) : wire_(wire) {}

  const Wire wire_;
  const Scale scale_ = {.divisor = 8};
  std::vector<PackSegment> pack_;
  std::vector<UnpackSegment> unpack_;
  DeviceMemory buffer_;
  size_t moved_ = 0;
};

struct Kernel {
  std::string name;
  size_t bytes = 0;  // moved by a call
  Gpu::Submit call;
  enum class Conversion { kNone, kOther } conversion = Conversion::kNone;
  std::vector<double> device_us = {};
  std::vector<double> host_us = {};
};

// Calls the kernel kCallsARound times in a row.
absl::Status Time(Gpu* gpu, Kernel* kernel) {
  absl::Duration host;
  RONDA_ASSIGN_OR_RETURN(const absl::Duration device,
                         gpu->Time(kernel->name, [&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
                           const absl::Duration before = CpuTimeOfThisThread();
                           int error = 0;
                           for (int i = 0; i < kCallsARound && error == 0; ++i) error = kernel->call(cuda, stream);
                           host = CpuTimeOfThisThread() - before;
                           return error;
                         }));
  kernel->device_us.push_back(absl::ToDoubleMicroseconds(device) / kCallsARound);
  kernel->host_us.push_back(absl::ToDoubleMicroseconds(host) / kCallsARound);
  return absl::OkStatus();
}

absl::Status TimeInterleaved(int rounds, Gpu* gpu, std::vector<Kernel>* kernels) {
  for (int round = -kWarmUpRounds; round < rounds; ++round) {
    for (Kernel& kernel : *kernels) {
      RONDA_RETURN_IF_ERROR(Time(gpu, &kernel));
      if (round >= 0) continue;
      kernel.device_us.clear();
      kernel.host_us.clear();
    }
  }
  return absl::OkStatus();
}

double Rate(const Kernel& kernel) {  // GB/s
  return static_cast<double>(kernel.bytes) / Median(kernel.device_us) / 1e3;
}

// REQUIRES: the first of `kernels` is the copy, which is the baseline for the others.
void PrintTable(const std::string& model, const std::vector<Kernel>& kernels) {
  const Table table({{.title = model, .width = 22, .align = Table::Column::Align::kLeft},
                     {.title = "MB", .width = 8},
                     {.title = "us", .width = 9},
                     {.title = "GB/s", .width = 8},
                     {.title = "% of copy", .width = 9},
                     {.title = "host us", .width = 8}});
  std::fputs(table.Header().c_str(), stdout);
  for (const Kernel& kernel : kernels) {
    const double share = 100 * Rate(kernel) / Rate(kernels.front());
    std::fputs(
        table
            .Row({kernel.name, Fixed(static_cast<double>(kernel.bytes) / 1e6, 1), Fixed(Median(kernel.device_us), 1),
                  Fixed(Rate(kernel), 0), Fixed(share, 1), Fixed(Median(kernel.host_us), 1)})
            .c_str(),
        stdout);
  }
}

void PrintAims(const std::string& model, const std::vector<Kernel>& kernels) {
  const Kernel& copy = kernels.front();
  for (const Kernel& kernel : kernels) {
    if (kernel.conversion == Kernel::Conversion::kNone) continue;
    const std::string share = Fixed(100 * Rate(kernel) / Rate(copy), 1);
    std::fputs(AimLine(absl::StrCat(model, ", ", kernel.name),
                       absl::StrCat(share, " % of the rate of a copy, which is ", Fixed(Rate(copy), 0), " GB/s"),
                       "at least 85 %")
                   .c_str(),
               stdout);
  }
  std::fputs("\n", stdout);
}

Kernel Copy(size_t bytes, std::byte* to, const std::byte* from) {
  return {.name = "copy", .bytes = 2 * bytes, .call = [=](const ronda_cuda_plugin& cuda, StreamHandle stream) {
            return cuda.copy(to, from, bytes, stream);
          }};
}

void AddPair(const std::string& name, const Bucket& bucket, std::vector<Kernel>* kernels) {
  const auto conversion = name == "float32" ? Kernel::Conversion::kNone : Kernel::Conversion::kOther;
  kernels->push_back({.name = absl::StrCat("pack to ", name),
                      .bytes = bucket.moved(),
                      .call =
                          [&bucket](const ronda_cuda_plugin& cuda, StreamHandle stream) {
                            const PackCall call = bucket.Pack();
                            return cuda.pack(&call, stream);
                          },
                      .conversion = conversion});
  kernels->push_back({.name = absl::StrCat("unpack from ", name),
                      .bytes = bucket.moved(),
                      .call =
                          [&bucket](const ronda_cuda_plugin& cuda, StreamHandle stream) {
                            const UnpackCall call = bucket.Unpack();
                            return cuda.unpack(&call, stream);
                          },
                      .conversion = conversion});
}

absl::Status Benchmark(const ModelShapes& model, int rounds, Gpu* gpu) {
  RONDA_ASSIGN_OR_RETURN(const GpuGradients gradients, GpuGradients::Create(model, gpu));
  RONDA_ASSIGN_OR_RETURN(const DeviceMemory from, gpu->Allocate(gradients.bytes()));
  RONDA_ASSIGN_OR_RETURN(const DeviceMemory to, gpu->Allocate(gradients.bytes()));
  std::vector<Kernel> kernels = {Copy(gradients.bytes(), to.data(), from.data())};
  const std::pair<const char*, Wire> wires[] = {{"float32", {.dtype = DType::kFloat32}},
                                                {"float16", {.dtype = DType::kFloat16}},
                                                {"bfloat16", {.dtype = DType::kBfloat16}},
                                                {"fp8 E4M3", {.blocks = Wire::Blocks::kE4M3}}};
  std::vector<std::unique_ptr<Bucket>> buckets;
  for (const auto& [name, wire] : wires) {
    RONDA_ASSIGN_OR_RETURN(buckets.emplace_back(), Bucket::Create(gradients, wire, gpu));
    AddPair(name, *buckets.back(), &kernels);
  }
  RONDA_RETURN_IF_ERROR(TimeInterleaved(rounds, gpu, &kernels));
  const std::string title = absl::StrCat(model.name, ", ", model.parameters.size());
  PrintTable(title, kernels);
  PrintAims(absl::StrCat(title, " tensors"), kernels);
  return gpu->Finish();  // before the memory is freed
}

absl::Status Run(const KernelsOptions& options, Gpu* gpu) {
  std::printf("# %s; medians of %d rounds of %d calls\n", gpu->name().c_str(), options.rounds, kCallsARound);
  for (const std::string& name : options.presets) {
    RONDA_ASSIGN_OR_RETURN(const ModelShapes model, PresetShapes(name));
    RONDA_RETURN_IF_ERROR(Benchmark(model, options.rounds, gpu));
  }
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& words) {
  KernelsOptions options;
  Flags flags("kernels_bench", "Packs and unpacks the gradients of models on a GPU, beside copies.");
  flags.Add({.names = {"--preset"}, .value = "LIST", .help = "Models, or all (resnet50,bert-large)."},
            ChoiceList(&options.presets, PresetNames()));
  flags.Add({.names = {"--rounds"}, .value = "N", .help = "Rounds of calls of each kernel (21)."},
            Integer(&options.rounds, {.min = 1, .max = 100000}));
  if (const absl::Status parsed = flags.Parse(words); !parsed.ok()) {
    std::fprintf(stderr, "kernels_bench: %s\n", std::string(parsed.message()).c_str());
    return 2;
  }
  if (flags.help_requested()) return std::fputs(flags.Help().c_str(), stdout) < 0 ? 1 : 0;
  const absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Open(/*rank=*/0);
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return 0;
  }
  const absl::Status status = Run(options, gpu->get());
  if (!status.ok()) std::fprintf(stderr, "kernels_bench: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ronda::bench

int main(int argc, char** argv) { return ronda::bench::Main({argv + 1, argv + argc}); }
