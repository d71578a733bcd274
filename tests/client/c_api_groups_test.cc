// SPDX-License-Identifier: Apache-2.0

// Tests prepared groups of the C ABI, on ranks that are threads.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr float kSum = 0 + 1 + 2;

void Call(void* context) { (*static_cast<const std::function<void()>*>(context))(); }

void RunRanks(const std::function<void()>& body) {
  EXPECT_EQ(ronda_run_threads(nullptr, kRanks, Call, const_cast<std::function<void()>*>(&body)), RONDA_OK)
      << ronda_last_error();
}

// Holds tensors of different lengths that are reduced in place, and a prepared group of these tensors.
class Gradients {
 public:
  explicit Gradients(size_t count, ronda_reduce_op op = RONDA_SUM) : values_(count), shapes_(count), names_(count) {
    for (size_t i = 0; i < count; ++i) {
      shapes_[i] = static_cast<int64_t>(1 + i % 5);
      names_[i] = "g" + std::to_string(i);
      values_[i].resize(static_cast<size_t>(shapes_[i]));
      ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
      args.tensor = {names_[i].c_str(), RONDA_FLOAT32, 1, &shapes_[i]};
      args.input = args.output = values_[i].data();
      args.op = op;
      args_.push_back(args);
    }
    Set(static_cast<float>(ronda_rank()));
  }
  ~Gradients() {
    if (group_ == nullptr) return;
    EXPECT_EQ(ronda_group_release(group_), RONDA_OK) << ronda_last_error();
  }

  void Set(float value) {
    for (std::vector<float>& values : values_) values.assign(values.size(), value);
  }
  std::vector<ronda_allreduce_args>& args() { return args_; }
  std::vector<std::vector<float>>& values() { return values_; }

  ronda_status Prepare() { return ronda_prepare_group(args_.data(), args_.size(), "gradients", &group_); }
  ronda_group group() { return group_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<int64_t> shapes_;
  std::vector<std::string> names_;
  std::vector<ronda_allreduce_args> args_;
  ronda_group group_ = nullptr;
};

TEST(CGroupsTest, MembersAreReducedInEveryStepInWhicheverOrderTheyBecomeReady) {
  RunRanks([] {
    constexpr size_t kCount = 100;  // several batches
    Gradients gradients(kCount);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    for (size_t step = 0; step < 30; ++step) {
      gradients.Set(static_cast<float>(ronda_rank()));
      // The loop announces each of the 100 tensors once, because 7 and 100 are coprime. Every rank announces the
      // tensors in a different order.
      const size_t first = step + static_cast<size_t>(ronda_rank());
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(ronda_group_ready(gradients.group(), (first + 7 * i) % kCount), RONDA_OK) << ronda_last_error();
      }
      ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      ASSERT_THAT(gradients.values(), Each(Each(kSum)));
    }
  });
}

