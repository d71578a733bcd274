// SPDX-License-Identifier: Apache-2.0

// Tests how ranks that cannot be connected for direct calls fail the job.
#include "runtime/collectives/nccl/nccl_direct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;

std::atomic<bool> job_has_failed = false;
NcclFunctions fake;

NcclResult AbortAfterFailure(NcclHandle handle) {
  EXPECT_TRUE(job_has_failed.load()) << "the other ranks may notice the abort before they know its cause";
  return fake.CommAbort(handle);
}

class NcclDirectTest : public ::testing::Test {
 protected:
  void SetUp() override { job_has_failed = false; }
  void TearDown() override { SetFakeNcclFaults(kNoFaults); }

  // Connects the ranks, which must all fail.
  void ExpectFailure(const fake_nccl_faults& faults, const std::string& text) {
    SetFakeNcclFaults(faults);
    auto library = std::make_shared<NcclLibrary>(*LoadFakeNccl(cuda_.table()));
    fake = library->functions;
    library->functions.CommAbort = AbortAfterFailure;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([this, rank, library] { EXPECT_FALSE(Connect(rank, library).ok()); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(std::string(job_->failure().message()), HasSubstr(text));
    EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  }

 private:
  absl::Status Connect(int rank, const std::shared_ptr<const NcclLibrary>& library) {
    InProcessCommunicator host(job_, rank);
    const std::shared_ptr<Device> device = *Device::Open(cuda_.table(), rank);
    const std::unique_ptr<DeviceStream> stream = *DeviceStream::Create(device.get());
    return NcclDirect::Connect({.info = {.label = "a test"},
                                .members = {0, 1},
                                .self = rank,
                                .device = device,
                                .stream = stream->handle(),
                                .share =
                                    [&host](const CallInfo& info, void* data, size_t bytes) {
                                      return host.Broadcast({.info = info, .data = data, .bytes = bytes, .root = 0});
                                    },
                                .job_failure = [this] { return job_->failure(); },
                                .fail_job =
                                    [this, rank](const absl::Status& status) {
                                      job_has_failed = true;
                                      job_->Fail(rank, status);
                                    }},
                               library, {.memory_bytes = size_t{1} << 20})
        .status();
  }

  FakeCuda cuda_{FakeCuda::Options{.devices = kRanks}};
  const std::shared_ptr<InProcessJob> job_ = std::make_shared<InProcessJob>(InProcessJob::Options{.size = kRanks});
};

TEST_F(NcclDirectTest, RankThatCannotRegisterFailsTheJobBeforeItAborts) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = 1;
  faults.fail_register = 1;
  ExpectFailure(faults, "on rank 1: registering memory as a window");
}

TEST_F(NcclDirectTest, RankThatCannotBeConnectedFailsTheJobBeforeItAborts) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = 1;
  faults.fail_init = 1;
  ExpectFailure(faults, "on rank 1: making the communicator");
}

}  // namespace
}  // namespace ronda::testing
