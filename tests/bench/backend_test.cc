#include "bench/backend.h"

#include <gtest/gtest.h>

#include <string>

namespace ronda::bench {
namespace {

TEST(BackendTest, EveryNameIsThatOfItsBackend) {
  for (const std::string& name : BackendNames()) EXPECT_EQ(Name(BackendOf(name)), name);
  EXPECT_EQ(Name(Backend::kShm), "shm");
  EXPECT_EQ(Name(Backend::kInProcess), "inprocess");
}

}  // namespace
}  // namespace ronda::bench
