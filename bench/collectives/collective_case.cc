// SPDX-License-Identifier: Apache-2.0

#include "bench/collectives/collective_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/convert.h"
#include "runtime/base/bytes_text.h"

namespace ronda::bench {
namespace {

bool HasShares(OpType op) {
  return op == OpType::kAllgather || op == OpType::kReduceScatter || op == OpType::kAlltoall;
}

bool IsSensible(const CollectiveCase& candidate) {
  const bool is_wide = candidate.dtype == DType::kFloat32 || candidate.dtype == DType::kFloat64;
  const bool is_half = candidate.dtype == DType::kFloat16 || candidate.dtype == DType::kBfloat16;
  switch (candidate.wire) {
    case WireFormat::kNone:
      return true;
    case WireFormat::kFloat16:
    case WireFormat::kBfloat16:
      return TraitsOf(candidate.op).reduces && is_wide;
    default:
      return TraitsOf(candidate.op).reduces && (is_wide || is_half);
  }
}

// Returns the placements of `wanted` that `op` supports.
std::vector<Placement> PlacementsOf(OpType op, const std::vector<Placement>& wanted) {
  if (op == OpType::kBroadcast) return {Placement::kInPlace};
  return op == OpType::kAllreduce ? wanted : std::vector<Placement>{Placement::kOutOfPlace};
}

size_t CountOf(const CollectiveCase& shape, size_t bytes) {
  const size_t shares = HasShares(shape.op) ? static_cast<size_t>(shape.ranks) : 1;
  return std::max<size_t>(1, bytes / SizeOf(shape.dtype) / shares);
}

// Adds to `cases` a copy of `shape` for each size in `ranges`.
void AddSizes(const CaseRanges& ranges, CollectiveCase shape, std::vector<CollectiveCase>* cases) {
  if (shape.op == OpType::kBarrier) {
    cases->push_back(shape);
    return;
  }
  size_t previous = 0;
  for (size_t bytes = std::max<size_t>(1, ranges.min_bytes); bytes <= ranges.max_bytes; bytes *= ranges.factor) {
    shape.count = CountOf(shape, bytes);
    if (shape.count == previous) continue;
    previous = shape.count;
    cases->push_back(shape);
  }
}

constexpr size_t kPeriod = 17;   // not a power of two, so that a shift by whole chunks is found
constexpr size_t kBlock = 4096;  // elements that are converted at a time
using Block = std::array<double, kBlock>;

// Converts `value` to a Bool or an integer type. Integers wrap, as in a sum that overflows.
template <class E>
E ElementOf(double value) {
  if constexpr (std::is_same_v<E, Bool>) {
    return {value != 0};
  } else {
    return static_cast<E>(static_cast<int64_t>(value));
  }
}

template <class E>
double ValueOf(E element) {
  if constexpr (std::is_same_v<E, Bool>) {
    return element.byte;
  } else {
    return static_cast<double>(element);
  }
}

void Store(const Block& values, size_t count, DType dtype, void* elements) {
  VisitDType(dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      kernels::Convert(values.data(), DType::kFloat64, elements, dtype, count);
    } else {
      for (size_t i = 0; i < count; ++i) static_cast<E*>(elements)[i] = ElementOf<E>(values[i]);
    }
  });
}

void Load(const void* elements, DType dtype, size_t count, Block* values) {
  VisitDType(dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      kernels::Convert(elements, dtype, values->data(), DType::kFloat64, count);
    } else {
      for (size_t i = 0; i < count; ++i) (*values)[i] = ValueOf(static_cast<const E*>(elements)[i]);
    }
  });
}

// Returns `value` converted to `dtype`. Integers wrap; floating-point values are not rounded.
double Wrapped(DType dtype, double value) {
  return VisitDType(dtype, [&]<class E>(ElementType<E>) -> double {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      return value;
    } else {
      return ValueOf(ElementOf<E>(value));
    }
  });
}

// Calls `visit` with the first index and the length of each block.
void ForEachBlock(size_t count, absl::FunctionRef<void(size_t begin, size_t length)> visit) {
  for (size_t begin = 0; begin < count; begin += kBlock) visit(begin, std::min(kBlock, count - begin));
}

double Contribution(int rank, size_t index) { return (rank + 1) * static_cast<double>(index % kPeriod); }

double SumOfContributions(int ranks, size_t index) {
  return 0.5 * ranks * (ranks + 1) * static_cast<double>(index % kPeriod);
}

double Expected(const CollectiveCase& shape, int rank, size_t index) {
  const size_t sender = index / std::max<size_t>(1, shape.count);
  const size_t within = index - sender * shape.count;
  const size_t own_begin = static_cast<size_t>(rank) * shape.count;
  switch (shape.op) {
    case OpType::kBroadcast:
      return Contribution(0, index);
    case OpType::kAllgather:
      return Contribution(static_cast<int>(sender), within);
    case OpType::kAlltoall:
      return Contribution(static_cast<int>(sender), own_begin + within);
    case OpType::kReduceScatter:
      return SumOfContributions(shape.ranks, own_begin + index);
    default:
      return SumOfContributions(shape.ranks, index);
  }
}

