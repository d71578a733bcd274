#include "bench/collectives/collective_case.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ronda::bench {
namespace {

constexpr OpType kOps[] = {OpType::kAllreduce,     OpType::kReduce,   OpType::kBroadcast, OpType::kAllgather,
                           OpType::kReduceScatter, OpType::kAlltoall, OpType::kBarrier};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                             DType::kInt32,   DType::kInt64,   DType::kUint8};
constexpr const char* kDTypeNames[] = {"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"};

bool HasShares(OpType op) {
  return op == OpType::kAllgather || op == OpType::kReduceScatter || op == OpType::kAlltoall;
}

// The places at which `wanted` are found in `names`.
std::vector<size_t> PlacesOf(const std::vector<std::string>& wanted, const std::vector<std::string>& names) {
  std::vector<size_t> places;
  for (const std::string& name : wanted) {
    places.push_back(static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin()));
  }
  return places;
}

bool IsSensible(const CollectiveCase& candidate) {
  const bool is_wide = candidate.dtype == DType::kFloat32 || candidate.dtype == DType::kFloat64;
  const bool is_half = candidate.dtype == DType::kFloat16 || candidate.dtype == DType::kBfloat16;
  switch (candidate.wire) {
    case WireFormat::kNone:
      return true;
    case WireFormat::kFloat16:
    case WireFormat::kBfloat16:
      return IsReduction(candidate.op) && is_wide;
    default:
      return IsReduction(candidate.op) && (is_wide || is_half);
  }
}

std::vector<Placement> PlacementsOf(OpType op, const std::vector<std::string>& wanted) {
  if (op == OpType::kBroadcast) return {Placement::kInPlace};
  if (op != OpType::kAllreduce) return {Placement::kOutOfPlace};
  std::vector<Placement> placements;
  for (const size_t place : PlacesOf(wanted, PlacementNames())) placements.push_back(static_cast<Placement>(place));
  return placements;
}

size_t CountOf(const CollectiveCase& shape, size_t bytes) {
  const size_t shares = HasShares(shape.op) ? static_cast<size_t>(shape.ranks) : 1;
  return std::max<size_t>(1, bytes / SizeOf(shape.dtype) / shares);
}

// `shape` in all sizes.
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
  return absl::StrCat(ronda::Name(op), ".", NameOf(dtype), ".", ronda::Name(wire), ".", bench::Name(placement), ".",
                      count);
}

double BusFactor(OpType op, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (op == OpType::kAllreduce) return 2 * others;
  return HasShares(op) ? others : 1;
}

const std::vector<std::string>& OpNames() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string>;
    for (const OpType op : kOps) all->emplace_back(ronda::Name(op));
    return all;
  }();
  return *names;
}

const std::vector<std::string>& DTypeNames() {
  static const auto* const names = new std::vector<std::string>(std::begin(kDTypeNames), std::end(kDTypeNames));
  return *names;
}

const std::vector<std::string>& WireNames() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string>;
    for (int i = 0; i < kWireFormatCount; ++i) all->emplace_back(ronda::Name(static_cast<WireFormat>(i)));
    return all;
  }();
  return *names;
}

const std::vector<std::string>& PlacementNames() {
  static const auto* const names = new std::vector<std::string>{"in", "out"};
  return *names;
}

std::string NameOf(DType dtype) {
  return kDTypeNames[std::find(std::begin(kDTypes), std::end(kDTypes), dtype) - std::begin(kDTypes)];
}

std::vector<CollectiveCase> MakeCases(const CaseRanges& ranges, int ranks) {
  std::vector<CollectiveCase> cases;
  bool has_barrier = false;
  for (const size_t op : PlacesOf(ranges.ops, OpNames())) {
    for (const size_t dtype : PlacesOf(ranges.dtypes, DTypeNames())) {
      for (const size_t wire : PlacesOf(ranges.wires, WireNames())) {
        for (const Placement placement : PlacementsOf(kOps[op], ranges.placements)) {
          const CollectiveCase shape = {.op = kOps[op],
                                        .dtype = kDTypes[dtype],
                                        .wire = static_cast<WireFormat>(wire),
                                        .placement = placement,
                                        .ranks = ranks};
          const bool is_repeated = shape.op == OpType::kBarrier && has_barrier;
          if (!IsSensible(shape) || is_repeated) continue;
          has_barrier = has_barrier || shape.op == OpType::kBarrier;
          AddSizes(ranges, shape, &cases);
        }
      }
    }
  }
  return cases;
}

}  // namespace ronda::bench
