// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cuda/fake_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace ronda::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr char kFileName[] = "fake_cuda_device_";

size_t RoundUpToPages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Reserves `bytes` bytes of address space between two inaccessible pages. Returns nullptr if the system refuses.
char* Reserve(size_t bytes) {
  void* const mapping = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping) + kPage;
}

// Maps the same memory at two addresses. `protection` applies to the first one.
bool MapTwice(char* first, char* second, size_t bytes, int protection) {
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0) return false;
  const bool is_mapped = ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
                         mmap(first, bytes, protection, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED &&
                         mmap(second, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  close(file);
  return is_mapped;
}

void UnmapWithGuards(char* memory, size_t bytes) { munmap(memory - kPage, bytes + 2 * kPage); }

}  // namespace

FakeMemory::FakeMemory(int devices, size_t bytes_per_device, HostAccess host_access)
    : host_access_(host_access), left_(devices, bytes_per_device), bytes_per_device_(bytes_per_device) {}

FakeMemory::~FakeMemory() {
  const MutexLock lock(&mu_);
  for (const auto& [address, block] : blocks_) Unmap(block);
  for (const auto& [address, block] : freed_) Unmap(block);
  for (const Block& block : released_) Unmap(block);
  for (const auto& [address, range] : ranges_) Unmap(range.block);
}

void* FakeMemory::Allocate(int device, size_t bytes) {
  const MutexLock lock(&mu_);
  if (device != kPinnedHost && left_[device] < bytes) return nullptr;
  const size_t mapped_bytes = RoundUpToPages(bytes == 0 ? 1 : bytes);
  const bool is_hidden = device != kPinnedHost && host_access_ == HostAccess::kFatal;
  char* const memory = Reserve(mapped_bytes);
  char* const view = is_hidden ? Reserve(mapped_bytes) : memory;
  if (memory == nullptr || view == nullptr) return nullptr;
  const bool is_mapped = is_hidden ? MapTwice(memory, view, mapped_bytes, PROT_NONE)
                                   : mprotect(memory, mapped_bytes, PROT_READ | PROT_WRITE) == 0;
  if (!is_mapped) return nullptr;
  if (device != kPinnedHost) {
    left_[device] -= bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_per_device_ - left_[device]);
  }
  ++allocations_;
  blocks_[reinterpret_cast<uintptr_t>(memory)] = {
      .device = device, .bytes = bytes, .mapping = memory, .mapped_bytes = mapped_bytes, .view = view};
  return memory;
}

bool FakeMemory::Release(int device, void* memory, Use use) {
  const MutexLock lock(&mu_);
  if (use == Use::kOver) {
    for (const Block& block : released_) Unmap(block);
    released_.clear();
  }
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == blocks_.end() || found->second.device != device) return false;
  const Block& block = found->second;
  if (IsCounted(block)) left_[device] += block.bytes;
  if (use == Use::kOver) {
    Unmap(block);
  } else {
    released_.push_back(block);
  }
  blocks_.erase(found);
  return true;
}

bool FakeMemory::Free(const void* memory) {
  const MutexLock lock(&mu_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == blocks_.end()) return false;
  if (IsCounted(found->second)) left_[found->second.device] += found->second.bytes;
  freed_.insert(*found);
  blocks_.erase(found);
  return true;
}

bool FakeMemory::IsAnyFreed(const std::vector<const void*>& addresses) const {
  const MutexLock lock(&mu_);
  for (const void* const address : addresses) {
    if (Find(freed_, address, 1) != nullptr) return true;
  }
  return false;
}