TEST(CGroupsTest, ThreadsMayAnnounceMembersAtTheSameTime) {
  RunRanks([] {
    constexpr size_t kCount = 96, kThreads = 3;
    Gradients gradients(kCount);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    for (int step = 0; step < 10; ++step) {
      gradients.Set(-1);
      const auto own = static_cast<float>(ronda_rank());
      std::vector<std::thread> threads;
      for (size_t t = 0; t < kThreads; ++t) {
        // Neighbouring tensors of the group are announced by different threads. Each thread also writes the inputs that
        // it announces.
        threads.emplace_back([&, t] {
          for (size_t i = t; i < kCount; i += kThreads) {
            gradients.values()[i].assign(gradients.values()[i].size(), own);
            EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      ASSERT_THAT(gradients.values(), Each(Each(kSum)));
    }
  });
}

TEST(CGroupsTest, MembersMayMove) {
  RunRanks([] {
    constexpr size_t kCount = 40;  // several batches
    Gradients gradients(kCount);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_ready_at(gradients.group(), 1, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("member 1 'g1' is announced without its data"));
    int stream = 0;
    EXPECT_EQ(ronda_group_ready_on_stream(gradients.group(), 1, gradients.values()[1].data(), &stream),
              RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("member 1 'g1' is announced with a stream, but it is in host memory"));
    EXPECT_EQ(ronda_group_ready_at(gradients.group(), kCount, gradients.values()[0].data()),
              RONDA_ERROR_INVALID_ARGUMENT);
    const auto own = static_cast<float>(ronda_rank());
    for (size_t step = 0; step < 10; ++step) {
      gradients.Set(own);
      std::vector<std::vector<float>> moved = gradients.values();
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(ronda_group_ready_at(gradients.group(), i, moved[i].data()), RONDA_OK) << ronda_last_error();
      }
      ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      ASSERT_THAT(moved, Each(Each(kSum)));
      ASSERT_THAT(gradients.values(), Each(Each(own)));
    }
  });
}

// Waits until this rank's statistics count at least `count` reduced tensors.
void AwaitTensors(uint64_t count) {
  ronda_statistics statistics = RONDA_STATISTICS_INIT;
  do {
    std::this_thread::yield();
    ASSERT_EQ(ronda_get_statistics(&statistics), RONDA_OK) << ronda_last_error();
  } while (statistics.tensors < count);
}

TEST(CGroupsTest, AGroupThatLearnsItsOrderSubmitsNeighboursOfTheFirstStepTogether) {
  RunRanks([] {
    constexpr size_t kBatch = 32, kCount = 2 * kBatch;
    Gradients gradients(kCount);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_group_learn_order(gradients.group()), RONDA_OK) << ronda_last_error();
    const auto announce = [&](size_t first, size_t stride) {
      for (size_t i = first; i < kCount; i += stride) {
        ASSERT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
      }
    };
    // In the first step, the group submits each member individually.
    announce(0, kCount);
    AwaitTensors(1);
    announce(2, 2);
    announce(1, 2);
    ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(gradients.values(), Each(Each(kSum)));
    // In later steps, the group submits the members with even numbers as one batch, because they were announced first
    // in the first step. If batches followed the list order, announce(0, 2) would not complete any batch.
    for (uint64_t reduced = kCount; reduced < 3 * kCount; reduced += kCount) {
      gradients.Set(static_cast<float>(ronda_rank()));
      announce(0, 2);
      AwaitTensors(reduced + kBatch);
      announce(1, 2);
      ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      EXPECT_THAT(gradients.values(), Each(Each(kSum)));
    }
  });
}

TEST(CGroupsTest, TensorGroupsRunAsAWhole) {
  RunRanks([] {
    constexpr size_t kCount = 6;
    Gradients gradients(kCount);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    const size_t ends[] = {0, 5}, middle[] = {3, 2};
    ASSERT_EQ(ronda_group_combine(gradients.group(), ends, 2, "ends"), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_group_combine(gradients.group(), middle, 2, "middle"), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_group_learn_order(gradients.group()), RONDA_OK) << ronda_last_error();
    for (size_t step = 0; step < 10; ++step) {
      gradients.Set(static_cast<float>(ronda_rank()));
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(ronda_group_ready(gradients.group(), (5 * i + step) % kCount), RONDA_OK) << ronda_last_error();
      }
      ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      ASSERT_THAT(gradients.values(), Each(Each(kSum)));
    }
  });
}

TEST(CGroupsTest, ATensorGroupFailsAsAWhole) {
  RunRanks([] {
    Gradients gradients(3);
    gradients.args()[2].op = ronda_rank() == 0 ? RONDA_MIN : RONDA_MAX;  // the ranks disagree
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    const size_t members[] = {0, 2};
    ASSERT_EQ(ronda_group_combine(gradients.group(), members, 2, "whole"), RONDA_OK) << ronda_last_error();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_ERROR_MISMATCH);
    EXPECT_THAT(gradients.values()[0], Each(static_cast<float>(ronda_rank())));
    EXPECT_THAT(gradients.values()[1], Each(kSum));
  });
}

