// SPDX-License-Identifier: Apache-2.0

// Tests that the fake CUDA is as strict as CUDA about memory that ranks share, and about stream operations on words.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

constexpr size_t kUnit = size_t{2} << 20;
constexpr size_t kPage = 4096;

void* MapOne(const FakeCuda& cuda, int file) {
  void* memory = nullptr;
  EXPECT_EQ(cuda.table()->map_shared(&file, 1, kUnit, &memory), kCudaSuccess);
  return memory;
}

int NewFile(const FakeCuda& cuda) {
  int file = -1;
  EXPECT_EQ(cuda.table()->allocate_shared(kUnit, &file), kCudaSuccess);
  return file;
}

TEST(FakeSharingTest, FilesAreMappedOneBehindTheOther) {
  const FakeCuda cuda({.host_access = FakeMemory::HostAccess::kFatal});
  const int files[] = {NewFile(cuda), NewFile(cuda)};
  void* both = nullptr;
  ASSERT_EQ(cuda.table()->map_shared(files, 2, kUnit, &both), kCudaSuccess);
  void* const second = MapOne(cuda, files[1]);
  close(files[0]);
  close(files[1]);
  WriteDevice(second, "second");
  EXPECT_EQ(ReadDevice(static_cast<char*>(both) + kUnit, 6), "second");
  EXPECT_EQ(cuda.table()->unmap_shared(second, 1, kUnit), kCudaSuccess);
  EXPECT_EQ(ReadDevice(static_cast<char*>(both) + kUnit, 6), "second") << "the memory has another mapping";
  EXPECT_EQ(cuda.Leaks(), "1 allocations");
  EXPECT_EQ(cuda.table()->unmap_shared(both, 2, kUnit), kCudaSuccess);
  EXPECT_EQ(cuda.table()->unmap_shared(both, 2, kUnit), kCudaInvalidValue);
}

TEST(FakeSharingTest, SizesAreMultiplesOfTheUnit) {
  const FakeCuda cuda({.memory_bytes = 4 * kUnit});
  size_t unit = 0;
  int file = -1;
  EXPECT_EQ(cuda.table()->sharing_unit(&unit), kCudaSuccess);
  EXPECT_EQ(unit, kUnit);
  EXPECT_EQ(cuda.table()->allocate_shared(kUnit + kPage, &file), kCudaInvalidValue);
  EXPECT_EQ(cuda.table()->allocate_shared(5 * kUnit, &file), kCudaOutOfMemory);
  EXPECT_EQ(file, -1);
}

TEST(FakeSharingTest, OtherDevicesNeedAccess) {
  for (const auto sharing : {FakeCuda::Options::Sharing::kAllDevices, FakeCuda::Options::Sharing::kSameDevice}) {
    const FakeCuda cuda({.sharing = sharing});
    const int file = NewFile(cuda);
    ASSERT_EQ(cuda.table()->use_device(1), kCudaSuccess);
    void* memory = nullptr;
    const bool may = sharing == FakeCuda::Options::Sharing::kAllDevices;
    EXPECT_EQ(cuda.table()->map_shared(&file, 1, kUnit, &memory), may ? kCudaSuccess : kCudaInvalidDevice);
    ASSERT_EQ(cuda.table()->use_device(0), kCudaSuccess);
    close(file);
  }
}

TEST(FakeSharingTest, OldDriversShareNothing) {
  const FakeCuda cuda({.sharing = FakeCuda::Options::Sharing::kNone});
  size_t unit = 0;
  EXPECT_EQ(cuda.table()->sharing_unit(&unit), kCudaNotSupported);
  const ronda_cuda_word_op op = {RONDA_CUDA_WRITE_WORD, &unit, 1};
  EXPECT_EQ(cuda.table()->run_word_ops(&op, 1, nullptr), kCudaNotSupported);
}

// A page of registered host memory, and the addresses of its words on the device.
class SharedPage {
 public:
  explicit SharedPage(const FakeCuda& cuda) : cuda_(cuda) {
    host_ = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(cuda.table()->register_host(host_, kPage, &on_device_), kCudaSuccess);
  }
  ~SharedPage() {
    EXPECT_EQ(cuda_.table()->unregister_host(host_), kCudaSuccess);
    munmap(host_, kPage);
  }

  void* host() const { return host_; }
  std::atomic_ref<uint32_t> word() const { return std::atomic_ref<uint32_t>(*static_cast<uint32_t*>(host_)); }
  int Run(ronda_cuda_word_action action, uint32_t value, void* stream, size_t offset = 0) const {
    const ronda_cuda_word_op op = {action, static_cast<char*>(on_device_) + offset, value};
    return cuda_.table()->run_word_ops(&op, 1, stream);
  }

