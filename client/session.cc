#include "client/session.h"

#include "absl/strings/str_cat.h"

namespace ronda {

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitBarrier() {
  MutexLock lock(&mu_);
  // A few names, used in turn, stay in the response cache; a new name a barrier would empty it.
  auto handle = runtime_->Submit(
      {.request = {.name = absl::StrCat("ronda/barrier/", barriers_ % kConcurrentBarriers), .op = OpType::kBarrier}});
  if (handle.ok()) ++barriers_;
  return handle;
}

}  // namespace ronda
