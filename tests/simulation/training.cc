// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/training.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"

namespace ronda::simulation {
namespace {

constexpr int64_t kWidth = 3;    // of rows, in operations by rows
constexpr int kEverySoMany = 9;  // one of this many steps has an additional operation
constexpr DType kDTypes[] = {DType::kInt32, DType::kInt64, DType::kFloat32, DType::kFloat64};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9e3779b97f4a7c15u + (b << 6) + (b >> 2);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31) ^ b;
}

bool IsByRows(OpType op) { return op == OpType::kAllgather || op == OpType::kReduceScatter; }

// Calls `call(T())`, where T is the C++ type of the elements.
template <typename Call>
auto WithType(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kInt32:
      return call(int32_t());
    case DType::kInt64:
      return call(int64_t());
    case DType::kFloat32:
      return call(float());
    default:
      return call(double());
  }
}

}  // namespace

Part::Part(std::string name, OpType op, DType dtype, int64_t rows, uint64_t salt, const Topology& topology)
    : rank_(topology.rank), size_(topology.size), salt_(salt), rows_(rows) {
  submission_.request = {.name = std::move(name), .op = op, .dtype = dtype};
  WithType(dtype, [this](auto zero) { Fill<decltype(zero)>(); });
}

// Returns small numbers, whose sums are exact in every type.
int64_t Part::Value(int64_t index) const {
  return static_cast<int64_t>(Mix(salt_, static_cast<uint64_t>(index)) % 64) - 32;
}

// Each rank contributes a different value to an allreduce. The sum of all contributions is Value(index) times the
// number of ranks.
int64_t Part::Contribution(RankId rank, int64_t index) const { return Value(index) + 2 * rank - (size_ - 1); }

int64_t Part::RowsOf(RankId rank) const { return submission_.request.op == OpType::kAllgather ? rank % 3 + 1 : rows_; }

template <typename T>
void Part::Fill() {
  TensorRequest& request = submission_.request;
  if (request.op == OpType::kBarrier) return;
  const int64_t rows = request.op == OpType::kReduceScatter ? rows_ * size_ : RowsOf(rank_);
  request.shape = IsByRows(request.op) ? Shape{rows, kWidth} : Shape{rows};
  const auto count = static_cast<size_t>(ElementCount(request.shape));
  input_.resize(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<int64_t>(i);
    int64_t number = Contribution(rank_, index);
    if (request.op == OpType::kBroadcast && rank_ == request.root) number = Value(index);
    const auto value = static_cast<T>(number);
    std::memcpy(input_.data() + i * sizeof(T), &value, sizeof(T));
  }
  submission_.input = input_.data();
  if (request.op == OpType::kBroadcast) {
    submission_.input = nullptr;
    submission_.output = input_.data();
  } else if (request.op == OpType::kAllreduce) {
    output_.resize(input_.size());
    submission_.output = output_.data();
  }
  if (IsByRows(request.op)) return;
  for (size_t i = 0; i < count; ++i) digest_ = Mix(digest_, static_cast<uint64_t>(Value(static_cast<int64_t>(i))));
}

template <typename T>
std::string Part::CheckValues(const OperationResult& result) const {
  const TensorRequest& request = submission_.request;
  if (request.op == OpType::kBarrier) return "";
  const void* values = request.op == OpType::kBroadcast ? input_.data() : output_.data();
  if (IsByRows(request.op)) values = result.rows();
  size_t at = 0;
  const auto next_is = [&](int64_t expected) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(values) + at++ * sizeof(T), sizeof(T));
    return value == static_cast<T>(expected);
  };
  const auto wrong = [&] { return absl::StrCat("element ", at - 1, " of '", request.name, "' is wrong"); };
  if (request.op == OpType::kAllgather) {
    for (RankId rank = 0; rank < size_; ++rank) {
      for (int64_t i = 0; i < RowsOf(rank) * kWidth; ++i) {
        if (!next_is(Contribution(rank, i))) return wrong();
      }
    }
    return "";
  }
  const int64_t count = request.op == OpType::kReduceScatter ? rows_ * kWidth : rows_;
  const int64_t first = request.op == OpType::kReduceScatter ? rank_ * count : 0;
  const int64_t factor = request.op == OpType::kBroadcast ? 1 : size_;
  for (int64_t i = first; i < first + count; ++i) {
    if (!next_is(Value(i) * factor)) return wrong();
  }
  return "";
}

std::string Part::Check(const OperationResult& result) const {
  return WithType(submission_.request.dtype, [&](auto zero) { return CheckValues<decltype(zero)>(result); });
}

std::vector<std::unique_ptr<Part>> PlanStep(uint64_t seed, int64_t step, const Topology& topology) {
  std::mt19937_64 random(seed);
  const int gradients = 1 + static_cast<int>(random() % 5);
  std::vector<std::unique_ptr<Part>> parts;
  const auto add = [&](std::string name, OpType op, DType dtype, int64_t rows) {
    const uint64_t salt = Mix(Mix(seed, static_cast<uint64_t>(step)), parts.size());
    parts.push_back(std::make_unique<Part>(std::move(name), op, dtype, rows, salt, topology));
  };
  for (int i = 0; i < gradients; ++i) {
    const DType dtype = kDTypes[random() % std::size(kDTypes)];
    const int64_t rows = random() % 8 == 0 ? 1 + static_cast<int64_t>(random() % 3'000) : 1 + i;
    add(absl::StrCat("gradient.", i), OpType::kAllreduce, dtype, rows);
  }
  if (random() % 3 == 0) add("gathered", OpType::kAllgather, DType::kInt32, 0);
  std::mt19937_64 stray(Mix(seed, static_cast<uint64_t>(step)));
  if (stray() % kEverySoMany != 0) return parts;
  constexpr OpType kStray[] = {OpType::kAllreduce, OpType::kAllgather, OpType::kBroadcast, OpType::kReduceScatter,
                               OpType::kBarrier};
  add(absl::StrCat("stray.", step % 3), kStray[stray() % std::size(kStray)], kDTypes[stray() % std::size(kDTypes)],
      1 + static_cast<int64_t>(stray() % 40));
  return parts;
}

uint64_t NextState(uint64_t state, const std::vector<std::unique_ptr<Part>>& parts) {
  for (const std::unique_ptr<Part>& part : parts) state = Mix(state, part->Digest());
  return state;
}

}  // namespace ronda::simulation
