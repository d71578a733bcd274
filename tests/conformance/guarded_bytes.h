// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_CONFORMANCE_GUARDED_BYTES_H_
#define RONDA_TESTS_CONFORMANCE_GUARDED_BYTES_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ronda::testing {

enum class Alignment { kOdd, kAligned };

// A buffer between guard bytes, which must not change.
class GuardedBytes {
 public:
  explicit GuardedBytes(absl::string_view content, Alignment alignment = Alignment::kOdd)
      : guard_bytes_(alignment == Alignment::kOdd ? 65 : 64),
        size_(content.size()),
        memory_(size_ + 2 * guard_bytes_, kGuard) {
    content.copy(data(), size_);
  }
  explicit GuardedBytes(size_t size, Alignment alignment = Alignment::kOdd)
      : GuardedBytes(std::string(size, '?'), alignment) {}

  // Moving the buffer does not change this address, because with the guards the string is too long for inline storage.
  char* data() { return memory_.data() + guard_bytes_; }
  std::string content() const { return memory_.substr(guard_bytes_, size_); }

  bool IsUntouchedElsewhere() const {
    const std::string guard(guard_bytes_, kGuard);
    return memory_.compare(0, guard_bytes_, guard) == 0 &&
           memory_.compare(guard_bytes_ + size_, guard_bytes_, guard) == 0;
  }

 private:
  static constexpr char kGuard = '\xa5';

  const size_t guard_bytes_;
  const size_t size_;
  std::string memory_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_CONFORMANCE_GUARDED_BYTES_H_
