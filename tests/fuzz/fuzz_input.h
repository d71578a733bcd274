// SPDX-License-Identifier: Apache-2.0

// Helpers for fuzz targets: they read decisions from the bytes of the input, and end the process when a target fails.
#ifndef RONDA_TESTS_FUZZ_FUZZ_INPUT_H_
#define RONDA_TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ronda::fuzz {

// Ends the process unless `holds` is true, which is how a fuzz target fails.
inline void Require(bool holds, const char* requirement) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", requirement);
  std::abort();
}

// Requires that the input was accepted, or refused as INVALID_ARGUMENT with a message.
inline void RequireOkOrRefused(const absl::Status& status) {
  if (status.ok()) return;
  const bool refused = status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty();
  Require(refused, status.ToString().c_str());
}

// Reads decisions from the front of an input. Beyond the end of the input, all numbers are zero. Thread-compatible.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }

  // Returns the next `size` bytes, or fewer at the end of the input.
  absl::string_view Take(size_t size) {
    const absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  absl::string_view TakeRest() { return Take(rest_.size()); }

  template <typename T>
  T Number() {
    T value{};
    const absl::string_view bytes = Take(sizeof(T));
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  // Returns a number from 0 to `limit` - 1. REQUIRES: 0 < limit <= 256.
  int Below(int limit) { return Number<uint8_t>() % limit; }

  // Returns up to 255 bytes.
  absl::string_view Text() { return Take(Number<uint8_t>()); }

 private:
  absl::string_view rest_;
};

}  // namespace ronda::fuzz

#endif  // RONDA_TESTS_FUZZ_FUZZ_INPUT_H_
