// SPDX-License-Identifier: Apache-2.0

// Functions that return the sanitizers' settings for the system's libraries. Every test links these functions, and only
// a sanitizer calls them.

extern "C" {

const char* __tsan_default_suppressions();

// Debian's Abseil is built without -fsanitize=thread. So ThreadSanitizer does not see the reference count of
// absl::Status, which orders the last use of a status before its deletion.
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n";
}
}
