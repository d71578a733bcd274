#include "client/rank_contexts.h"

#include <utility>

namespace ronda {
namespace {

// What a thread acts for. Weak: a thread that outlives its rank finds that it is gone.
struct ThreadContext {
  ronda_context id = 0;
  std::weak_ptr<Session> session;
};

thread_local ThreadContext thread_context;

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
  thread_context = {.id = id_, .session = session_};
}

RankContexts::Scope::~Scope() {
  {
    MutexLock lock(&contexts_->mu_);
    contexts_->sessions_.erase(id_);
  }
  thread_context = {};
  session_.reset();
  MutexLock lock(&mu_);
  while (!is_left_) left_.Wait(&mu_);
}

bool RankContexts::MakeCurrent(ronda_context id) {
  if (id == 0) {
    thread_context = {};
    return true;
  }
  MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  thread_context = {.id = id, .session = found->second};
  return true;
}

ronda_context RankContexts::Current() { return thread_context.id; }

std::shared_ptr<Session> RankContexts::CurrentSession() { return thread_context.session.lock(); }

}  // namespace ronda
