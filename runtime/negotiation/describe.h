#ifndef RONDA_RUNTIME_NEGOTIATION_DESCRIBE_H_
#define RONDA_RUNTIME_NEGOTIATION_DESCRIBE_H_

#include <string>

#include "runtime/negotiation/messages.h"

namespace ronda {

// What a request is about, for errors: "tensor 'x'", "tensor 'x' of process set 3", "the barrier", "the join of process
// set 0".
std::string NameForErrors(const TensorRequest& request);

// The same with the operation, dtype and shape where there are any: "tensor 'x' (allreduce of float32 [3])".
std::string DescribeTensor(const TensorRequest& request);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_DESCRIBE_H_
