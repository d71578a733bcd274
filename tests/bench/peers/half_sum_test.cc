#include "bench/peers/half_sum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cpu/convert.h"

namespace {

std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  ronda::kernels::Convert(values.data(), ronda::DType::kFloat32, halves.data(), ronda::DType::kFloat16, values.size());
  return halves;
}

TEST(AddHalvesTest, AddsEveryElementAndNoneBeyond) {
  if (!CanAddHalves()) GTEST_SKIP() << "this processor has no F16C";
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{1000}}) {
    std::vector<float> left, right, sum;
    for (size_t i = 0; i < count; ++i) {
      left.push_back(static_cast<float>(i % 64));
      right.push_back(0.5f);
      sum.push_back(left.back() + 0.5f);
    }
    constexpr uint16_t kGuard = 0x1234;
    std::vector<uint16_t> output = Halves(right);
    output.push_back(kGuard);
    AddHalves(Halves(left).data(), output.data(), count);
    EXPECT_EQ(output.back(), kGuard) << count;
    output.pop_back();
    EXPECT_EQ(output, Halves(sum)) << count;
  }
}

}  // namespace
