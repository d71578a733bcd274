// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/device.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace cuda_mnist {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

void Check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

cublasOperation_t OperationOf(const Operand& operand) {
  return operand.order == Operand::Order::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T;
}

// Makes a rank's GPU the current device of this thread, and returns its device number.
int UseDevice(int local_rank) {
  int count = 0;
  Check(cudaGetDeviceCount(&count), "looking for GPUs");
  if (count == 0) throw std::runtime_error("looking for GPUs: there is none");
  Check(cudaSetDevice(local_rank % count), "using a GPU");
  return local_rank % count;
}

// A stream that does not synchronize with the default stream, which this program does not use.
cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return stream;
}

cublasHandle_t NewBlas() {
  cublasHandle_t blas = nullptr;
  Check(cublasCreate(&blas), "starting cuBLAS");
  return blas;
}

// Errors in a destructor are ignored, because the first error has already been reported.
struct Destroy {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
  void operator()(cublasHandle_t blas) const { static_cast<void>(cublasDestroy(blas)); }
};

}  // namespace

struct Device::Handles {
  explicit Handles(int local_rank) : device(UseDevice(local_rank)), stream(NewStream()), blas(NewBlas()) {
    Check(cublasSetStream(blas.get(), stream.get()), "giving cuBLAS the stream");
  }

  const int device;
  const std::unique_ptr<CUstream_st, Destroy> stream;
  const std::unique_ptr<cublasContext, Destroy> blas;
};

std::string Device::WhyNone() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count == 0 ? "there is no GPU" : "";
}

Device::Device(int local_rank) : handles_(std::make_unique<Handles>(local_rank)) {}

Device::~Device() = default;

std::string Device::name() const {
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, handles_->device), "describing the GPU");
  return properties.name;
}

void* Device::stream() const { return handles_->stream.get(); }

void* Device::Allocate(std::size_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes), "allocating memory");
  Check(cudaMemsetAsync(memory, 0, bytes, handles_->stream.get()), "clearing memory");
  Synchronize();
  return memory;
}

// cudaFree() itself waits for the whole device.
void Device::Free(void* memory) noexcept { static_cast<void>(cudaFree(memory)); }

void Device::Upload(void* device, const void* host, std::size_t bytes) {
  Check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handles_->stream.get()), "copying to the GPU");
  Synchronize();
}

void Device::Download(void* host, const void* device, std::size_t bytes) {
  Check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handles_->stream.get()), "copying from the GPU");
  Synchronize();
}

void Device::Synchronize() { Check(cudaStreamSynchronize(handles_->stream.get()), "waiting for the GPU"); }

// cuBLAS stores matrices column by column, so it interprets a row-major matrix as its transpose. The operands are
// swapped because the transpose of left * right is right^T * left^T.
void Device::Multiply(const Product& product) {
  const float factor = 1, onto = product.onto == Product::Onto::kResult ? 1 : 0;
  const bool left_is_plain = product.left.order == Operand::Order::kPlain;
  const bool right_is_plain = product.right.order == Operand::Order::kPlain;
  const int left_row = left_is_plain ? product.inner : product.rows;
  const int right_row = right_is_plain ? product.columns : product.inner;
  Check(cublasSgemmStridedBatched(handles_->blas.get(), OperationOf(product.right), OperationOf(product.left),
                                  product.columns, product.rows, product.inner, &factor, product.right.data, right_row,
                                  product.right.stride, product.left.data, left_row, product.left.stride, &onto,
                                  product.result, product.columns,
                                  static_cast<long long>(product.rows) * product.columns, product.products),
        "multiplying matrices");
}

}  // namespace cuda_mnist
