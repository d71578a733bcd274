// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/hierarchical/two_level_reduce.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

namespace ronda {
namespace {

TEST(AcrossWorkerTest, SlotsAreCarriedOutInTheirOrder) {
  std::vector<size_t> carried;
  AcrossWorker worker([&](size_t slot) {
    carried.push_back(slot);
    return slot == 1 ? absl::UnavailableError("link down") : absl::OkStatus();
  });
  worker.Submit(0);
  worker.Submit(1);
  EXPECT_EQ(worker.Await(), absl::OkStatus());
  EXPECT_EQ(worker.Await(), absl::UnavailableError("link down"));
  worker.Submit(0);
  EXPECT_EQ(worker.Await(), absl::OkStatus());
  EXPECT_EQ(carried, (std::vector<size_t>{0, 1, 0}));
}

TEST(AcrossWorkerTest, AnExceptionIsTheResultOfItsSlot) {
  AcrossWorker worker([](size_t slot) -> absl::Status {
    if (slot == 0) throw std::bad_alloc();
    throw std::length_error("too long");
  });
  worker.Submit(0);
  worker.Submit(1);
  EXPECT_EQ(worker.Await().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(worker.Await().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ronda
