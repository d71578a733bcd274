// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/mailboxes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"
#include "tests/testing/fake_nccl/path.h"
#include "tests/testing/fake_nccl/reports.h"

namespace ronda::testing {
namespace {

constexpr uint64_t kHeadBytes = sizeof(TransferHead);
// How long a rank sleeps before it checks again whether it must give up.
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);

// The open mailboxes of this process, by name.
struct OpenMailboxes {
  Mutex mu;
  std::map<std::string, std::weak_ptr<Mailboxes>> by_name ABSL_GUARDED_BY(mu);
};

OpenMailboxes& Opened() {
  static auto* const opened = new OpenMailboxes();
  return *opened;
}

uint64_t TotalBytes(const Transfer& transfer) { return kHeadBytes + transfer.own.bytes; }

// Returns the rest of the head or, when the head is done, of the data, and sets `*bytes` to its length.
char* PieceOf(Transfer& transfer, uint64_t* bytes) {
  if (transfer.done < kHeadBytes) {
    *bytes = kHeadBytes - transfer.done;
    return reinterpret_cast<char*>(&transfer.passed) + transfer.done;
  }
  *bytes = TotalBytes(transfer) - transfer.done;
  return transfer.data + (transfer.done - kHeadBytes);
}

}  // namespace

std::string ToString(const TransferHead& head) { return absl::StrCat(PathText(head.path), ", ", head.bytes, " bytes"); }

size_t Mailboxes::BytesFor(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  return 64 + n * 64 + n * n * sizeof(Ring) + n * (sizeof(DevicePlace) + sizeof(LastPost));
}

std::shared_ptr<Mailboxes> Mailboxes::Open(const std::string& name, int ranks) {
  OpenMailboxes& opened = Opened();
  const MutexLock lock(&opened.mu);
  std::weak_ptr<Mailboxes>& known = opened.by_name[name];
  if (std::shared_ptr<Mailboxes> mailboxes = known.lock()) return mailboxes;
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  // ftruncate() has no effect if another rank has already set this size. New memory is zero, which means that all rings
  // are empty.
  RONDA_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(BytesFor(ranks))) == 0);
  void* const memory = mmap(nullptr, BytesFor(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  RONDA_CHECK(memory != MAP_FAILED);
  close(file);
  std::shared_ptr<Mailboxes> mailboxes(new Mailboxes(name, ranks, memory));
  known = mailboxes;
  return mailboxes;
}

Mailboxes::~Mailboxes() {
  if (!AllHaveJoined()) shm_unlink(name_.c_str());
  munmap(memory_, BytesFor(ranks_));
}

void Mailboxes::Join(int rank, const DevicePlace& place) {
  PlaceOf(rank) = place;
  if (header().joined.fetch_add(1) + 1 == ranks_) shm_unlink(name_.c_str());
}

bool Mailboxes::AllHaveJoined() const { return header().joined.load() == ranks_; }
void Mailboxes::Finalize() { header().finalized.fetch_add(1); }
void Mailboxes::Connect() { header().connected.fetch_add(1); }
bool Mailboxes::AllHaveConnected(int nth) const { return header().connected.load() >= nth * ranks_; }
bool Mailboxes::AllHaveFinalized() const { return header().finalized.load() == ranks_; }

Doorbell& Mailboxes::DoorbellOf(int rank) const {
  return *reinterpret_cast<Doorbell*>(static_cast<char*>(memory_) + 64 + static_cast<size_t>(rank) * 64);
}

Mailboxes::Ring& Mailboxes::RingOf(int from, int to) const {
  auto* const rings = reinterpret_cast<Ring*>(static_cast<char*>(memory_) + 64 + static_cast<size_t>(ranks_) * 64);
  return rings[from * ranks_ + to];
}

DevicePlace& Mailboxes::PlaceOf(int rank) const {
  auto* const places = reinterpret_cast<DevicePlace*>(&RingOf(ranks_, 0));  // behind the last ring
  return places[rank];
}

Mailboxes::LastPost& Mailboxes::PostOf(int rank) const {
  auto* const posts = reinterpret_cast<LastPost*>(&PlaceOf(ranks_));  // behind the last place
  return posts[rank];
}

int Mailboxes::Post(int rank, uint64_t number) {
  PostOf(rank).number.store(number);
  return PostOf(rank).count.fetch_add(1) + 1;
}

bool Mailboxes::AllHavePosted(int nth) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (PostOf(rank).count.load() < nth) return false;
  }
  return true;
}

void Mailboxes::WakeUp(int rank) { DoorbellOf(rank).Ring(); }

Mailboxes::Progress Mailboxes::Advance(int self, Transfer& transfer) {
  const bool sends = transfer.way == Transfer::Way::kSend;
  Ring& ring = sends ? RingOf(self, transfer.peer) : RingOf(transfer.peer, self);
  const uint64_t written = ring.written.load(std::memory_order_acquire);
  const uint64_t read = ring.read.load(std::memory_order_acquire);
  const uint64_t at = (sends ? written : read) % kRingBytes;
  uint64_t bytes = 0;
  char* const piece = PieceOf(transfer, &bytes);
  bytes = std::min({bytes, sends ? kRingBytes - (written - read) : written - read, kRingBytes - at});
  if (bytes == 0) return Progress::kNone;
  std::memcpy(sends ? ring.data + at : piece, sends ? piece : ring.data + at, bytes);
  (sends ? ring.written : ring.read).fetch_add(bytes, std::memory_order_release);
  transfer.done += bytes;
  return transfer.done == kHeadBytes && transfer.passed != transfer.own ? Progress::kHeadsDiffer : Progress::kSome;
}

bool Mailboxes::Run(int self, std::vector<Transfer> transfers, const std::atomic<bool>& gives_up) {
  for (Transfer& transfer : transfers) {
    if (transfer.way == Transfer::Way::kSend) transfer.passed = transfer.own;
  }
  while (!transfers.empty()) {
    // Checks this before moving any data. A rank that gave up in the middle of an operation must not begin the next
    // one, because its peer would take the new bytes for the rest of the old operation.
    if (gives_up.load()) return false;
    const uint32_t heard = DoorbellOf(self).Rings();
    std::set<std::pair<Transfer::Way, int>> busy;  // with an earlier transfer that is not complete
    std::set<int> moved;
    for (Transfer& transfer : transfers) {
      if (busy.count({transfer.way, transfer.peer}) != 0) continue;
      Progress progress = Progress::kSome;
      while (transfer.done < TotalBytes(transfer) && progress == Progress::kSome) {
        progress = Advance(self, transfer);
        if (progress != Progress::kNone) moved.insert(transfer.peer);
      }
      if (progress == Progress::kHeadsDiffer) {
        HangUntil(gives_up, absl::StrCat("rank ", self, " and rank ", transfer.peer, " of ", name_, " do not match: ",
                                         ToString(transfer.own), ", and ", ToString(transfer.passed)));
        return false;
      }
      if (transfer.done < TotalBytes(transfer)) busy.insert({transfer.way, transfer.peer});
    }
    std::erase_if(transfers, [](const Transfer& transfer) { return transfer.done == TotalBytes(transfer); });
    for (int peer : moved) DoorbellOf(peer).Ring();
    if (moved.empty() && !transfers.empty()) DoorbellOf(self).Sleep(heard, kPollInterval);
  }
  return true;
}

}  // namespace ronda::testing
