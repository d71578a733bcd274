#ifndef RONDA_KERNELS_CUDA_ELEMENTS_H_
#define RONDA_KERNELS_CUDA_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/host_device.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// The widest access there is.
inline constexpr int kAccessBytes = 16;

// Consecutive elements, as one access moves them, or, if there are more of them, several.
template <class E, int kCount>
struct alignas(kCount * sizeof(E) < kAccessBytes ? kCount * sizeof(E) : kAccessBytes) Vector {
  E at[kCount];
};

RONDA_HOST_DEVICE inline bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Whether vectors can be loaded and stored at `pointer`. (A null pointer is aligned.)
template <class E, int kCount>
RONDA_HOST_DEVICE inline bool IsAlignedFor(const void* pointer) {
  return IsAligned(pointer, alignof(Vector<E, kCount>));
}

// What lies at any address. By bytes: nvcc has been seen to take a memcpy for an access of the element's width, once it
// had merged it with one, and a device faults where that is not aligned (tests/kernels/cuda/machine_code_test.cc).
template <class T>
RONDA_HOST_DEVICE inline T LoadBytes(const void* from) {
  uint8_t bytes[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<const uint8_t*>(from)[i];
  T value;
  memcpy(&value, bytes, sizeof(T));
  return value;
}

template <class T>
RONDA_HOST_DEVICE inline void StoreBytes(const T& value, void* to) {
  uint8_t bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof(T));
  for (size_t i = 0; i < sizeof(T); ++i) static_cast<uint8_t*>(to)[i] = bytes[i];
}

// A single element may have any address.
template <class E, int kCount>
RONDA_HOST_DEVICE inline Vector<E, kCount> Load(const void* from) {
  if constexpr (kCount == 1) {
    if (!IsAligned(from, sizeof(E))) return LoadBytes<Vector<E, 1>>(from);
  }
  return *static_cast<const Vector<E, kCount>*>(from);
}

template <class E, int kCount>
RONDA_HOST_DEVICE inline void Store(const Vector<E, kCount>& value, void* to) {
  if constexpr (kCount == 1) {
    if (!IsAligned(to, sizeof(E))) return StoreBytes(value, to);
  }
  *static_cast<Vector<E, kCount>*>(to) = value;
}

// The address of element `index`. Elements are counted in 64 bits everywhere.
template <class E>
RONDA_HOST_DEVICE inline const uint8_t* At(const void* elements, uint64_t index) {
  return static_cast<const uint8_t*>(elements) + index * sizeof(E);
}

template <class E>
RONDA_HOST_DEVICE inline uint8_t* At(void* elements, uint64_t index) {
  return static_cast<uint8_t*>(elements) + index * sizeof(E);
}

// Names an element type to a visitor.
template <class E>
struct ElementType {
  using Type = E;
};

// What functions of a wrong kind of call return: cudaErrorInvalidValue.
inline constexpr int kInvalidCall = 1;

// Each calls `visit` with the ElementType of `dtype`, and returns what it returns; kInvalidCall if `dtype` is none of
// these.
template <class Visitor>
int VisitFloat(DType dtype, const Visitor& visit) {
  switch (dtype) {
    case DType::kFloat16:
      return visit(ElementType<Float16>());
    case DType::kBfloat16:
      return visit(ElementType<Bfloat16>());
    case DType::kFloat32:
      return visit(ElementType<float>());
    case DType::kFloat64:
      return visit(ElementType<double>());
    default:
      return kInvalidCall;
  }
}

template <class Visitor>
int VisitWideFloat(DType dtype, const Visitor& visit) {
  if (dtype == DType::kFloat32) return visit(ElementType<float>());
  if (dtype == DType::kFloat64) return visit(ElementType<double>());
  return kInvalidCall;
}

template <class Visitor>
int VisitInteger(DType dtype, const Visitor& visit) {
  switch (dtype) {
    case DType::kUint8:
      return visit(ElementType<uint8_t>());
    case DType::kInt8:
      return visit(ElementType<int8_t>());
    case DType::kUint16:
      return visit(ElementType<uint16_t>());
    case DType::kInt16:
      return visit(ElementType<int16_t>());
    case DType::kUint32:
      return visit(ElementType<uint32_t>());
    case DType::kInt32:
      return visit(ElementType<int32_t>());
    case DType::kUint64:
      return visit(ElementType<uint64_t>());
    case DType::kInt64:
      return visit(ElementType<int64_t>());
    default:
      return kInvalidCall;
  }
}

// With the unsigned integer of `bytes` bytes.
template <class Visitor>
int VisitBits(size_t bytes, const Visitor& visit) {
  switch (bytes) {
    case 1:
      return visit(ElementType<uint8_t>());
    case 2:
      return visit(ElementType<uint16_t>());
    case 4:
      return visit(ElementType<uint32_t>());
    case 8:
      return visit(ElementType<uint64_t>());
    default:
      return kInvalidCall;
  }
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_ELEMENTS_H_
