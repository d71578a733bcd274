// SPDX-License-Identifier: Apache-2.0

// Options of operations.
#ifndef RONDA_CLIENT_RONDA_OPTIONS_HPP_
#define RONDA_CLIENT_RONDA_OPTIONS_HPP_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "../ronda.h"
#include "process_set.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {

// The ranks that take part in an operation, and how long the operation waits for a late rank.
//
//   ronda::broadcast(view, 0, {set});
struct CallOptions {
  using Seconds = std::chrono::duration<double>;

  ProcessSet process_set = {};           // all ranks by default
  std::optional<Seconds> warning = {};   // an operation that waits this long for a rank is reported; <= 0: never
  std::optional<Seconds> deadline = {};  // the operation fails after this time; <= 0: never. Unset: as for the job
};

enum class Op {
  Sum = RONDA_SUM,
  Min = RONDA_MIN,
  Max = RONDA_MAX,
  Product = RONDA_PRODUCT,
  Average = RONDA_AVERAGE,  // the sum divided by the number of ranks, as in ronda.h; not for bool
  Band = RONDA_BAND,        // bit by bit; integers and bool
  Bor = RONDA_BOR,
  Bxor = RONDA_BXOR,
  Adasum = RONDA_ADASUM,  // a sum that adapts to how far the ranks agree; allreduce of floating-point numbers
};

// The wire format of floating-point elements. Sums are computed in fp32 and rounded once. The 8-bit formats use one
// scale per block of elements, and also apply to the 16-bit types.
enum class Compression {
  none = RONDA_COMPRESSION_NONE,
  fp16 = RONDA_COMPRESSION_FP16,          // 3 to 4 digits, up to 65504
  bf16 = RONDA_COMPRESSION_BF16,          // 2 to 3 digits, float's range
  fp8_e4m3 = RONDA_COMPRESSION_FP8_E4M3,  // 1 to 2 digits
  fp8_e5m2 = RONDA_COMPRESSION_FP8_E5M2,  // 1 digit, a wider range within a block
};

struct ReduceOptions {
  Op op = Op::Average;
  Compression compression = Compression::none;
  double prescale = 1;   // factor of each rank's input; finite, not 0; integers are rounded towards zero and saturate
  double postscale = 1;  // as prescale, for the result

  // Adds the rounding errors of compression to this rank's next input of the same name.
  bool error_feedback = false;

  // Makes the handle's found_inf() report whether the result has an infinite or NaN element.
  bool detect_overflow = false;
};
using AllreduceOptions = ReduceOptions;

// The caller's memory for the result of a reducescatter, allgather, gather, scatter or alltoall. It must be of the same
// kind (host or GPU) as the tensor's memory, and must not overlap the tensor. If the result is larger than `bytes`, the
// operation writes nothing on this rank and fails there with RONDA_ERROR_INVALID_ARGUMENT; the other ranks get their
// results.
//
//   ronda::allgather_async<float>(ronda::tensor("w", shard), {}, ronda::into(weights));
struct Into {
  void* data = nullptr;  // null: the library allocates the result
  std::size_t bytes = 0;
};
template <class T>
Into into(T* data, std::size_t count) {
  return {data, count * sizeof(T)};
}
template <class T>
Into into(std::vector<T>& values) {
  return into(values.data(), values.size());
}

namespace detail {

// Returns a time limit in the form of the C ABI, where zero means "unset" and a negative number means "never".
inline double limit_of(const std::optional<CallOptions::Seconds>& limit) {
  if (!limit) return 0;
  return limit->count() == 0 ? -1 : limit->count();
}

// Returns the options in the form of the C ABI, for buffers in host memory.
inline ronda_call_options to_c(const CallOptions& call) {
  return {call.process_set.id(), limit_of(call.warning), limit_of(call.deadline), RONDA_MEMORY_HOST, nullptr};
}
// Returns the options in the form of the C ABI, for the buffers of `tensor`.
inline ronda_call_options to_c(const CallOptions& call, const Tensor& tensor) {
  ronda_call_options options = to_c(call);
  options.memory = tensor.memory;
  options.stream = tensor.stream;
  return options;
}

// Checks that `into` is empty or has one entry for each of the group's `tensors` tensors.
inline Status check_into(const std::string& group, std::size_t tensors, const std::vector<Into>& into) {
  if (into.empty() || into.size() == tensors) return {};
  return invalid_argument("group '" + group + "' has " + std::to_string(tensors) + " tensors, but places for " +
                          std::to_string(into.size()) + " results: give one for each tensor, or none");
}

}  // namespace detail
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_OPTIONS_HPP_
