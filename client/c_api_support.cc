#include "client/c_api_support.h"

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// This thread's last error. `text` points into `storage`, or at a literal where there was no memory for a string.
struct LastError {
  std::string storage;
  const char* text = "";
};

thread_local LastError last_error;

}  // namespace

Globals& globals() {
  static Globals* const instance = new Globals;
  return *instance;
}

Scratch& scratch() {
  static thread_local Scratch instance;
  return instance;
}

std::shared_ptr<Session> CurrentSession() {
  return RankContexts::Current() == 0 ? globals().runtime.Get() : RankContexts::CurrentSession();
}

const char* LastErrorText() { return last_error.text; }

ronda_status FailWith(Outcome outcome) {
  // There was not even memory for a text.
  if (outcome.text.empty()) return FailWithLiteral(outcome.code, "out of memory");
  last_error.storage = std::move(outcome.text);
  last_error.text = last_error.storage.c_str();
  return outcome.code;
}

ronda_status FailWithLiteral(ronda_status code, const char* text) noexcept {
  last_error.text = text;
  return code;
}

ronda_status FailWithException(const std::exception& error) noexcept {
  // Its text lives in the exception; copying it may throw in turn, which noexcept would turn into the end of the
  // process.
  try {
    return FailWith({RONDA_ERROR_INTERNAL, error.what()});
  } catch (...) {
    return FailWithLiteral(RONDA_ERROR_INTERNAL, "an exception was thrown, and there is no memory for its text");
  }
}

Outcome Failure(const absl::Status& status, Answer from) {
  return {ToRondaStatus(status.code(), from), std::string(status.message())};
}

Outcome NullArgument(absl::string_view function, absl::string_view argument) {
  return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": ", argument, " is NULL: pass where to write it")};
}

Outcome UnknownHandle(absl::string_view function, ronda_handle handle) {
  if (handle > 0 && CurrentSession() == nullptr) return NotInitialized();
  return {RONDA_ERROR_INVALID_ARGUMENT,
          absl::StrCat(function, ": there is no handle ", handle, ": it was never given out, or it was released")};
}

}  // namespace ronda
