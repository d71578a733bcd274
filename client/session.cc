#include "client/session.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitNumbered(Submission submission) {
  std::string& name = submission.request.name;
  MutexLock lock(&mu_);
  NumberSequence& sequence = sequences_[{submission.request.process_set, name}];
  // A few names, used in turn, stay in the response cache; a new name an operation would empty it.
  absl::StrAppend(&name, "/", sequence.Next() % kConcurrentOfAKind);
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime_.Submit(std::move(submission)));
  sequence.Take(handle);
  return handle;
}

}  // namespace ronda
