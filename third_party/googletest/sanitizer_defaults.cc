// What the sanitizers should know about the system's libraries; every test links it. Without a sanitizer nobody calls
// it.

extern "C" {

const char* __tsan_default_suppressions();

// Debian's Abseil is built without -fsanitize=thread: the reference count of absl::Status, which orders its last use
// before its deletion, is invisible.
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n";
}
}
