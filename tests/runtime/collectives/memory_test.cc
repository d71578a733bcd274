// SPDX-License-Identifier: Apache-2.0

// Tests that collectives on one host need little memory, whatever the size of the tensors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/shm/layout.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

constexpr size_t kModelFloats = size_t{16} << 20;
constexpr size_t kSegments = 50;

// Returns this process's resident memory.
size_t ResidentBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Reduces one bucket in place.
absl::Status AllreduceInOne(Communicator& communicator, std::vector<float>& model, size_t floats) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < kSegments; ++i) {
    float* const tensor = model.data() + i * (floats / kSegments);
    segments.push_back({.input = tensor, .output = tensor, .count = floats / kSegments});
  }
  return communicator.Reduce({.info = {.label = "model"}, .segments = segments});
}

TEST(MemoryTest, SharedMemoryOfAJobIsAtMostTwiceItsRings) {
  const ShmWorld::Options defaults;
  for (int size : {1, 2, 4, 64, kShmMaxRanks}) {
    const ShmGeometry geometry = {.size = size, .slot_bytes = defaults.slot_bytes, .slot_count = defaults.slot_count};
    ASSERT_EQ(Validate(geometry), absl::OkStatus());
    const size_t rings = geometry.slot_bytes * static_cast<size_t>(geometry.slot_count) * static_cast<size_t>(size);
    EXPECT_LE(ShmView::TotalBytes(geometry), 2 * rings) << size << " ranks";
    EXPECT_GE(ShmView::TotalBytes(geometry), rings) << size << " ranks";
  }
}

// No buffer may hold a whole bucket. The test first reduces a smaller bucket, so that memory whose size does not depend
// on the bucket, such as the rings, is already in use when the measurement begins.
TEST(MemoryTest, ABucketTakesLessThanOnePercentOfItsSize) {
  absl::StatusOr<std::vector<Transport>> transports = ConnectShmTransportsInProcess({.size = 2});
  ASSERT_TRUE(transports.ok()) << transports.status();
  std::vector<std::vector<float>> models(2, std::vector<float>(kModelFloats, 1.0f));
  size_t before = 0;
  for (size_t floats : {kModelFloats / 8, kModelFloats}) {
    before = ResidentBytes();
    testing::RunRanksOn(*transports, [&](RankId rank, Transport& transport) {
      EXPECT_EQ(AllreduceInOne(*transport.communicator, models[rank], floats), absl::OkStatus());
    });
  }
  const size_t after = ResidentBytes();
  const size_t model_bytes = kModelFloats * sizeof(float);
  EXPECT_LT(after, before + model_bytes / 100) << before << " bytes before";
  EXPECT_EQ(models[0], models[1]);
}

}  // namespace
}  // namespace ronda
