// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"

// An element type defined by the trainer itself.
struct Half {
  std::uint16_t bits;
};
template <>
struct ronda::element_dtype<Half> {
  static constexpr ronda_dtype value = RONDA_FLOAT16;
};

namespace {

TEST(TensorTest, EveryElementTypeHasItsDtype) {
  static_assert(ronda::dtype_of<std::uint8_t> == RONDA_UINT8);
  static_assert(ronda::dtype_of<std::int8_t> == RONDA_INT8);
  static_assert(ronda::dtype_of<std::uint16_t> == RONDA_UINT16);
  static_assert(ronda::dtype_of<std::int16_t> == RONDA_INT16);
  static_assert(ronda::dtype_of<std::uint32_t> == RONDA_UINT32);
  static_assert(ronda::dtype_of<unsigned long> == RONDA_UINT64);
  static_assert(ronda::dtype_of<std::int32_t> == RONDA_INT32);
  static_assert(ronda::dtype_of<long> == RONDA_INT64);
  static_assert(ronda::dtype_of<long long> == RONDA_INT64);
  static_assert(ronda::dtype_of<ronda::float16> == RONDA_FLOAT16);
  static_assert(ronda::dtype_of<ronda::bfloat16> == RONDA_BFLOAT16);
  static_assert(ronda::dtype_of<float> == RONDA_FLOAT32);
  static_assert(ronda::dtype_of<const double> == RONDA_FLOAT64);
  static_assert(ronda::dtype_of<bool> == RONDA_BOOL);
  static_assert(ronda::dtype_of<Half> == RONDA_FLOAT16);
}

TEST(TensorTest, ElementsHaveTheSizeOfTheirDtype) {
  static_assert(ronda::size_of(ronda::dtype_of<bool>) == sizeof(bool));
  static_assert(ronda::size_of(ronda::dtype_of<ronda::float16>) == sizeof(ronda::float16));
  static_assert(ronda::size_of(ronda::dtype_of<std::uint16_t>) == sizeof(std::uint16_t));
  static_assert(ronda::size_of(ronda::dtype_of<std::uint32_t>) == sizeof(std::uint32_t));
  static_assert(ronda::size_of(ronda::dtype_of<std::uint64_t>) == sizeof(std::uint64_t));
  static_assert(ronda::size_of(ronda::dtype_of<float>) == sizeof(float));
  static_assert(ronda::size_of(ronda::dtype_of<std::int64_t>) == sizeof(std::int64_t));
}

TEST(TensorTest, ViewsAVectorInOneDimension) {
  std::vector<double> values(5);
  const ronda::Tensor view = ronda::tensor("v", values);
  EXPECT_EQ(view.name, "v");
  EXPECT_EQ(view.data, values.data());
  EXPECT_EQ(view.dtype, RONDA_FLOAT64);
  EXPECT_EQ(view.shape, (std::vector<std::int64_t>{5}));
  EXPECT_EQ(view.count(), 5u);
  EXPECT_EQ(view.bytes(), 40u);
}

TEST(TensorTest, ViewsAnArrayInAShapeOrAVariableAsAScalar) {
  ronda::bfloat16 values[6];
  const ronda::Tensor matrix = ronda::tensor("m", values, {2, 3});
  EXPECT_EQ(matrix.count(), 6u);
  EXPECT_EQ(matrix.bytes(), 12u);
  float rate = 0.1f;
  const ronda::Tensor scalar = ronda::tensor("rate", &rate);
  EXPECT_TRUE(scalar.shape.empty());
  EXPECT_EQ(scalar.count(), 1u);
}

TEST(TensorTest, ViewsMemoryOfAGpuWithTheStreamThatFillsIt) {
  float* const somewhere = nullptr;
  int stream = 0;
  const ronda::Tensor view = ronda::cuda_tensor("g", somewhere, {2, 3}, &stream);
  EXPECT_EQ(view.memory, RONDA_MEMORY_CUDA);
  EXPECT_EQ(view.stream, &stream);
  EXPECT_EQ(view.dtype, RONDA_FLOAT32);
  EXPECT_EQ(view.count(), 6u);
  EXPECT_EQ(ronda::tensor("h", somewhere).memory, RONDA_MEMORY_HOST);
  const ronda_call_options options = ronda::detail::to_c(ronda::CallOptions(), view);
  EXPECT_EQ(options.memory, RONDA_MEMORY_CUDA);
  EXPECT_EQ(options.stream, &stream);
}

TEST(TensorTest, AZeroDimensionLeavesNoElements) {
  EXPECT_EQ(ronda::tensor("e", static_cast<float*>(nullptr), {4, 0}).bytes(), 0u);
}

}  // namespace