int FakeMemory::CreateFile(int device, size_t bytes) {
  const MutexLock lock(&mu_);
  if (left_[device] < bytes) return -1;
  const int file = memfd_create((kFileName + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) return file;
  close(file);
  return -1;
}

int FakeMemory::DeviceOfFile(int file) {
  char path[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path, sizeof(path) - 1);
  const std::string begin = "/memfd:" + std::string(kFileName);
  if (length < 0 || std::string(path).rfind(begin, 0) != 0) return -1;
  return std::atoi(path + begin.size());
}

void* FakeMemory::ReserveRange(size_t bytes) {
  const MutexLock lock(&mu_);
  char* const memory = Reserve(bytes);
  char* const view = host_access_ == HostAccess::kFatal ? Reserve(bytes) : memory;
  if (memory == nullptr || view == nullptr) return nullptr;
  ranges_[reinterpret_cast<uintptr_t>(memory)] = {
      .block = {.bytes = bytes, .mapping = memory, .mapped_bytes = bytes, .view = view, .is_shared = true}};
  return memory;
}

bool FakeMemory::MapIntoRange(void* address, size_t bytes, int file) {
  const MutexLock lock(&mu_);
  auto found = ranges_.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (found == ranges_.begin()) return false;
  Range& range = (--found)->second;
  const auto offset = static_cast<size_t>(static_cast<char*>(address) - range.block.mapping);
  if (offset + bytes > range.block.bytes) return false;
  char* const view = range.block.view + offset;
  if (mmap(view, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) return false;
  range.filled += bytes;
  return true;
}

bool FakeMemory::FreeRange(void* range) {
  const MutexLock lock(&mu_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(range));
  if (found == ranges_.end()) return false;
  Unmap(found->second.block);
  ranges_.erase(found);
  return true;
}

bool FakeMemory::GiveAccess(void* range, size_t bytes, int device) {
  const MutexLock lock(&mu_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(range));
  if (found == ranges_.end() || found->second.filled != bytes || found->second.block.bytes != bytes) return false;
  Block block = found->second.block;
  block.device = device;
  blocks_[found->first] = block;
  ranges_.erase(found);
  return true;
}

// With an old size of 0, mremap maps the memory of a shared mapping a second time.
void* FakeMemory::Register(void* memory, size_t bytes) {
  const MutexLock lock(&mu_);
  if (bytes == 0 || bytes % kPage != 0 || registered_.contains(memory)) return nullptr;
  char* const target = Reserve(bytes);
  if (target == nullptr ||
      mremap(memory, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, static_cast<void*>(target)) == MAP_FAILED) {
    return nullptr;
  }
  registered_[memory] = target;
  blocks_[reinterpret_cast<uintptr_t>(target)] = {
      .device = kPinnedHost, .bytes = bytes, .mapping = target, .mapped_bytes = bytes, .view = target};
  return target;
}

bool FakeMemory::EndRegistration(void* memory) {
  const MutexLock lock(&mu_);
  const auto found = registered_.find(memory);
  if (found == registered_.end()) return false;
  const auto block = blocks_.find(reinterpret_cast<uintptr_t>(found->second));
  released_.push_back(block->second);  // work of a stream may still use it
  blocks_.erase(block);
  registered_.erase(found);
  return true;
}

int FakeMemory::DeviceOf(const void* address) const {
  const MutexLock lock(&mu_);
  const Block* const block = FindLocked(address, 1);
  return block == nullptr ? kPinnedHost : block->device;
}

bool FakeMemory::IsPinned(const void* address) const {
  const MutexLock lock(&mu_);
  const Block* const block = FindLocked(address, 1);
  return block != nullptr && block->device == kPinnedHost;
}

void* FakeMemory::ViewOf(int device, const void* address, size_t bytes) const {
  const MutexLock lock(&mu_);
  const Block* const block = FindLocked(address, bytes);
  if (block == nullptr || (block->device != kPinnedHost && block->device != device)) return nullptr;
  return block->view + (static_cast<const char*>(address) - block->mapping);
}

void* FakeMemory::AnyViewOf(const void* address) const {
  const int device = DeviceOf(address);
  void* const view = ViewOf(device, address, 1);
  return view == nullptr ? const_cast<void*>(address) : view;
}

size_t FakeMemory::allocations() const {
  const MutexLock lock(&mu_);
  return allocations_;
}

size_t FakeMemory::peak_bytes() const {
  const MutexLock lock(&mu_);
  return peak_bytes_;
}

size_t FakeMemory::live() const {
  const MutexLock lock(&mu_);
  return blocks_.size();
}

void FakeMemory::Unmap(const Block& block) {
  UnmapWithGuards(block.mapping, block.mapped_bytes);
  if (block.view != block.mapping) UnmapWithGuards(block.view, block.mapped_bytes);
}

const FakeMemory::Block* FakeMemory::FindLocked(const void* address, size_t bytes) const {
  return Find(blocks_, address, bytes);
}

const FakeMemory::Block* FakeMemory::Find(const Blocks& blocks, const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto next = blocks.upper_bound(begin);
  if (next == blocks.begin()) return nullptr;
  const auto& [block_begin, block] = *--next;
  return begin - block_begin + bytes <= block.bytes ? &block : nullptr;
}

}  // namespace ronda::testing
