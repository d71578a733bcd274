#ifndef RONDA_RUNTIME_NEGOTIATION_READINESS_OBSERVER_H_
#define RONDA_RUNTIME_NEGOTIATION_READINESS_OBSERVER_H_

#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Whom the coordinator rank tells which rank is ready for what, whether that was reported in full or by a number.
//
// Thread-compatible: called by who calls the negotiator.
class ReadinessObserver {
 public:
  virtual ~ReadinessObserver() = default;

  // Whether there is any use in telling, asked once a report.
  virtual bool IsInterested() const = 0;
  virtual void Ready(RankId rank, const TensorRequest& request) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_READINESS_OBSERVER_H_
