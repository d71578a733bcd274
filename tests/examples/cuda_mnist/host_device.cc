// What examples/cuda_mnist/device.h and launch.h declare, where the GPU is the fake one (tests/testing/fake_cuda),
// which Ronda uses too: kernels and products are loops that its streams run, in order and later.
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

// The i-th of the operand's products, at (row, column) of the operand as it stands in the product.
struct Reader {
  const Operand& operand;
  int product;
  int rows;
  int columns;

  float operator()(int row, int column) const {
    const float* const matrix = operand.data + product * operand.stride;
    return operand.order == Operand::Order::kPlain ? matrix[row * columns + column] : matrix[column * rows + row];
  }
};

void MultiplyHere(const Product& product) {
  for (int p = 0; p < product.products; ++p) {
    const Reader left{product.left, p, product.rows, product.inner};
    const Reader right{product.right, p, product.inner, product.columns};
    float* const result = product.result + static_cast<std::ptrdiff_t>(p) * product.rows * product.columns;
    for (int row = 0; row < product.rows; ++row) {
      for (int column = 0; column < product.columns; ++column) {
        float sum = product.onto == Product::Onto::kResult ? result[row * product.columns + column] : 0;
        for (int k = 0; k < product.inner; ++k) sum += left(row, k) * right(k, column);
        result[row * product.columns + column] = sum;
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
