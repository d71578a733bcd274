#include "runtime/negotiation/pending_response.h"

#include <algorithm>
#include <utility>

#include "runtime/negotiation/operation_rules.h"

namespace ronda {

bool CachedResponseHolds(const PendingTensor& tensor, const std::vector<RankId>& joined) {
  if (!tensor.cached) return false;
  const std::vector<int64_t>& rows = tensor.cached->first_dims;
  return rows.empty() || std::all_of(joined.begin(), joined.end(),
                                     [&](RankId rank) { return rows[*tensor.participants->PositionOf(rank)] == 0; });
}

std::shared_ptr<Response> SpelledResponse(const std::vector<RankId>& joined, PendingTensor* tensor) {
  tensor->SpellOut();
  auto response = std::make_shared<Response>();
  response->request = std::move(tensor->spelled);
  TensorRequest& request = response->request;
  const FirstDimension meaning = FirstDimensionOf(request.op);
  if (meaning == FirstDimension::kGathered || meaning == FirstDimension::kLocal) request.shape.front() = 0;
  if (meaning == FirstDimension::kGathered) {
    response->first_dims = std::move(tensor->first_dims);
    for (RankId rank : joined) response->first_dims[*tensor->participants->PositionOf(rank)] = 0;
  }
  return response;
}

}  // namespace ronda
