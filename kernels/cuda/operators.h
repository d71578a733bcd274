#ifndef RONDA_KERNELS_CUDA_OPERATORS_H_
#define RONDA_KERNELS_CUDA_OPERATORS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/integer_scale.h"
#include "kernels/cpu/scale.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/host_device.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// a op b; min and max are NaN if either is. Bitwise operators are for integers.
RONDA_HOST_DEVICE inline float Least(float a, float b) { return a != a || a <= b ? a : b; }
RONDA_HOST_DEVICE inline float Greatest(float a, float b) { return a != a || a >= b ? a : b; }
RONDA_HOST_DEVICE inline double Least(double a, double b) { return a != a || a <= b ? a : b; }
RONDA_HOST_DEVICE inline double Greatest(double a, double b) { return a != a || a >= b ? a : b; }

// Each calls `visit` with the operator, as a function of two numbers: so which it is is asked once for all elements
// that a thread has, and not once for each.
template <class Float, class Visitor>
RONDA_HOST_DEVICE inline void VisitFloatOperator(ReduceOp op, const Visitor& visit) {
  switch (op) {
    case ReduceOp::kSum:
      return visit([](Float a, Float b) { return a + b; });
    case ReduceOp::kMin:
      return visit([](Float a, Float b) { return Least(a, b); });
    case ReduceOp::kMax:
      return visit([](Float a, Float b) { return Greatest(a, b); });
    default:
      return visit([](Float a, Float b) { return a * b; });
  }
}

template <class Integer, class Visitor>
RONDA_HOST_DEVICE inline void VisitIntegerOperator(ReduceOp op, const Visitor& visit) {
  // Sums and products wrap; what is narrower than an int would not, and what is signed must not.
  using Wrapping = std::conditional_t<sizeof(Integer) < sizeof(uint32_t), uint32_t, std::make_unsigned_t<Integer>>;
  switch (op) {
    case ReduceOp::kSum:
      return visit([](Integer a, Integer b) {
        return static_cast<Integer>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
      });
    case ReduceOp::kMin:
      return visit([](Integer a, Integer b) { return a < b ? a : b; });
    case ReduceOp::kMax:
      return visit([](Integer a, Integer b) { return a > b ? a : b; });
    case ReduceOp::kProduct:
      return visit([](Integer a, Integer b) {
        return static_cast<Integer>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
      });
    case ReduceOp::kBitAnd:
      return visit([](Integer a, Integer b) { return static_cast<Integer>(a & b); });
    case ReduceOp::kBitOr:
      return visit([](Integer a, Integer b) { return static_cast<Integer>(a | b); });
    default:
      return visit([](Integer a, Integer b) { return static_cast<Integer>(a ^ b); });
  }
}

template <class Visitor>
RONDA_HOST_DEVICE inline void VisitBoolOperator(ReduceOp op, const Visitor& visit) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return visit([](bool a, bool b) { return a || b; });
    case ReduceOp::kBitXor:
      return visit([](bool a, bool b) { return a != b; });
    default:
      return visit([](bool a, bool b) { return a && b; });
  }
}

// How elements of a type are reduced: First makes an accumulator of one, the operator adds that of another, Last makes
// the result.
template <class E>
struct FloatArithmetic {
  using Element = E;
  using Accumulator = LaneOf<E, E>;

  FloatArithmetic(ReduceOp reduce_op, const Scale& scale)
      : op(reduce_op), factor(static_cast<Accumulator>(scale.Factor())) {}

  RONDA_HOST_DEVICE Accumulator First(E element) const { return Widen<Accumulator>(element); }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    VisitFloatOperator<Accumulator>(op, visit);
  }
  RONDA_HOST_DEVICE E Last(Accumulator sum) const { return RoundTo<E>(sum * factor); }

  ReduceOp op;
  Accumulator factor;
};

template <class E>
struct IntegerArithmetic {
  using Element = E;
  using Accumulator = E;

  IntegerArithmetic(ReduceOp reduce_op, const Scale& result_scale)
      : op(reduce_op), is_scaled(!result_scale.IsIdentity()), scale(result_scale) {}

  RONDA_HOST_DEVICE E First(E element) const { return element; }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    VisitIntegerOperator<E>(op, visit);
  }
  RONDA_HOST_DEVICE E Last(E sum) const { return is_scaled ? ScaleInteger(sum, scale) : sum; }

  ReduceOp op;
  bool is_scaled;
  Scale scale;
};

// Of truth values: any byte but zero is true, and results are 0 or 1.
struct BoolArithmetic {
  using Element = uint8_t;
  using Accumulator = bool;

  BoolArithmetic(ReduceOp reduce_op, const Scale& /*scale: bool ignores it*/) : op(reduce_op) {}

  RONDA_HOST_DEVICE bool First(uint8_t element) const { return element != 0; }
  template <class Visitor>
  RONDA_HOST_DEVICE void VisitOperator(const Visitor& visit) const {
    VisitBoolOperator(op, visit);
  }
  RONDA_HOST_DEVICE uint8_t Last(bool sum) const { return sum; }

  ReduceOp op;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_OPERATORS_H_
