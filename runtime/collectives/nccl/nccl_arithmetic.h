// SPDX-License-Identifier: Apache-2.0

// Which reductions NCCL itself executes, and with which type, operator and factors.
#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_ARITHMETIC_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_ARITHMETIC_H_

#include <cstdint>
#include <optional>

#include "kernels/dtype.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// Returns NCCL's type for `dtype`, or nullopt if NCCL lacks it.
std::optional<NcclDataType> NcclTypeOf(DType dtype);

// The order in which floating-point numbers are added and multiplied. kOfNccl: in NCCL's order, if NCCL can execute the
// reduction. This differs from rank order, and NCCL rounds 16-bit sums after every step. kOfRanks: in rank order;
// narrower types are reduced in float32 and rounded once. This gives the same bits with every backend.
enum class SumOrder : uint8_t { kOfNccl, kOfRanks };

// Returns NCCL's operator for `op` if NCCL should reduce elements of this layout: if its result equals that of Ronda's
// own reduction, exactly or except for the order of roundings. Returns nullopt for floating-point minima and maxima,
// because NCCL drops NaN, and for products of 16-bit types, because NCCL's roundings would make them too inexact.
std::optional<NcclRedOp> NcclOpOf(const WireLayout& layout, ReduceOp op, SumOrder order);

// The factors to apply before and after NCCL's reduction.
struct WireFactors {
  kernels::Scale before;
  kernels::Scale after;
};
// Returns the two factors. Terms of 16-bit sums are multiplied by both factors before NCCL adds them, so that an
// average does not overflow where the plain sum would, and the result is not rounded again after the sum.
WireFactors FactorsOf(const WireLayout& layout, const ReduceCall& call);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_ARITHMETIC_H_
