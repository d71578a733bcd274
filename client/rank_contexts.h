#ifndef RONDA_CLIENT_RANK_CONTEXTS_H_
#define RONDA_CLIENT_RANK_CONTEXTS_H_

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "client/ronda.h"
#include "client/session.h"
#include "runtime/base/mutex.h"

namespace ronda {

// The ranks that are threads of this process, by number; and which of them each thread acts for.
//
// Thread-safe.
class RankContexts {
 public:
  // What a thread acts for. Weak: a thread that outlives its rank finds that it is gone.
  struct Role {
    ronda_context id = 0;  // 0: the process' own
    std::weak_ptr<Session> session;
  };

  // Makes the calling thread act for `session`, and lets other threads do so too, until it is destroyed. That waits for
  // the others to leave the session, which must not be destroyed before. One a thread.
  class Scope {
   public:
    Scope(RankContexts* contexts, Runtime& runtime, WaitLimits limits);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RankContexts* const contexts_;
    std::shared_ptr<Session> session_;
    Mutex mu_;
    CondVar left_;
    bool is_left_ ABSL_GUARDED_BY(mu_) = false;  // by everybody
    ronda_context id_;
  };

  // Makes the calling thread act for `role`, which may be another thread's, until it is destroyed.
  class Visit {
   public:
    explicit Visit(Role role);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Role before_;
  };

  static Role CurrentRole();

  // Makes the calling thread act for the rank of this number; 0: for the process' own.
  // False if there is none (any more).
  bool MakeCurrent(ronda_context id);

  // The rank that the calling thread acts for; 0: the process' own.
  static ronda_context Current();

  // Its session; null if its scope has ended.
  // REQUIRES: Current() is not 0.
  static std::shared_ptr<Session> CurrentSession();

 private:
  mutable Mutex mu_;
  ronda_context next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<ronda_context, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_CLIENT_RANK_CONTEXTS_H_
