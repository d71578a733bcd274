// SPDX-License-Identifier: Apache-2.0

// Implements examples/cuda_mnist/device.h and launch.h for the fake GPU (tests/testing/fake_cuda), which Ronda also
// uses. Kernels and matrix products are loops, which the fake GPU runs in stream order.
#include <cstring>
#include <memory>
#include <string>

#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/launch.h"
#include "tests/testing/fake_gpu/fake_gpu.h"

namespace cuda_mnist {
namespace {

using ::ronda::testing::AllocateOnFakeGpu;
using ::ronda::testing::EnqueueOnFakeGpu;
using ::ronda::testing::FakeGpuStream;
using ::ronda::testing::LoadedFakeCuda;
using ::ronda::testing::ReleaseOnFakeGpu;

// The strides between the rows and between the columns of an operand that has `rows` rows and `columns` columns in the
// product.
struct Strides {
  Strides(const Operand& operand, int rows, int columns)
      : row(operand.order == Operand::Order::kPlain ? columns : 1),
        column(operand.order == Operand::Order::kPlain ? 1 : rows) {}

  const std::ptrdiff_t row;
  const std::ptrdiff_t column;
};

void MultiplyHere(const Product& product) {
  const Strides left_strides(product.left, product.rows, product.inner);
  const Strides right_strides(product.right, product.inner, product.columns);
  float* result = product.result;
  for (int p = 0; p < product.products; ++p) {
    for (int row = 0; row < product.rows; ++row) {
      const float* const left = product.left.data + p * product.left.stride + row * left_strides.row;
      for (int column = 0; column < product.columns; ++column, ++result) {
        const float* const right = product.right.data + p * product.right.stride + column * right_strides.column;
        float sum = product.onto == Product::Onto::kResult ? *result : 0;
        for (int k = 0; k < product.inner; ++k) sum += left[k * left_strides.column] * right[k * right_strides.row];
        *result = sum;
      }
    }
  }
}

int DeviceCount() {
  int count = 0;
  LoadedFakeCuda().device_count(&count);
  return count;
}

}  // namespace

struct Device::Handles {
  explicit Handles(int device) : stream(device) {}

  const FakeGpuStream stream;
};

std::string Device::WhyNone() { return ""; }

Device::Device(int local_rank) : handles_(std::make_unique<Handles>(local_rank % DeviceCount())) {}

Device::~Device() = default;

std::string Device::name() const { return "a GPU that is not there"; }

void* Device::stream() const { return handles_->stream.handle(); }

void* Device::Allocate(std::size_t bytes) {
  void* const memory = AllocateOnFakeGpu(bytes);
  handles_->stream.Enqueue([=] { std::memset(memory, 0, bytes); });
  Synchronize();
  return memory;
}

void Device::Free(void* memory) noexcept {
  Synchronize();
  ReleaseOnFakeGpu(memory);
}

void Device::Upload(void* device, const void* host, std::size_t bytes) {
  Synchronize();
  std::memcpy(device, host, bytes);
}

void Device::Download(void* host, const void* device, std::size_t bytes) {
  Synchronize();
  std::memcpy(host, device, bytes);
}

void Device::Synchronize() { handles_->stream.Synchronize(); }

void Device::Multiply(const Product& product) {
  handles_->stream.Enqueue([product] { MultiplyHere(product); });
}

template <class Elements>
void Launch(const Elements& elements, void* stream) {
  EnqueueOnFakeGpu(stream, [elements] {
    for (int i = 0; i < elements.count; ++i) elements(i);
  });
}

template void Launch(const GatherImages&, void*);
template void Launch(const AddBias&, void*);
template void Launch(const Relu&, void*);
template void Launch(const ReluGradient&, void*);
template void Launch(const MaxPool&, void*);
template void Launch(const MaxPoolGradient&, void*);
template void Launch(const ImageToPatches&, void*);
template void Launch(const PatchesToImage&, void*);
template void Launch(const SoftmaxCrossEntropy&, void*);
template void Launch(const SgdUpdate&, void*);

}  // namespace cuda_mnist
