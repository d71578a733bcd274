// SPDX-License-Identifier: Apache-2.0

// Tests run_threads(), whose ranks are threads. Several calls run at the same time, even while the process itself is a
// rank.
#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

int Sum(int value) {
  ronda::allreduce(ronda::tensor("sum", &value), {ronda::Op::Sum});
  return value;
}

TEST(RunThreadsTest, EachThreadIsARank) {
  std::atomic<int> ranks{0};
  ronda::run_threads(4, [&] {
    EXPECT_TRUE(ronda::is_initialized());
    EXPECT_EQ(ronda::size(), 4);
    EXPECT_EQ(ronda::local_rank(), ronda::rank());
    EXPECT_EQ(ronda::cross_size(), 1);
    ranks |= 1 << ronda::rank();
    EXPECT_EQ(Sum(ronda::rank()), 6);
  });
  EXPECT_EQ(ranks, 0b1111);
  EXPECT_FALSE(ronda::is_initialized());
}

TEST(RunThreadsTest, TheProcessOwnRankIsAnother) {
  ronda::init();
  ronda::run_threads(2, [] { EXPECT_EQ(ronda::size(), 2); });
  EXPECT_EQ(ronda::size(), 1);
  EXPECT_EQ(Sum(5), 5);
  ronda::shutdown();
}

TEST(RunThreadsTest, JobsRunBesideEachOtherAndInsideOfEachOther) {
  const auto job = [](int size) {
    ronda::run_threads(size, [size] {
      EXPECT_EQ(Sum(1), size);
      ronda::run_threads(2, [] { EXPECT_EQ(Sum(1), 2); });
      EXPECT_EQ(Sum(1), size);
    });
  };
  std::thread other(job, 3);
  job(2);
  other.join();
}

TEST(RunThreadsTest, TheFirstExceptionEndsTheJobAndIsRethrown) {
  std::atomic<int> failed{0};
  try {
    ronda::run_threads(3, [&] {
      if (ronda::rank() == 1) throw std::out_of_range("no such batch");
      int value = 0;
      const ronda::Status status = ronda::try_allreduce(ronda::tensor("sum", &value));
      EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED) << status.message();
      EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1"), HasSubstr("no such batch")));
      ++failed;
      status.throw_if_error();
    });
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "no such batch");
  }
  EXPECT_EQ(failed, 2);
}

TEST(RunThreadsTest, AThrowingCallbackFailsTheJobByName) {
  std::atomic<int> failed{0};
  EXPECT_THROW(ronda::run_threads(
                   2,
                   [&] {
                     float value = 1;
                     ronda::Handle handle = ronda::allreduce_async(ronda::tensor("w", &value));
                     if (ronda::rank() == 0) {
                       handle.on_completion([](const ronda::Status&) { throw std::runtime_error("oh"); });
                     }
                     ronda::Status status;
                     while (status.ok()) status = ronda::try_barrier();
                     EXPECT_THAT(status.message(), AllOf(HasSubstr("callback of tensor 'w' threw"), HasSubstr("oh")));
                     ++failed;
                     status.throw_if_error();
                   }),
               ronda::Error);
  EXPECT_EQ(failed, 2);
}

TEST(RunThreadsTest, JobsBeginAndEndWithTheBody) {
  ronda::run_threads(1, [] {
    EXPECT_EQ(ronda::try_init().code(), RONDA_ERROR_ALREADY_INITIALIZED);
    const ronda::Status status = ronda::try_shutdown();
    EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), HasSubstr("run_threads"));
    EXPECT_EQ(Sum(2), 2);
  });
}

