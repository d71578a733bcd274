// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/callback_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/handle.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const std::string> Name(const char* tensor) { return std::make_shared<const std::string>(tensor); }

TEST(CallbackThread, CallbacksRunOnceInTheOrderOfCompletionOnAThreadOfTheirOwn) {
  const auto thread = CallbackThread::Create({});
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  Handle first(thread, nullptr, Name("x"));
  Handle second(thread, nullptr, Name("x"));
  const auto note = [&](int number) {
    return [&, number](const absl::Status& status) {
      EXPECT_TRUE(status.ok());
      order.push_back(number);
      threads.push_back(std::this_thread::get_id());
    };
  };
  ASSERT_TRUE(second.OnCompletion(note(2)).ok());
  ASSERT_TRUE(first.OnCompletion(note(1)).ok());
  first.Complete(absl::OkStatus());
  second.Complete(absl::OkStatus());
  ASSERT_TRUE(first.OnCompletion(note(3)).ok()) << "it is complete already";
  thread->Stop();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  EXPECT_THAT(threads, ::testing::Each(::testing::Ne(std::this_thread::get_id())));
}

TEST(CallbackThread, CallbacksLearnTheStatus) {
  const auto thread = CallbackThread::Create({});
  Handle handle(thread, nullptr, Name("x"));
  absl::Status seen;
  ASSERT_TRUE(handle.OnCompletion([&](const absl::Status& status) { seen = status; }).ok());
  handle.Complete(absl::UnavailableError("rank 1 died"));
  thread->Stop();
  EXPECT_EQ(seen, absl::UnavailableError("rank 1 died"));
}

TEST(CallbackThread, ExceptionOfACallbackNamesTheTensorAndTheNextCallbackRuns) {
  std::vector<std::string> thrown;
  const auto thread =
      CallbackThread::Create({.thrown = [&](const absl::Status& status) { thrown.emplace_back(status.message()); }});
  Handle handle(thread, nullptr, Name("x"));
  bool ran = false;
  ASSERT_TRUE(handle.OnCompletion([](const absl::Status&) { throw std::runtime_error("disk full"); }).ok());
  ASSERT_TRUE(handle.OnCompletion([](const absl::Status&) { throw 42; }).ok());
  ASSERT_TRUE(handle.OnCompletion([&](const absl::Status&) { ran = true; }).ok());
  handle.Complete(absl::OkStatus());
  thread->Stop();
  EXPECT_THAT(thrown, ElementsAre("callback of tensor 'x' threw: disk full",
                                  "callback of tensor 'x' threw: something that is no std::exception"));
  EXPECT_TRUE(ran);
}

TEST(CallbackThread, IsIdleOnceTheLastCallbackHasRun) {
  std::promise<void> idle;
  const auto thread = CallbackThread::Create({.idle = [&] { idle.set_value(); }});
  EXPECT_TRUE(thread->idle());
  Handle handle(thread, nullptr, Name("x"));
  std::promise<void> go;
  ASSERT_TRUE(handle.OnCompletion([&](const absl::Status&) { go.get_future().wait(); }).ok());
  EXPECT_TRUE(thread->idle()) << "nothing to call yet";
  handle.Complete(absl::OkStatus());
  EXPECT_FALSE(thread->idle());
  go.set_value();
  idle.get_future().wait();
  EXPECT_TRUE(thread->idle());
  thread->Stop();
}

TEST(CallbackThread, AfterStopCallbacksRunInTheCallersThread) {
  const auto thread = CallbackThread::Create({});
  thread->Stop();
  Handle handle(thread, nullptr, Name("x"));
  handle.Complete(absl::OkStatus());
  std::thread::id where;
  ASSERT_TRUE(handle.OnCompletion([&](const absl::Status&) { where = std::this_thread::get_id(); }).ok());
  EXPECT_EQ(where, std::this_thread::get_id());
  ASSERT_TRUE(handle.OnCompletion([](const absl::Status&) { throw std::runtime_error("caught"); }).ok());
}

TEST(CallbackThread, CanBeStoppedAndLetGoByItsOwnCallback) {
  std::promise<void> stopped;
  {
    auto thread = CallbackThread::Create({});
    auto handle = std::make_shared<Handle>(thread, nullptr, Name("x"));
    ASSERT_TRUE(handle
                    ->OnCompletion([thread, handle, &stopped](const absl::Status&) mutable {
                      EXPECT_TRUE(thread->IsThisThread());
                      thread->Stop();
                      thread.reset();
                      handle.reset();
                      stopped.set_value();
                    })
                    .ok());
    handle->Complete(absl::OkStatus());
  }
  stopped.get_future().wait();
}

}  // namespace
}  // namespace ronda
