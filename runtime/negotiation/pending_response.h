#ifndef RONDA_RUNTIME_NEGOTIATION_PENDING_RESPONSE_H_
#define RONDA_RUNTIME_NEGOTIATION_PENDING_RESPONSE_H_

#include <memory>
#include <vector>

#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/pending_table.h"

namespace ronda {

// Whether its cached response says what has been agreed on: rows that a rank would have had do not come from it once it
// has joined.
bool CachedResponseHolds(const PendingTensor& tensor, const std::vector<RankId>& joined);

// Takes what the tensor knows into a response. The ranks `joined` contribute no rows.
std::shared_ptr<Response> SpelledResponse(const std::vector<RankId>& joined, PendingTensor* tensor);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_PENDING_RESPONSE_H_
