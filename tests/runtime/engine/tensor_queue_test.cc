#include "runtime/engine/tensor_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace ronda {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(TensorQueue, EntriesAreFreshOnce) {
  TensorQueue queue;
  ASSERT_TRUE(queue.Add({.request = {.name = "a"}}, kStart).ok());
  ASSERT_TRUE(queue.Add({.request = {.name = "b"}}, kStart + absl::Seconds(1)).ok());
  EXPECT_EQ(queue.OldestFresh(), kStart);
  const auto fresh = queue.TakeFresh();
  ASSERT_THAT(fresh, SizeIs(2));
  EXPECT_EQ(fresh[0]->submission.request.name, "a");
  EXPECT_EQ(fresh[1]->submission.request.name, "b");
  EXPECT_THAT(queue.TakeFresh(), IsEmpty());
  EXPECT_EQ(queue.OldestFresh(), absl::InfiniteFuture());
  EXPECT_EQ(queue.Oldest()->submission.request.name, "a");
}

TEST(TensorQueue, NameIsFreeAgainOnceTheHandleIsComplete) {
  TensorQueue queue;
  const auto handle = queue.Add({.request = {.name = "a"}}, kStart);
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(queue.Add({.request = {.name = "a"}}, kStart).status().code(), absl::StatusCode::kAlreadyExists);
  std::thread trainer([&] {
    EXPECT_TRUE((*handle)->Wait().ok());
    EXPECT_TRUE(queue.Add({.request = {.name = "a"}}, kStart).ok());
  });
  queue.Complete("a", absl::OkStatus());
  trainer.join();
  EXPECT_FALSE(queue.empty());
}

TEST(TensorQueue, RefusalKeepsWhatIsInFlight) {
  TensorQueue queue;
  const auto handle = queue.Add({.request = {.name = "a"}}, kStart);
  queue.Refuse(absl::CancelledError("closing"));
  EXPECT_EQ(queue.Add({.request = {.name = "b"}}, kStart).status(), absl::CancelledError("closing"));
  EXPECT_FALSE((*handle)->done());
  queue.Complete("a", absl::OkStatus());
  EXPECT_TRUE((*handle)->Wait().ok());
}

TEST(TensorQueue, CloseFailsEverythingAndNamesEachTensor) {
  TensorQueue queue;
  const auto a = queue.Add({.request = {.name = "a"}}, kStart);
  const auto b = queue.Add({.request = {.name = "b"}}, kStart);
  queue.Refuse(absl::CancelledError("closing"));
  queue.Close(absl::UnavailableError("rank 1 died"));
  EXPECT_EQ((*a)->Wait(), absl::UnavailableError("tensor 'a': rank 1 died"));
  EXPECT_EQ((*b)->Wait(), absl::UnavailableError("tensor 'b': rank 1 died"));
  EXPECT_EQ(queue.Add({.request = {.name = "c"}}, kStart).status(), absl::UnavailableError("rank 1 died"));
  EXPECT_THAT(queue.TakeFresh(), IsEmpty());
}

}  // namespace
}  // namespace ronda
