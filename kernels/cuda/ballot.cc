#include "kernels/cuda/ballot.h"

#include <cstring>

#include "kernels/cpu/integer_scale.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/floats.h"

namespace ronda::kernels::cuda {
namespace {

// The bits of `value` as an element of each kind of type, if it is one exactly.
template <class E>
std::optional<uint64_t> FloatBits(double value) {
  const E element = RoundTo<E>(value);
  if (Widen<double>(element) != value) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(element));
  return bits;
}

template <class E>
std::optional<uint64_t> IntegerBits(double value) {
  const E element = SaturatingTruncate<E>(value);
  if (static_cast<double>(element) != value) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(element));
  return bits;
}

}  // namespace

std::optional<uint64_t> BitsOf(double value, DType dtype) {
  std::optional<uint64_t> bits;
  if (IsFloatingPoint(dtype)) {
    VisitFloat(dtype, [&]<class E>(ElementType<E>) {
      bits = FloatBits<E>(value);
      return 0;
    });
  } else {
    VisitInteger(dtype == DType::kBool ? DType::kUint8 : dtype, [&]<class E>(ElementType<E>) {
      bits = IntegerBits<E>(value);
      return 0;
    });
  }
  return bits;
}

Ballot BallotOf(const VoteCount& vote, DType dtype) {
  Ballot ballot;
  if (vote.votes == nullptr) return ballot;
  ballot.votes = static_cast<const uint8_t*>(vote.votes);
  ballot.count = vote.count;
  ballot.bytes = static_cast<int>(SizeOf(dtype));
  const std::optional<uint64_t> stay = BitsOf(vote.stay, dtype);
  if (!stay.has_value()) {
    ballot.stay = 1;  // not under the mask, which is 0
    return ballot;
  }
  ballot.mask = ~uint64_t{0} >> (64 - 8 * ballot.bytes);
  if (IsFloatingPoint(dtype) && vote.stay == 0) ballot.mask >>= 1;  // zeros of either sign are equal
  ballot.stay = *stay & ballot.mask;
  return ballot;
}

}  // namespace ronda::kernels::cuda