TEST(CGroupsTest, TensorGroupsThatCannotWorkAreRefused) {
  RunRanks([] {
    Gradients gradients(4);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    const auto refusal = [&](std::vector<size_t> members, const char* name) -> std::string {
      EXPECT_EQ(ronda_group_combine(gradients.group(), members.data(), members.size(), name),
                RONDA_ERROR_INVALID_ARGUMENT);
      return ronda_last_error();
    };
    EXPECT_THAT(refusal({0, 4}, "g"), HasSubstr("group 'gradients': there is no member 4 among 4"));
    EXPECT_THAT(refusal({0, 0}, "g"), HasSubstr("member 0 'g0' is in a tensor group already"));
    EXPECT_THAT(refusal({0, 1}, nullptr), HasSubstr("the tensor group's name"));
    const size_t members[] = {0, 1};
    ASSERT_EQ(ronda_group_combine(gradients.group(), members, 2, "g"), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(refusal({2, 1}, "h"), HasSubstr("member 1 'g1' is in a tensor group already"));
    EXPECT_THAT(refusal({2, 3}, "g"), HasSubstr("member 0 'g0' is in tensor group 'g'"));
    EXPECT_EQ(ronda_group_combine(gradients.group(), nullptr, 2, "h"), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_group_ready(gradients.group(), 3), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(refusal({2, 3}, "h"), HasSubstr("member 3 'g3' has been announced in this step"));
    EXPECT_EQ(ronda_group_learn_order(gradients.group()), RONDA_ERROR_INVALID_ARGUMENT);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(gradients.values(), Each(Each(kSum)));
  });
}

TEST(CGroupsTest, AMemberMayGetItsBufferWhenItIsAnnounced) {
  RunRanks([] {
    Gradients gradients(2);
    gradients.args()[1].input = gradients.args()[1].output = nullptr;
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_ready(gradients.group(), 1), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("member 1 'g1' is announced without its data"));
    for (const bool is_placed : {false, true}) {
      gradients.Set(static_cast<float>(ronda_rank()));
      EXPECT_EQ(ronda_group_ready(gradients.group(), 0), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(is_placed ? ronda_group_ready(gradients.group(), 1)
                          : ronda_group_ready_at(gradients.group(), 1, gradients.values()[1].data()),
                RONDA_OK)
          << ronda_last_error();
      ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      EXPECT_THAT(gradients.values(), Each(Each(kSum)));
    }
  });
}

TEST(CGroupsTest, AStepMayEndWithoutSomeMembers) {
  RunRanks([] {
    constexpr size_t kCount = 40;  // several batches
    Gradients gradients(kCount);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    const auto is_late = [](size_t step, size_t i) { return step % 2 == 1 && i % 5 == 3; };
    for (size_t step = 0; step < 10; ++step) {
      gradients.Set(static_cast<float>(ronda_rank()));
      for (size_t i = 0; i < kCount; ++i) {
        if (is_late(step, i)) continue;
        ASSERT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
      }
      if (step % 2 == 0) {
        ASSERT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
        ASSERT_THAT(gradients.values(), Each(Each(kSum)));
        continue;
      }
      std::vector<ronda_handle> handles(kCount);
      ASSERT_EQ(ronda_group_detach(gradients.group(), handles.data()), RONDA_OK) << ronda_last_error();
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(handles[i] == 0, is_late(step, i));
        if (handles[i] == 0) {
          ASSERT_THAT(gradients.values()[i], Each(static_cast<float>(ronda_rank())));
          continue;
        }
        ASSERT_EQ(ronda_synchronize(handles[i]), RONDA_OK) << ronda_last_error();
        ASSERT_THAT(gradients.values()[i], Each(kSum));
        ASSERT_EQ(ronda_release(handles[i]), RONDA_OK) << ronda_last_error();
      }
    }
  });
}

TEST(CGroupsTest, MembersThatLeaveTheGroupMustBeWrittenSomewhere) {
  RunRanks([] {
    Gradients gradients(1);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_detach(gradients.group(), nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("handles"));
  });
}

// Rank 0 announces one member of the group, and announces the other only after the first has been reduced.
TEST(CGroupsTest, AMemberTravelsBeforeTheLastIsReady) {
  RunRanks([] {
    const int64_t shape[1] = {1 << 18};  // 1 MiB: a separate batch
    std::vector<float> first(1 << 18, 1), second(1 << 18, 1);
    ronda_allreduce_args args[2] = {RONDA_ALLREDUCE_ARGS_INIT, RONDA_ALLREDUCE_ARGS_INIT};
    args[0].tensor = {"first", RONDA_FLOAT32, 1, shape};
    args[1].tensor = {"second", RONDA_FLOAT32, 1, shape};
    args[0].input = args[0].output = first.data();
    args[1].input = args[1].output = second.data();
    if (ronda_rank() != 0) {
      // Ranks other than rank 0 reduce the same tensors without a group.
      ASSERT_EQ(ronda_allreduce(&args[0]), RONDA_OK) << ronda_last_error();
      int32_t word = 0;
      ronda_recv_args recv = RONDA_RECV_ARGS_INIT;
      recv.tensor.dtype = RONDA_INT32;
      recv.output = &word;
      ASSERT_EQ(ronda_recv(&recv), RONDA_OK) << ronda_last_error();
      ASSERT_EQ(ronda_allreduce(&args[1]), RONDA_OK) << ronda_last_error();
      return;
    }
    ronda_group group = nullptr;
    ASSERT_EQ(ronda_prepare_group(args, 2, "g", &group), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_group_ready(group, 0), RONDA_OK) << ronda_last_error();
    // The other ranks receive rank 0's message only after the first member's result. Rank 0 announces the second member
    // only after it has sent the messages.
    for (int to = 1; to < kRanks; ++to) {
      int32_t word = 1;
      ronda_send_args send = RONDA_SEND_ARGS_INIT;
      send.tensor.dtype = RONDA_INT32;
      send.input = &word;
      send.to = to;
      ASSERT_EQ(ronda_send(&send), RONDA_OK) << ronda_last_error();
    }
    ASSERT_EQ(ronda_group_ready(group, 1), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_group_wait(group), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(first[0], kRanks);
    EXPECT_EQ(second[0], kRanks);
    EXPECT_EQ(ronda_group_release(group), RONDA_OK) << ronda_last_error();
  });
}

TEST(CGroupsTest, AWaitThatGivesUpChangesNothing) {
  RunRanks([] {
    Gradients gradients(2);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    int done = -1;
    EXPECT_EQ(ronda_group_wait_for(gradients.group(), 0, &done), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("has not been announced"));
    const auto announce = [&] {
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
      }
    };
    if (ronda_rank() == 0) {
      announce();
      EXPECT_EQ(ronda_group_wait_for(gradients.group(), 0.01, &done), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(done, 0);
    }
    EXPECT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();  // before this, the others have announced nothing
    if (ronda_rank() != 0) announce();
    EXPECT_EQ(ronda_group_wait_for(gradients.group(), -1, &done), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(done, 1);
    EXPECT_THAT(gradients.values(), Each(Each(kSum)));
    EXPECT_EQ(ronda_group_wait_for(gradients.group(), std::nan(""), &done), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_group_wait_for(gradients.group(), 0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST(CGroupsTest, MistakesAreNamedAndTheStepGoesOn) {
  RunRanks([] {
    Gradients gradients(3);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_ready(gradients.group(), 3), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("group 'gradients': there is no member 3 among 3"));
    EXPECT_EQ(ronda_group_ready(gradients.group(), 0), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_ready(gradients.group(), 0), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("member 0 'g0' has been announced in this step"));
    EXPECT_EQ(ronda_group_ready(gradients.group(), 2), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("member 1 'g1' has not been announced"));
    EXPECT_EQ(ronda_group_ready(gradients.group(), 1), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(gradients.values(), Each(Each(kSum)));
  });
}

TEST(CGroupsTest, InvalidGroupIsRefused) {
  RunRanks([] {
    if (ronda_rank() != 0) return;
    Gradients gradients(3);
    const auto refusal = [&](const std::function<void(std::vector<ronda_allreduce_args>*)>& change) -> std::string {
      std::vector<ronda_allreduce_args> args = gradients.args();
      change(&args);
      ronda_group group = nullptr;
      EXPECT_EQ(ronda_prepare_group(args.data(), args.size(), "g", &group), RONDA_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(group, nullptr);
      return ronda_last_error();
    };
    EXPECT_THAT(refusal([](auto* args) { (*args)[1].op = static_cast<ronda_reduce_op>(77); }),
                HasSubstr("'g1': op 77"));
    EXPECT_THAT(refusal([](auto* args) { (*args)[2].output = nullptr; }), AllOf(HasSubstr("'g2'"), HasSubstr("null")));
    EXPECT_THAT(refusal([](auto* args) { (*args)[2].tensor.name = "g0"; }), HasSubstr("two members are named 'g0'"));
    EXPECT_THAT(refusal([](auto* args) { (*args)[1].struct_size -= 8; }), HasSubstr("in member 1"));
    EXPECT_EQ(ronda_prepare_group(gradients.args().data(), 3, "g", nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("group is NULL"));
    EXPECT_EQ(ronda_group_ready(nullptr, 0), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_group_ready: group is NULL"));
    EXPECT_EQ(ronda_group_release(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST(CGroupsTest, TheFirstErrorOfAStepIsReturnedAndTheNextStepIsFree) {
  RunRanks([] {
    Gradients gradients(3);
    gradients.args()[1].op = ronda_rank() == 0 ? RONDA_MIN : RONDA_MAX;  // the ranks disagree
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    for (int step = 0; step < 3; ++step) {
      gradients.Set(static_cast<float>(ronda_rank()));
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_ERROR_MISMATCH);
      EXPECT_THAT(ronda_last_error(), HasSubstr("'g1'"));
      EXPECT_THAT(gradients.values()[0], Each(kSum));
      EXPECT_THAT(gradients.values()[2], Each(kSum));
    }
  });
}

TEST(CGroupsTest, ANameInFlightIsAnErrorOfTheCallAndOfTheStep) {
  RunRanks([] {
    Gradients gradients(2);
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    // The other ranks submit no tensor of the group before a barrier, which rank 0 enters near the end of the block
    // below.
    if (ronda_rank() == 0) {
      ronda_handle handle = 0;
      ASSERT_EQ(ronda_allreduce_async(&gradients.args()[1], &handle), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_group_ready(gradients.group(), 0), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_group_ready(gradients.group(), 1), RONDA_ERROR_DUPLICATE_NAME);
      EXPECT_THAT(ronda_last_error(), HasSubstr("'g1' is in flight already"));
      EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_ERROR_DUPLICATE_NAME);
      EXPECT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_release(handle), RONDA_OK) << ronda_last_error();
    } else {
      EXPECT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_allreduce(&gradients.args()[1]), RONDA_OK) << ronda_last_error();
    }
    EXPECT_THAT(gradients.values()[1], Each(kSum));
    gradients.Set(static_cast<float>(ronda_rank()));
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(gradients.values(), Each(Each(kSum)));
  });
}

TEST(CGroupsTest, OverflowInAnyMemberIsFound) {
  RunRanks([] {
    Gradients gradients(3);
    for (ronda_allreduce_args& args : gradients.args()) args.detect_overflow = 1;
    ASSERT_EQ(gradients.Prepare(), RONDA_OK) << ronda_last_error();
    for (const bool overflows : {true, false}) {
      gradients.Set(1);
      if (overflows && ronda_rank() == 2) gradients.values()[1].back() = gradients.values()[2].back() = INFINITY;
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ronda_group_ready(gradients.group(), i), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_group_wait(gradients.group()), RONDA_OK) << ronda_last_error();
      int found = -1;
      EXPECT_EQ(ronda_group_found_inf(gradients.group(), &found), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(found, overflows ? 1 : 0);
      int64_t first = -2;
      EXPECT_EQ(ronda_group_overflowed(gradients.group(), &first), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(first, overflows ? 1 : -1);
    }
    EXPECT_EQ(ronda_group_found_inf(gradients.group(), nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_group_overflowed(gradients.group(), nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST(CGroupsTest, AGroupOutlivesItsJobButIsOfNoUse) {
  ronda_group group = nullptr;
  int current = -1;
  float value = 1;
  const int64_t shape[1] = {1};
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor = {"t", RONDA_FLOAT32, 1, shape};
  args.input = args.output = &value;
  EXPECT_EQ(ronda_prepare_group(&args, 1, "early", &group), RONDA_ERROR_NOT_INITIALIZED);
  const std::function<void()> prepare = [&] {
    EXPECT_EQ(ronda_prepare_group(&args, 1, "early", &group), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_group_is_current(group, &current), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(current, 1);
  };
  ASSERT_EQ(ronda_run_threads(nullptr, 1, Call, const_cast<std::function<void()>*>(&prepare)), RONDA_OK);
  EXPECT_EQ(ronda_group_is_current(group, &current), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(current, 0);
  EXPECT_EQ(ronda_group_ready(group, 0), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_THAT(ronda_last_error(), HasSubstr("group 'early' was prepared for a job that has ended"));
  EXPECT_EQ(ronda_group_release(group), RONDA_OK) << ronda_last_error();
}

}  // namespace
