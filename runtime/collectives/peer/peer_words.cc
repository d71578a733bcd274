// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/peer_words.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kWord = sizeof(uint32_t);
constexpr size_t kLine = 64;  // a cache line

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

size_t RowBytes(int members) { return RoundUp((static_cast<size_t>(members) + 1) * kWord, kLine); }

// The rows of all members, followed by one word per member for the host.
size_t BytesFor(int members) {
  const auto rows = static_cast<size_t>(members);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return RoundUp(rows * RowBytes(members) + rows * kWord, page);
}

}  // namespace

absl::StatusOr<UniqueFd> PeerWords::CreateFile(int members) {
  UniqueFd file(memfd_create("ronda-peer", MFD_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "cannot make memory for meetings of streams (memfd_create)");
  if (ftruncate(file.get(), static_cast<off_t>(BytesFor(members))) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make memory for meetings of streams (ftruncate)");
  }
  return file;
}

absl::StatusOr<std::unique_ptr<PeerWords>> PeerWords::Map(Device* device, const UniqueFd& file, int members, int self) {
  const size_t bytes = BytesFor(members);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, "cannot map the memory for meetings of streams (mmap)");
  }
  auto mapping = std::make_unique<ShmMapping>(memory, bytes, UniqueFd());
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<RegisteredMemory> registered,
                         RegisteredMemory::Register(device, memory, bytes));
  return std::unique_ptr<PeerWords>(new PeerWords(device, std::move(mapping), std::move(registered), members, self));
}

PeerWords::PeerWords(Device* device, std::unique_ptr<ShmMapping> mapping, std::unique_ptr<RegisteredMemory> registered,
                     int members, int self)
    : device_(device),
      mapping_(std::move(mapping)),
      registered_(std::move(registered)),
      members_(members),
      self_(self) {}

PeerWords::~PeerWords() {
  registered_.reset();  // may abandon the device
  if (device_->is_abandoned()) mapping_->Abandon();
}

size_t PeerWords::ArrivalOffset(int waiter, int member) const {
  return static_cast<size_t>(waiter) * RowBytes(members_) + static_cast<size_t>(member) * kWord;
}

size_t PeerWords::LaunchOffset(int member) const { return ArrivalOffset(members_, member); }

uint32_t* PeerWords::OnHost(size_t offset) const {
  return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(mapping_->base()) + offset);
}

void PeerWords::AddArrival(uint32_t meeting, std::vector<ronda_cuda_word_op>* ops) const {
  for (int waiter = 0; waiter < members_; ++waiter) {
    if (waiter == self_) continue;
    ops->push_back({.action = RONDA_CUDA_WRITE_WORD, .word = OnDevice(ArrivalOffset(waiter, self_)), .value = meeting});
  }
}

void PeerWords::AddWaits(uint32_t meeting, std::vector<ronda_cuda_word_op>* ops) const {
  for (int member = 0; member < members_; ++member) {
    if (member == self_) continue;
    ops->push_back(
        {.action = RONDA_CUDA_AWAIT_WORD_AT_LEAST, .word = OnDevice(ArrivalOffset(self_, member)), .value = meeting});
  }
  AddFailureCheck(ops);
}

void PeerWords::AddFailureCheck(std::vector<ronda_cuda_word_op>* ops) const {
  ops->push_back({.action = RONDA_CUDA_AWAIT_WORD_EQUAL, .word = OnDevice(FailureOffset(self_)), .value = 0});
}

void PeerWords::RecordLaunch(uint32_t meeting) {
  std::atomic_ref<uint32_t>(*OnHost(LaunchOffset(self_))).store(meeting, std::memory_order_release);
}

bool PeerWords::HasLaunched(int member, uint32_t meeting) const {
  const uint32_t launched = std::atomic_ref<uint32_t>(*OnHost(LaunchOffset(member))).load(std::memory_order_acquire);
  return static_cast<int32_t>(launched - meeting) >= 0;
}

// The stores are sequentially consistent, so that no store of EndWaits() becomes visible before them.
void PeerWords::ReportFailure() {
  for (int waiter = 0; waiter < members_; ++waiter) {
    if (waiter == self_) continue;
    std::atomic_ref<uint32_t>(*OnHost(FailureOffset(waiter))).store(1, std::memory_order_seq_cst);
  }
}

void PeerWords::EndWaits(uint32_t last) {
  for (int member = 0; member < members_; ++member) {
    std::atomic_ref<uint32_t>(*OnHost(ArrivalOffset(self_, member))).store(last, std::memory_order_seq_cst);
  }
  std::atomic_ref<uint32_t>(*OnHost(FailureOffset(self_))).store(0, std::memory_order_seq_cst);
}

}  // namespace ronda
