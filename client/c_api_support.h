// What the functions of the C ABI share: the only mutable state outside of objects, and the only place where exceptions
// are caught.
#ifndef RONDA_CLIENT_C_API_SUPPORT_H_
#define RONDA_CLIENT_C_API_SUPPORT_H_

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/default_runtime.h"
#include "client/handle_table.h"
#include "client/rank_contexts.h"
#include "client/ronda.h"
#include "client/session.h"
#include "client/status_code.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

struct Globals {
  DefaultRuntime runtime;
  RankContexts ranks;
  HandleTable handles;
};

// Never destroyed: threads of the trainer may still be in here when the process exits.
Globals& globals();

// The session of the rank that the calling thread acts for; null if there is none (any more).
std::shared_ptr<Session> CurrentSession();

// The memory of this thread's submissions, kept from one call to the next. A call uses it until it returns, and leaves
// no handles behind.
struct Scratch {
  Submission submission;
  std::vector<Submission> group;
  std::vector<std::shared_ptr<Handle>> handles;
};
Scratch& scratch();

// What ronda_last_error() returns in this thread.
const char* LastErrorText();
ronda_status FailWith(Outcome outcome);
ronda_status FailWithLiteral(ronda_status code, const char* text) noexcept;
ronda_status FailWithException(const std::exception& error) noexcept;

Outcome Failure(const absl::Status& status, Answer from);
Outcome NullArgument(absl::string_view function, absl::string_view argument);
Outcome UnknownHandle(absl::string_view function, ronda_handle handle);

// Runs the body of a C function, which returns an Outcome: nothing it throws goes further.
template <typename Body>
ronda_status Call(const Body& body) noexcept {
  // A thread's first look at its last error takes memory: later, to report that there is none, would be too late.
  LastErrorText();
  try {
    Outcome outcome = body();
    return outcome.ok() ? RONDA_OK : FailWith(std::move(outcome));
  } catch (const std::bad_alloc&) {
    return FailWithLiteral(RONDA_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return FailWithException(error);
  } catch (...) {
    return FailWithLiteral(RONDA_ERROR_INTERNAL, "an exception of an unknown type was thrown");
  }
}

// The same for a body that needs the session.
template <typename Body>
ronda_status CallWithSession(const Body& body) noexcept {
  return Call([&]() -> Outcome {
    const std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return NotInitialized();
    return body(*session);
  });
}

// The same for one that needs an operation.
template <typename Body>
ronda_status CallWithOperation(const char* function, ronda_handle handle, const Body& body) noexcept {
  return Call([&]() -> Outcome {
    const Operation operation = globals().handles.Find(handle);
    if (!operation.exists()) return UnknownHandle(function, handle);
    return body(operation);
  });
}

}  // namespace ronda

#endif  // RONDA_CLIENT_C_API_SUPPORT_H_