TEST(RunThreadsTest, WrongArgumentsAreRefused) {
  const auto code = [](int size, const ronda::Options& options) {
    try {
      ronda::run_threads(
          size, [] {}, options);
    } catch (const ronda::Error& error) {
      return error.code();
    }
    return RONDA_OK;
  };
  EXPECT_EQ(code(0, {}), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(code(-1, {}), RONDA_ERROR_INVALID_ARGUMENT);
  ronda::Options options;
  options.process_sets = {{5}};
  EXPECT_EQ(code(2, options), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda_run_threads(nullptr, 1, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(code(1, {}), RONDA_OK);
}

TEST(RunThreadsTest, ProcessSetsMayExistFromTheStart) {
  ronda::Options options;
  options.process_sets = {{0, 2}, {1}};
  ronda::run_threads(
      3,
      [] {
        EXPECT_THAT(ronda::process_sets(),
                    ElementsAre(ronda::ProcessSet(0), ronda::ProcessSet(1), ronda::ProcessSet(2)));
        EXPECT_THAT(ronda::ProcessSet(1).ranks(), ElementsAre(0, 2));
        EXPECT_EQ(ronda::ProcessSet(2).included(), ronda::rank() == 1);
      },
      options);
}

TEST(RunThreadsTest, AThreadOfTheBodyMayActForItsRank) {
  ronda::run_threads(2, [] {
    const ronda_context rank_here = ronda::current();
    std::thread helper([rank_here, rank = ronda::rank()] {
      EXPECT_FALSE(ronda::is_initialized());
      ronda::make_current(rank_here);
      EXPECT_EQ(ronda::rank(), rank);
      EXPECT_EQ(Sum(1), 2);
      ronda::make_current(0);
      EXPECT_FALSE(ronda::is_initialized());
    });
    helper.join();
  });
  EXPECT_THROW(ronda::make_current(1 << 30), ronda::Error);
}

TEST(RunThreadsTest, CallbacksActForTheRankThatAsksForThem) {
  ronda::init();
  ronda::run_threads(2, [] {
    float first = 1, second = 2;
    std::promise<ronda::Handle> next;
    ronda::Handle handle = ronda::allreduce_async(ronda::tensor("first", &first), {ronda::Op::Sum});
    handle.on_completion([&, rank = ronda::rank()](const ronda::Status&) {
      EXPECT_EQ(ronda::size(), 2);
      EXPECT_EQ(ronda::rank(), rank);
      next.set_value(ronda::allreduce_async(ronda::tensor("second", &second), {ronda::Op::Sum}));
    });
    next.get_future().get().synchronize();
    EXPECT_EQ(second, 4);
    // Tests a callback for an operation that has already completed.
    std::promise<int> size;
    handle.on_completion([&](const ronda::Status&) { size.set_value(ronda::size()); });
    EXPECT_EQ(size.get_future().get(), 2);
  });
  ronda::shutdown();
}

// A handle may outlive the body of its job. Its operation is then complete.
TEST(RunThreadsTest, HandlesOutliveTheirJob) {
  static const float kValue = 4;
  std::vector<ronda::OutputHandle<float>> handles(2);
  ronda::run_threads(
      2, [&] { handles[static_cast<std::size_t>(ronda::rank())] = ronda::allgather_async("v", &kValue, {1}); });
  for (auto& handle : handles) EXPECT_THAT(handle.result(), ElementsAre(4, 4));
}

// Runs the README's trainer with ranks that are threads.
TEST(RunThreadsTest, TrainsInOneProcess) {
  struct Sgd {
    void step() {
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.1f * grad[i];
    }
    std::vector<float>&w, &grad;
  };
  ronda::run_threads(3, [] {
    std::vector<float> w(4, 1.0f + static_cast<float>(ronda::rank())), grad(4);
    Sgd sgd{w, grad};
    ronda::broadcast_parameters({ronda::tensor("w", w)}, 0);
    ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("w.grad", grad)});
    for (int step = 0; step < 200; ++step) {
      for (std::size_t i = 0; i < w.size(); ++i) grad[i] = w[i] - static_cast<float>(ronda::rank());
      optimizer.gradient_ready("w.grad");
      optimizer.step();
    }
    EXPECT_NEAR(w[0], 1, 1e-3);
  });
}

}  // namespace
