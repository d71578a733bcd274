#ifndef RONDA_RUNTIME_NEGOTIATION_MISMATCH_H_
#define RONDA_RUNTIME_NEGOTIATION_MISMATCH_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Why two requests for the tensor of the same name cannot be carried out together, as "tensor 'x': rank 0 (host h, pid
// 1) says shape [3], rank 1 (host h, pid 2) says shape [4]"; nullopt if they can. `who_a` and `who_b` name the ranks.
// Wait limits may differ, and so may first dimensions that are each rank's own (operation_rules.h).
std::optional<std::string> DescribeMismatch(const TensorRequest& a, absl::string_view who_a, const TensorRequest& b,
                                            absl::string_view who_b);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_MISMATCH_H_
