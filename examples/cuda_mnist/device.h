// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_DEVICE_H_
#define RONDA_EXAMPLES_CUDA_MNIST_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuda_mnist {

// A row-major matrix in device memory, as an operand of a product.
struct Operand {
  const float* data = nullptr;
  enum class Order { kPlain, kTransposed } order = Order::kPlain;
  std::ptrdiff_t stride = 0;  // elements from one product's operand to the next one's; 0: all products share it
};

// `products` matrix products, each of which computes result = left * right, or result += left * right.
struct Product {
  int rows = 0;     // of the result
  int columns = 0;  // of the result
  int inner = 0;    // columns of `left` in the product, rows of `right`
  Operand left;
  Operand right;
  float* result = nullptr;  // rows x columns in row-major order; results of several products follow each other
  int products = 1;
  enum class Onto { kNothing, kResult } onto = Onto::kNothing;  // kResult: adds to the content of the result
};

// One GPU, the stream on which this rank trains, and cuBLAS on that stream. The device runs its work asynchronously, in
// order. A function waits for that work only if its comment says so.
//
// This header includes no CUDA header, so that tests can use a different Device
// (tests/examples/cuda_mnist/host_device.cc).
//
// Thread-compatible. If CUDA fails, every function throws std::runtime_error with CUDA's error message.
class Device {
 public:
  // Returns why this machine cannot train, for example "no CUDA-capable device is detected", or an empty text if it
  // can.
  static std::string WhyNone();

  // A rank's GPU. If a host has fewer GPUs than ranks, the ranks share them.
  explicit Device(int local_rank);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::string name() const;
  void* stream() const;  // a cudaStream_t

  void* Allocate(std::size_t bytes);                                 // filled with zeros; waits
  void Free(void* memory) noexcept;                                  // waits
  void Upload(void* device, const void* host, std::size_t bytes);    // waits
  void Download(void* host, const void* device, std::size_t bytes);  // waits
  void Synchronize();                                                // waits until all work is done

  void Multiply(const Product& product);

 private:
  struct Handles;
  const std::unique_ptr<Handles> handles_;
};

// `size` elements in device memory, initially zero. The device must outlive the array.
template <class T>
class DeviceArray {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  DeviceArray(Device& device, std::size_t size)
      : device_(&device), size_(size), data_(static_cast<T*>(device.Allocate(size * sizeof(T)))) {}
  DeviceArray(Device& device, const std::vector<T>& values) : DeviceArray(device, values.size()) {
    Upload(values.data(), values.size());
  }
  DeviceArray(DeviceArray&& other) noexcept
      : device_(other.device_), size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) device_->Free(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Upload() and Download() block until the copy is complete.
  void Upload(const T* values, std::size_t count) { device_->Upload(data_, values, count * sizeof(T)); }
  std::vector<T> Download(std::size_t count) const {
    std::vector<T> values(count);
    device_->Download(values.data(), data_, count * sizeof(T));
    return values;
  }
  std::vector<T> Download() const { return Download(size_); }

 private:
  Device* const device_;
  const std::size_t size_;
  T* data_;
};

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_DEVICE_H_