// Returns the largest possible rounding error. Each contribution and the result are rounded once, by at most half the
// spacing of the format's numbers. So the error is at most one spacing, relative to the value, or to the largest value
// if the format has one scale per block.
double Tolerance(const CollectiveCase& shape, double expected) {
  const double largest = SumOfContributions(shape.ranks, kPeriod - 1);
  switch (shape.wire) {
    case WireFormat::kFp8E4M3:
      return largest / 8;
    case WireFormat::kFp8E5M2:
      return largest / 4;
    case WireFormat::kBfloat16:
      return expected / 128;
    case WireFormat::kFloat16:
      return expected / 1024;
    case WireFormat::kNone:
      break;
  }
  if (shape.dtype == DType::kBfloat16) return expected / 128;
  return shape.dtype == DType::kFloat16 ? expected / 1024 : 0;
}

bool Receives(const CollectiveCase& shape, int rank) {
  return shape.op != OpType::kBarrier && (shape.op != OpType::kReduce || rank == 0);
}

}  // namespace

size_t CollectiveCase::input_count() const {
  const bool gives_all = op == OpType::kReduceScatter || op == OpType::kAlltoall;
  return gives_all ? count * static_cast<size_t>(ranks) : count;
}

size_t CollectiveCase::output_count() const {
  const bool receives_all = op == OpType::kAllgather || op == OpType::kAlltoall;
  return receives_all ? count * static_cast<size_t>(ranks) : count;
}

size_t CollectiveCase::bytes() const { return std::max(input_count(), output_count()) * SizeOf(dtype); }

std::string CollectiveCase::label() const {
  return absl::StrCat(Name(op), ".", Name(dtype), ".", Name(wire), ".", Name(placement), ".", count);
}

double BusFactor(OpType op, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (op == OpType::kAllreduce) return 2 * others;
  return HasShares(op) ? others : 1;
}

CaseRanges CaseRanges::Everything(const CaseRanges& ranges) {
  CaseRanges all = ranges;
  all.ops = {OpType::kAllreduce,     OpType::kReduce,   OpType::kBroadcast, OpType::kAllgather,
             OpType::kReduceScatter, OpType::kAlltoall, OpType::kBarrier};
  all.dtypes.clear();
  for (int i = 0; i < kDTypeCount; ++i) all.dtypes.push_back(static_cast<DType>(i));
  all.wires.clear();
  for (int i = 0; i < kWireFormatCount; ++i) all.wires.push_back(static_cast<WireFormat>(i));
  all.placements = {Placement::kInPlace, Placement::kOutOfPlace};
  return all;
}

std::vector<CollectiveCase> MakeCases(const CaseRanges& ranges, int ranks) {
  std::vector<CollectiveCase> cases;
  bool has_barrier = false;
  for (const OpType op : ranges.ops) {
    for (const DType dtype : ranges.dtypes) {
      for (const WireFormat wire : ranges.wires) {
        for (const Placement placement : PlacementsOf(op, ranges.placements)) {
          const CollectiveCase shape = {.op = op, .dtype = dtype, .wire = wire, .placement = placement, .ranks = ranks};
          const bool is_repeated = op == OpType::kBarrier && has_barrier;
          if (!IsSensible(shape) || is_repeated) continue;
          has_barrier = has_barrier || op == OpType::kBarrier;
          AddSizes(ranges, shape, &cases);
        }
      }
    }
  }
  return cases;
}

AlignedBytes::AlignedBytes(size_t size) : size_(size) {
  constexpr size_t kLine = 64;
  memory_.reset(std::aligned_alloc(kLine, std::max(kLine, (size + kLine - 1) / kLine * kLine)));
  if (memory_ == nullptr) {
    throw std::runtime_error(absl::StrCat("a rank has no memory for a buffer of ", BytesText(size),
                                          ": choose smaller messages (--max-bytes, --bytes) or tensors (--shapes)"));
  }
  std::memset(memory_.get(), 0, size);
}

void AlignedBytes::Free::operator()(void* memory) const { std::free(memory); }

void FillInput(const CollectiveCase& shape, int rank, void* input) {
  ForEachBlock(shape.input_count(), [&](size_t begin, size_t length) {
    Block values;
    for (size_t i = 0; i < length; ++i) values[i] = Contribution(rank, begin + i);
    Store(values, length, shape.dtype, static_cast<char*>(input) + begin * SizeOf(shape.dtype));
  });
}

void FillOutput(const CollectiveCase& shape, void* output) {
  constexpr int kPattern = 0x5a;
  std::memset(output, kPattern, shape.output_count() * SizeOf(shape.dtype));
}

int64_t CountWrong(const CollectiveCase& shape, int rank, const void* output) {
  if (!Receives(shape, rank)) return 0;
  int64_t wrong = 0;
  ForEachBlock(shape.output_count(), [&](size_t begin, size_t length) {
    Block values;
    Load(static_cast<const char*>(output) + begin * SizeOf(shape.dtype), shape.dtype, length, &values);
    for (size_t i = 0; i < length; ++i) {
      const double expected = Wrapped(shape.dtype, Expected(shape, rank, begin + i));
      wrong += std::abs(values[i] - expected) <= Tolerance(shape, expected) ? 0 : 1;  // a NaN is also wrong
    }
  });
  return wrong;
}

}  // namespace ronda::bench
