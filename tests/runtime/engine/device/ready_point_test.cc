// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class ReadyPointTest : public ::testing::Test {
 protected:
  std::unique_ptr<DeviceStream> NewStream() { return *DeviceStream::Create(device_.get()); }

  std::shared_ptr<const ReadyPoint> Record(StreamHandle stream) {
    const auto point = ReadyPoint::Record(device_, stream, &recorded_);
    EXPECT_EQ(point.status(), absl::OkStatus());
    return *point;
  }

  FakeCuda cuda_{{.devices = 1}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  std::atomic<uint64_t> recorded_{0};
};

TEST_F(ReadyPointTest, LaterPointsCoverEarlierOnesOfTheirStream) {
  const auto stream = NewStream();
  const auto other_stream = NewStream();
  const auto first = Record(stream->handle());
  const auto other = Record(other_stream->handle());
  const auto second = Record(stream->handle());
  EXPECT_TRUE(second->Covers(*first));
  EXPECT_FALSE(first->Covers(*second));
  EXPECT_TRUE(first->Covers(*first));
  EXPECT_FALSE(second->Covers(*other));
  EXPECT_FALSE(other->Covers(*first));
}

// Two threads record points on one stream at the same time. Neither thread knows which of the two points came first.
TEST_F(ReadyPointTest, PointsThatAreNotedAtTheSameTimeDoNotCoverEachOther) {
  const auto stream = NewStream();
  std::atomic<uint64_t> elsewhere{0};
  const auto here = Record(stream->handle());
  const auto there = *ReadyPoint::Record(device_, stream->handle(), &elsewhere);  // `elsewhere` has not seen `here`
  EXPECT_FALSE(there->Covers(*here));
  EXPECT_FALSE(here->Covers(*there));
}

TEST_F(ReadyPointTest, AStreamThatComesAtTheSameAddressIsAnother) {
  auto stream = NewStream();
  const StreamHandle place = stream->handle();
  const auto before = Record(place);
  stream.reset();
  // Creates streams until the allocator returns the address of the destroyed stream again.
  std::unique_ptr<DeviceStream> again;
  std::vector<std::unique_ptr<DeviceStream>> others;
  for (int i = 0; i < 1000 && again == nullptr; ++i) {
    auto next = NewStream();
    if (next->handle() == place) {
      again = std::move(next);
    } else if (i % 2 == 0) {
      others.push_back(std::move(next));
    }
  }
  if (again == nullptr) GTEST_SKIP() << "the handle has not come again";
  EXPECT_FALSE(Record(again->handle())->Covers(*before));
}

TEST_F(ReadyPointTest, OfEachStreamTheLastIsWaitedFor) {
  const auto one = NewStream();
  const auto two = NewStream();
  const auto a = Record(one->handle());
  const auto b = Record(two->handle());
  const auto c = Record(one->handle());
  const auto d = Record(one->handle());
  LastPoints last;
  for (const auto& point : {c, a, b, d, a, b}) last.Add(point.get());
  EXPECT_THAT(last.points(), UnorderedElementsAre(b.get(), d.get()));
  last.Clear();
  last.Add(a.get());
  EXPECT_THAT(last.points(), ElementsAre(a.get()));
}

TEST_F(ReadyPointTest, AStreamThatIsBeingCapturedIsRefused) {
  const auto stream = NewStream();
  cuda_.SetCapturing(stream->handle(), 1);
  const auto point = ReadyPoint::Record(device_, stream->handle(), &recorded_);
  EXPECT_EQ(point.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(point.status().message()), HasSubstr("before or after the capture"));
  EXPECT_EQ(cuda_.recorded_events(), 0u);
  cuda_.SetCapturing(stream->handle(), 0);
  EXPECT_NE(Record(stream->handle()), nullptr);
}

}  // namespace
}  // namespace ronda
