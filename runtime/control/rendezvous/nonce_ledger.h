#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_NONCE_LEDGER_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_NONCE_LEDGER_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace ronda {

// The nonces that were given out and not used yet, so that a proof counts once.
//
// Thread-compatible.
class NonceLedger {
 public:
  // `capacity` bounds the memory that strangers can make us use: beyond it, the oldest nonce is forgotten.
  explicit NonceLedger(size_t capacity) : capacity_(capacity) {}

  void Issue(std::string nonce) {
    if (outstanding_.size() == capacity_) outstanding_.pop_front();
    outstanding_.push_back(std::move(nonce));
  }

  // Whether `nonce` was issued and not consumed before.
  bool Consume(absl::string_view nonce) {
    const auto it = std::find(outstanding_.begin(), outstanding_.end(), nonce);
    if (it == outstanding_.end()) return false;
    outstanding_.erase(it);
    return true;
  }

 private:
  const size_t capacity_;
  std::deque<std::string> outstanding_;  // oldest first
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_NONCE_LEDGER_H_
