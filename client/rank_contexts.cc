#include "client/rank_contexts.h"

#include <utility>

namespace ronda {
namespace {

thread_local RankContexts::Role current_role;

}  // namespace

RankContexts::Scope::Scope(RankContexts* contexts, Runtime& runtime, WaitLimits limits) : contexts_(contexts) {
  session_ = std::shared_ptr<Session>(new Session(runtime, limits), [this](Session* session) {
    delete session;
    MutexLock lock(&mu_);
    is_left_ = true;
    left_.NotifyAll();
  });
  MutexLock lock(&contexts_->mu_);
  id_ = contexts_->next_id_++;
  contexts_->sessions_[id_] = session_;
  current_role = {.id = id_, .session = session_};
}

RankContexts::Scope::~Scope() {
  {
    MutexLock lock(&contexts_->mu_);
    contexts_->sessions_.erase(id_);
  }
  current_role = {};
  session_.reset();
  MutexLock lock(&mu_);
  while (!is_left_) left_.Wait(&mu_);
}

RankContexts::Visit::Visit(Role role) : before_(std::exchange(current_role, std::move(role))) {}

RankContexts::Visit::~Visit() { current_role = std::move(before_); }

RankContexts::Role RankContexts::CurrentRole() { return current_role; }

bool RankContexts::MakeCurrent(ronda_context id) {
  if (id == 0) {
    current_role = {};
    return true;
  }
  MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  current_role = {.id = id, .session = found->second};
  return true;
}

ronda_context RankContexts::Current() { return current_role.id; }

std::shared_ptr<Session> RankContexts::CurrentSession() { return current_role.session.lock(); }

}  // namespace ronda