 private:
  const FakeCuda& cuda_;
  void* host_;
  void* on_device_ = nullptr;
};

bool IsIdle(void* stream) {
  int is_idle = -1;
  EXPECT_EQ(fake_cuda_is_idle(stream, &is_idle), kCudaSuccess);
  return is_idle == 1;
}

void AwaitIdle(void* stream) {
  while (!IsIdle(stream)) absl::SleepFor(absl::Microseconds(50));
}

TEST(FakeSharingTest, WordsAreAlignedAndInMemoryOfTheDevice) {
  const FakeCuda cuda({});
  const SharedPage page(cuda);
  EXPECT_EQ(page.Run(RONDA_CUDA_WRITE_WORD, 1, nullptr, 2), kCudaInvalidValue);
  EXPECT_EQ(page.Run(RONDA_CUDA_WRITE_WORD, 1, nullptr, kPage), kCudaInvalidValue);
  const ronda_cuda_word_op by_hosts_address = {RONDA_CUDA_WRITE_WORD, page.host(), 1};
  EXPECT_EQ(cuda.table()->run_word_ops(&by_hosts_address, 1, nullptr), kCudaInvalidValue);
  EXPECT_EQ(cuda.table()->run_word_ops(&by_hosts_address, 0, nullptr), kCudaInvalidValue);
  void* again = nullptr;
  EXPECT_EQ(cuda.table()->register_host(page.host(), kPage, &again), kCudaAlreadyRegistered);
}

TEST(FakeSharingTest, AStreamWaitsForAValueAndComparesCyclically) {
  const FakeCuda cuda({});
  const SharedPage page(cuda);
  void* stream = nullptr;
  ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  page.word().store(0xfffffff0);
  ASSERT_EQ(page.Run(RONDA_CUDA_AWAIT_WORD_AT_LEAST, 0xfffffff0, stream), kCudaSuccess);
  AwaitIdle(stream);
  ASSERT_EQ(page.Run(RONDA_CUDA_AWAIT_WORD_AT_LEAST, 3, stream), kCudaSuccess);
  ASSERT_EQ(page.Run(RONDA_CUDA_WRITE_WORD, 7, stream, 4), kCudaSuccess);
  EXPECT_FALSE(IsIdle(stream));
  page.word().store(5);  // after an overflow
  AwaitIdle(stream);
  ASSERT_EQ(page.Run(RONDA_CUDA_AWAIT_WORD_EQUAL, 6, stream), kCudaSuccess);
  EXPECT_FALSE(IsIdle(stream));
  page.word().store(6);
  AwaitIdle(stream);
}

TEST(FakeSharingTest, MappedMemoryThatIsFreedAddsNoMemoryToTheDevice) {
  FakeCuda cuda({.memory_bytes = 4 * kUnit});
  void* stream = nullptr;
  ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  const int file = NewFile(cuda);
  cuda.FreeOn(stream, MapOne(cuda, file));
  close(file);
  AwaitIdle(stream);
  void* memory = nullptr;
  EXPECT_EQ(cuda.table()->allocate(RONDA_CUDA_DEVICE_MEMORY, 5 * kUnit, &memory), kCudaOutOfMemory);
}

TEST(FakeSharingTest, AWaitHoldsUpItsQueue) {
  const FakeCuda cuda({.queues = 1});
  const SharedPage page(cuda);
  void* streams[2] = {};
  for (void*& stream : streams) ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  ASSERT_EQ(page.Run(RONDA_CUDA_AWAIT_WORD_AT_LEAST, 1, streams[0]), kCudaSuccess);
  ASSERT_EQ(page.Run(RONDA_CUDA_WRITE_WORD, 2, streams[1], 4), kCudaSuccess);
  absl::SleepFor(absl::Milliseconds(2));
  EXPECT_FALSE(IsIdle(streams[1]));
  page.word().store(1);
  for (void* stream : streams) AwaitIdle(stream);
}

// A child process maps a file that it inherits.
TEST(FakeSharingTest, ProcessesShareTheMemory) {
  int file = -1;
  {
    const FakeCuda cuda({});
    file = NewFile(cuda);
    WriteDevice(MapOne(cuda, file), "parent");
  }
  const pid_t child = fork();
  if (child == 0) {
    const FakeCuda cuda({});
    _exit(ReadDevice(MapOne(cuda, file), 6) == "parent" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(file);
}

}  // namespace
}  // namespace ronda::testing
