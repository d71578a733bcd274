// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <new>

namespace ronda {
namespace {

TEST(SideBySideTest, CallsMayWaitForEachOther) {
  std::barrier<> all_are_there(3);
  std::atomic<int> returned{0};
  const auto meet = [&] {
    all_are_there.arrive_and_wait();
    ++returned;
  };
  EXPECT_TRUE(SideBySide({meet, meet, meet}).Run());
  EXPECT_EQ(returned, 3);
}

TEST(SideBySideTest, EmptyListOfCallsSucceeds) { EXPECT_TRUE(SideBySide({}).Run()); }

TEST(SideBySideTest, AnExceptionReachesTheCallerWhenAllHaveReturned) {
  std::atomic<bool> has_returned{false};
  std::promise<void> thrown;
  SideBySide calls({[&] {
                      thrown.set_value();
                      throw std::bad_alloc();
                    },
                    [&] {
                      thrown.get_future().wait();
                      has_returned = true;
                    }});
  EXPECT_THROW(calls.Run(), std::bad_alloc);
  EXPECT_TRUE(has_returned);
}

TEST(SideBySideTest, ObjectsOfTheCallsAreGoneWhenTheyHaveReturned) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  SideBySide calls({[owned = std::move(owned)] { EXPECT_EQ(*owned, 1); }});
  EXPECT_TRUE(calls.Run());
  EXPECT_TRUE(watched.expired());
}

TEST(SideBySideTest, CallsThatDoNotReturnAreLeftToThemselves) {
  const auto go_on = std::make_shared<std::promise<void>>();
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> is_done = done->get_future();
  {
    SideBySide calls({[] {},
                      [go_on, done] {
                        go_on->get_future().wait();
                        done->set_value();
                      }});
    EXPECT_FALSE(calls.Run(absl::Milliseconds(20)));
  }
  go_on->set_value();
  is_done.wait();
}

}  // namespace
}  // namespace ronda
