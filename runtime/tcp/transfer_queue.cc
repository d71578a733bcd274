#include "runtime/tcp/transfer_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"

namespace ronda {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t);
// A queue that is never empty moves to the beginning of its memory when this many of its entries, and most, are over.
constexpr size_t kEntriesToReclaim = 256;

}  // namespace

TransferQueue::Number TransferQueue::Add(void* data, size_t bytes) {
  if (empty() || (first_ >= kEntriesToReclaim && first_ > entries_.size() / 2)) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  entries_.push_back({.length = bytes, .data = static_cast<char*>(data), .bytes = bytes});
  return completed_ + (entries_.size() - first_) - 1;
}

size_t TransferQueue::Fill(absl::Span<iovec> vectors) {
  size_t used = 0;
  const auto add = [&](char* base, size_t bytes, size_t skipped) {
    if (skipped < bytes && used < vectors.size()) vectors[used++] = {base + skipped, bytes - skipped};
  };
  for (size_t i = first_; i < entries_.size() && used < vectors.size(); ++i) {
    Entry& entry = entries_[i];
    add(reinterpret_cast<char*>(&entry.length), kLengthBytes, std::min(entry.moved, kLengthBytes));
    add(entry.data, entry.bytes, entry.moved - std::min(entry.moved, kLengthBytes));
  }
  return used;
}

absl::Status TransferQueue::Advance(size_t bytes) {
  while (bytes > 0) {
    RONDA_CHECK(!empty());
    Entry& entry = entries_[first_];
    const size_t step = std::min(bytes, kLengthBytes + entry.bytes - entry.moved);
    entry.moved += step;
    bytes -= step;
    if (entry.moved >= kLengthBytes && entry.length != entry.bytes) {
      return absl::InternalError(
          absl::StrCat("a message of ", entry.length, " bytes has come where one of ", entry.bytes, " is expected"));
    }
    if (entry.moved < kLengthBytes + entry.bytes) break;
    ++first_;
    ++completed_;
  }
  return absl::OkStatus();
}

}  // namespace ronda
