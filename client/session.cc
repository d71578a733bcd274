#include "client/session.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda {

uint64_t NumberSequence::Next() {
  Settle();
  const uint64_t number = again_.empty() ? next_ : *again_.begin();
  in_flight_.try_emplace(number);
  return number;
}

void NumberSequence::Take(std::shared_ptr<const Handle> operation) {
  const uint64_t number = again_.empty() ? next_ : *again_.begin();
  if (again_.erase(number) == 0) ++next_;
  in_flight_.at(number) = std::move(operation);
}

void NumberSequence::Settle() {
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    if (it->second == nullptr || !it->second->done()) {
      ++it;
      continue;
    }
    if (absl::IsDeadlineExceeded(it->second->Wait())) again_.insert(it->first);
    it = in_flight_.erase(it);
  }
}

namespace {

// Replaces the runtime's text, which names tensors that the caller has not named.
absl::Status TooMany(OpType op, RankId sender, RankId receiver) {
  const bool is_message = op == OpType::kSendRecv;
  return absl::AlreadyExistsError(absl::StrCat(
      Name(op), ": ", Session::kConcurrentOfAKind, " are in flight already ",
      is_message ? absl::StrCat("from rank ", sender, " to rank ", receiver, " with this tag") : "in this process set",
      ": wait for the first of them", is_message ? ", or use more tags" : ""));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Handle>> Session::Submit(const Submission& submission) {
  // Send and receive have no name that the caller gave.
  return submission.request.op == OpType::kSendRecv ? SubmitNumbered(submission) : runtime_.Submit(submission);
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitNumbered(Submission submission) {
  std::string& name = submission.request.name;
  MutexLock lock(&mu_);
  SettleJoinLocked(submission.request.process_set);
  NumberSequence& sequence = sequences_[{submission.request.process_set, name}];
  // A few names, used in turn, stay in the response cache; a new name an operation would empty it.
  absl::StrAppend(&name, "/", sequence.Next() % kConcurrentOfAKind);
  const OpType op = submission.request.op;
  const RankId sender = submission.request.root, receiver = submission.request.receiver;
  absl::StatusOr<std::shared_ptr<Handle>> handle = runtime_.Submit(submission);
  if (absl::IsAlreadyExists(handle.status())) return TooMany(op, sender, receiver);
  if (handle.ok()) sequence.Take(*handle);
  return handle;
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitJoin(const Submission& submission) {
  const ProcessSetId set = submission.request.process_set;
  MutexLock lock(&mu_);
  SettleJoinLocked(set);
  // The entry is made first: a join that is under way cannot be taken back for lack of memory.
  std::shared_ptr<const Handle>& join = joins_[set];
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime_.Submit(submission));
  join = handle;
  return handle;
}

absl::StatusOr<uint64_t> Session::CountJoins() {
  MutexLock lock(&mu_);
  SettleJoinLocked(kGlobalProcessSet);
  const auto join = joins_.find(kGlobalProcessSet);
  if (join != joins_.end() && join->second != nullptr) {
    return absl::InvalidArgumentError(
        "this rank has joined, and takes no part until all have: wait for its join first");
  }
  return joins_of_all_;
}

void Session::SettleJoinLocked(ProcessSetId set) {
  const auto join = joins_.find(set);
  if (join == joins_.end() || join->second == nullptr || !join->second->done()) return;
  const absl::Status status = join->second->Wait();
  // Ranks that disagree learn so when all have joined. Other errors come earlier, and not to all ranks.
  if (status.ok() || absl::IsFailedPrecondition(status)) {
    if (set == kGlobalProcessSet) ++joins_of_all_;
    absl::erase_if(sequences_, [set](const auto& sequence) { return sequence.first.first == set; });
  }
  joins_.erase(join);
}

}  // namespace ronda
