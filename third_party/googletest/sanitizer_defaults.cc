// SPDX-License-Identifier: Apache-2.0

// Settings of the sanitizers for the system's libraries. Every test links them; only a sanitizer calls them.

extern "C" {

const char* __tsan_default_suppressions();

// Debian's Abseil is built without -fsanitize=thread: the reference count of absl::Status, which orders its last use
// before its deletion, is invisible.
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n";
}
}
