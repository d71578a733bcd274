// SPDX-License-Identifier: Apache-2.0

// Implements the operations of a chaos round. Each class submits one kind of operation on a rank, and checks the
// result.
#include "tests/chaos/operation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"
#include "tests/chaos/round_plan.h"

namespace ronda::chaos {
namespace {

// Returns a small integer that depends on all arguments. Sums and products of a few such integers are exact in every
// dtype, and in every wire format of 16 bits.
int ValueOf(uint64_t seed, int rank, size_t index) {
  uint64_t bits = seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(rank + 1) + index;
  bits = (bits ^ (bits >> 31)) * 0x7fb5d329728ea185u;
  return static_cast<int>((bits >> 40) % 9) - 4;
}

template <class T>
std::vector<T> Contribution(uint64_t seed, int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(ValueOf(seed, rank, i));
  return values;
}

size_t SomeCount(Random& random) {
  constexpr size_t kCounts[] = {0, 1, 7, 127, 1000, 4096, 30000};
  return kCounts[random.Below(std::size(kCounts))];
}

// The base class of all operations. All ranks draw the same random numbers, because they have the same seed and draw in
// the same order.
class PlannedOperation : public Operation {
 public:
  PlannedOperation(const OperationPlan& plan, int rank) : plan_(plan), rank_(rank), random_(plan.seed) {}

 protected:
  bool is_root() const { return rank_ == plan_.root; }
  size_t members() const { return plan_.members.size(); }
  size_t position() const { return PositionOf(rank_); }
  size_t PositionOf(int rank) const {
    const auto it = std::find(plan_.members.begin(), plan_.members.end(), rank);
    return static_cast<size_t>(it - plan_.members.begin());
  }

  // Draws a number of rows for each member.
  std::vector<int64_t> DrawRows() {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < members(); ++i) rows.push_back(random_.OneIn(4) ? 0 : random_.Below(600));
    return rows;
  }

  // `wire_error` is the largest error that an 8-bit wire format may cause in an element.
  template <class T>
  void ExpectEqual(const std::vector<T>& result, const std::vector<T>& expected, double wire_error = 0) const {
    ASSERT_EQ(result.size(), expected.size()) << Where();
    for (size_t i = 0; i < result.size(); ++i) {
      const auto is = static_cast<double>(result[i]);
      const auto should_be = static_cast<double>(expected[i]);
      ASSERT_EQ(std::isfinite(is), std::isfinite(should_be)) << Where() << ", element " << i << " is " << is;
      if (!std::isfinite(is)) continue;
      // Averages need a tolerance, because they are divided in the wire format.
      const double tolerance = std::is_integral_v<T> ? 0 : 0.02 * std::abs(should_be) + wire_error;
      ASSERT_NEAR(is, should_be, tolerance) << Where() << ", element " << i << " of " << result.size();
    }
  }

  std::string Where() const {
    return plan_.name + " of kind " + std::to_string(static_cast<int>(plan_.kind)) + " on rank " +
           std::to_string(rank_) + ", seed " + std::to_string(plan_.seed);
  }

  const OperationPlan plan_;
  const int rank_;
  Random random_;
};

// -- Operations that move data --

template <class T>
class Broadcast : public PlannedOperation {
 public:
  Broadcast(const OperationPlan& plan, int rank)
      : PlannedOperation(plan, rank), values_(Contribution<T>(plan.seed, rank, SomeCount(random_))) {}

  Status Submit(const CallOptions& call) override {
    Result<Handle> handle = try_broadcast_async(tensor(plan_.name, values_), plan_.root, call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    if (status.ok()) ExpectEqual(values_, Contribution<T>(plan_.seed, plan_.root, values_.size()));
    return status;
  }

 private:
  std::vector<T> values_;
  Handle handle_;
};

// Operations in which members have different numbers of rows, and the library allocates the result.
template <class T>
class Moving : public PlannedOperation {
 public:
  Moving(const OperationPlan& plan, int rank) : PlannedOperation(plan, rank), rows_(DrawRows()) {
    const int64_t all = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
    const bool is_dealt = plan.kind == OperationKind::kScatter || plan.kind == OperationKind::kAlltoall;
    // In a scatter or alltoall, every member has rows for all members, split in the same way.
    shape_ = {is_dealt ? all : rows_[position()]};
    values_ = Contribution<T>(plan.seed, rank, static_cast<size_t>(shape_[0]));
  }

  Status Submit(const CallOptions& call) override {
    Result<OutputHandle<T>> handle = SubmitKind(call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    if (status.ok()) ExpectEqual(handle_.result(), Expected());
    return status;
  }

 private:
  Result<OutputHandle<T>> SubmitKind(const CallOptions& call) {
    switch (plan_.kind) {
      case OperationKind::kGather:
        return try_gather_async(plan_.name, values_.data(), shape_, plan_.root, call);
      case OperationKind::kScatter:
        return try_scatter_async(plan_.name, values_.data(), shape_, plan_.root, rows_, call);
      case OperationKind::kAlltoall:
        return try_alltoall_async(plan_.name, values_.data(), shape_, rows_, call);
      default:
        return try_allgather_async(plan_.name, values_.data(), shape_, call);
    }
  }

  // Returns the rows that this rank gets from rank `from`.
  std::vector<T> Dealt(int from) const {
    const std::vector<T> all = Contribution<T>(plan_.seed, from, static_cast<size_t>(shape_[0]));
    const auto begin =
        all.begin() + std::accumulate(rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(position()), int64_t{0});
    return std::vector<T>(begin, begin + rows_[position()]);
  }

  std::vector<T> Expected() const {
    if (plan_.kind == OperationKind::kScatter) return Dealt(plan_.root);
    std::vector<T> expected;
    if (plan_.kind == OperationKind::kGather && !is_root()) return expected;
    for (int member : plan_.members) {
      const std::vector<T> part =
          plan_.kind == OperationKind::kAlltoall
              ? Dealt(member)
              : Contribution<T>(plan_.seed, member, static_cast<size_t>(rows_[PositionOf(member)]));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    return expected;
  }

  const std::vector<int64_t> rows_;  // by position
  Dims shape_;
  std::vector<T> values_;
  OutputHandle<T> handle_;
};

template <class T>
class SendRecv : public PlannedOperation {
 public:
  SendRecv(const OperationPlan& plan, int rank)
      : PlannedOperation(plan, rank), values_(Contribution<T>(plan.seed, rank, SomeCount(random_))) {
    tag_ = plan.name.back();
  }

  Status Submit(const CallOptions& call) override {
    // In a set of one rank, there is no peer to send to. Ranks that are neither the sender nor the receiver have
    // nothing to do.
    if (plan_.root == plan_.receiver || (rank_ != plan_.root && rank_ != plan_.receiver)) return {};
    const Tensor view = tensor(plan_.name, values_);
    Result<Handle> handle =
        is_root() ? try_send_async(view, plan_.receiver, tag_, call) : try_recv_async(view, plan_.root, tag_, call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    const int from = rank_ == plan_.receiver ? plan_.root : rank_;
    if (status.ok()) ExpectEqual(values_, Contribution<T>(plan_.seed, from, values_.size()));
    return status;
  }

 private:
  std::vector<T> values_;
  int tag_ = 0;
  Handle handle_;
};

class Objects : public PlannedOperation {
 public:
  Objects(const OperationPlan& plan, int rank) : PlannedOperation(plan, rank), rows_(DrawRows()), mine_(Of(rank)) {}

  Status Submit(const CallOptions& call) override {
    const std::string_view bytes(mine_.data(), mine_.size());
    Result<OutputHandle<char>> handle = plan_.kind == OperationKind::kBroadcastObject
                                            ? try_broadcast_object_async(plan_.name, bytes, plan_.root, call)
                                            : try_allgather_object_async(plan_.name, bytes, call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    if (!status.ok()) return status;
    std::vector<char> expected;
    for (int member : plan_.members) {
      if (plan_.kind == OperationKind::kBroadcastObject && member != plan_.root) continue;
      const std::vector<char> part = Of(member);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    ExpectEqual(handle_.result(), expected);
    return status;
  }

 private:
  std::vector<char> Of(int member) const {
    return Contribution<char>(plan_.seed, member, static_cast<size_t>(rows_[PositionOf(member)]));
  }

  const std::vector<int64_t> rows_;  // bytes, by position
  const std::vector<char> mine_;
  OutputHandle<char> handle_;
};

class Barrier : public PlannedOperation {
 public:
  using PlannedOperation::PlannedOperation;

  Status Submit(const CallOptions& call) override {
    return random_.OneIn(2) ? try_barrier(call.process_set)
                            : try_monitored_barrier(std::chrono::minutes(1), call.process_set);
  }
  Status Finish() override { return {}; }
};

template <class T>
class SparseAllreduce : public PlannedOperation {
 public:
  static constexpr size_t kRow = 2;

  SparseAllreduce(const OperationPlan& plan, int rank) : PlannedOperation(plan, rank), rows_(DrawRows()) {}

  Status Submit(const CallOptions& call) override {
    Result<SparseRows<T>> result = try_sparse_allreduce(plan_.name, RowsOf(rank_), {kRow}, Op::Sum, call);
    if (result.ok()) result_ = std::move(result.value());
    return result.ok() ? Status() : result.status();
  }
  Status Finish() override {
    SparseRows<T> expected;
    for (int member : plan_.members) {
      const SparseRows<T> rows = RowsOf(member);
      expected.indices.insert(expected.indices.end(), rows.indices.begin(), rows.indices.end());
      expected.values.insert(expected.values.end(), rows.values.begin(), rows.values.end());
    }
    ExpectEqual(result_.indices, expected.indices);
    ExpectEqual(result_.values, expected.values);
    return {};
  }

 private:
  SparseRows<T> RowsOf(int member) const {
    const auto rows = static_cast<size_t>(rows_[PositionOf(member)]);
    return {Contribution<int64_t>(plan_.seed + 1, member, rows), Contribution<T>(plan_.seed, member, rows * kRow)};
  }

  const std::vector<int64_t> rows_;  // by position
  SparseRows<T> result_;
};

// -- Operations that reduce --

template <class T>
class Reducing : public PlannedOperation {
 public:
  Reducing(const OperationPlan& plan, int rank) : PlannedOperation(plan, rank) {
    std::vector<Op> ops = {Op::Sum, Op::Min, Op::Max, Op::Product};
    if constexpr (std::is_integral_v<T>) {
      ops.insert(ops.end(), {Op::Band, Op::Bor, Op::Bxor});
    } else {
      ops.push_back(Op::Average);
      if (plan.kind == OperationKind::kAllreduce || plan.kind == OperationKind::kGroupedAllreduce) {
        ops.push_back(Op::Adasum);
      }
    }
    options_.op = ops[static_cast<size_t>(random_.Below(static_cast<int>(ops.size())))];
    if constexpr (!std::is_integral_v<T>) ChooseWire();
  }

 protected:
  std::vector<T> ContributionOf(int member, uint64_t seed, size_t count) const {
    // For Adasum all members contribute the same vector, so that the result is that vector.
    const int rank = options_.op == Op::Adasum ? plan_.members[0] : member;
    std::vector<T> values = Contribution<T>(seed, rank, count);
    if (overflows_ && member == plan_.root && count > 0) values.back() = std::numeric_limits<T>::infinity();
    return values;
  }

  std::vector<T> Expected(uint64_t seed, size_t count) const {
    std::vector<T> result = ContributionOf(plan_.members[0], seed, count);
    if (options_.op == Op::Adasum) return result;
    for (size_t m = 1; m < members(); ++m) {
      const std::vector<T> next = ContributionOf(plan_.members[m], seed, count);
      for (size_t i = 0; i < count; ++i) result[i] = Combine(result[i], next[i]);
    }
    if (options_.op == Op::Average) {
      for (T& value : result) value /= static_cast<T>(members());
    }
    return result;
  }

  double wire_error() const { return wire_error_; }

  ReduceOptions options_;

 private:
  void ChooseWire() {
    const bool adds = options_.op == Op::Sum || options_.op == Op::Average;
    constexpr Compression kWires[] = {Compression::none, Compression::fp16, Compression::bf16, Compression::fp8_e4m3,
                                      Compression::fp8_e5m2};
    const int choices = adds ? 5 : 3;
    const int choice = random_.Below(choices);
    options_.compression = kWires[choice];
    if (choice >= 3) {
      // The 8-bit wire formats keep about two digits of each contribution and of the result. Error feedback may add
      // errors from earlier steps.
      wire_error_ = 0.5 * 4 * static_cast<double>(members() + 1);
      options_.error_feedback = random_.OneIn(2);
    } else if (options_.op != Op::Adasum && random_.OneIn(4)) {
      options_.detect_overflow = true;
      overflows_ = random_.OneIn(2);
    }
  }

  T Combine(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (options_.op == Op::Band) return static_cast<T>(a & b);
      if (options_.op == Op::Bor) return static_cast<T>(a | b);
      if (options_.op == Op::Bxor) return static_cast<T>(a ^ b);
    }
    if (options_.op == Op::Min) return std::min(a, b);
    if (options_.op == Op::Max) return std::max(a, b);
    if (options_.op == Op::Product) return static_cast<T>(a * b);
    return static_cast<T>(a + b);
  }

  double wire_error_ = 0;
  bool overflows_ = false;  // the root contributes an infinity
};

template <class T>
class Allreduce : public Reducing<T> {
 public:
  Allreduce(const OperationPlan& plan, int rank)
      : Reducing<T>(plan, rank), values_(this->ContributionOf(rank, plan.seed, SomeCount(this->random_))) {}

  Status Submit(const CallOptions& call) override {
    Result<Handle> handle = try_allreduce_async(tensor(this->plan_.name, values_), this->options_, call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    if (!status.ok()) return status;
    const std::vector<T> expected = this->Expected(this->plan_.seed, values_.size());
    this->ExpectEqual(values_, expected, this->wire_error());
    const bool overflows = std::any_of(expected.begin(), expected.end(),
                                       [](T value) { return !std::isfinite(static_cast<double>(value)); });
    EXPECT_EQ(this->options_.detect_overflow && handle_.found_inf(), this->options_.detect_overflow && overflows)
        << this->Where();
    return status;
  }

 private:
  std::vector<T> values_;
  Handle handle_;
};

template <class T>
class GroupedAllreduce : public Reducing<T> {
 public:
  GroupedAllreduce(const OperationPlan& plan, int rank) : Reducing<T>(plan, rank) {
    for (int i = 2 + this->random_.Below(3); i > 0; --i) {
      values_.push_back(
          this->ContributionOf(rank, plan.seed + static_cast<uint64_t>(values_.size()), SomeCount(this->random_)));
    }
  }

  Status Submit(const CallOptions& call) override {
    std::vector<Tensor> tensors;
    for (std::vector<T>& values : values_) {
      tensors.push_back(tensor(this->plan_.name + "/" + std::to_string(tensors.size()), values));
    }
    Result<std::vector<Handle>> handles = try_grouped_allreduce_async(this->plan_.name, tensors, this->options_, call);
    if (handles.ok()) handles_ = std::move(handles.value());
    return handles.ok() ? Status() : handles.status();
  }
  Status Finish() override {
    const Status status = wait_for_all(handles_);
    for (size_t i = 0; i < values_.size() && status.ok(); ++i) {
      this->ExpectEqual(values_[i], this->Expected(this->plan_.seed + i, values_[i].size()), this->wire_error());
    }
    return status;
  }

 private:
  std::vector<std::vector<T>> values_;
  std::vector<Handle> handles_;
};

template <class T>
class Reduce : public Reducing<T> {
 public:
  Reduce(const OperationPlan& plan, int rank)
      : Reducing<T>(plan, rank),
        values_(this->ContributionOf(rank, plan.seed, SomeCount(this->random_))),
        result_(values_.size()) {}

  Status Submit(const CallOptions& call) override {
    Result<Handle> handle =
        try_reduce_async(tensor(this->plan_.name, values_), result_.data(), this->plan_.root, this->options_, call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    if (!status.ok()) return status;
    this->ExpectEqual(
        result_, this->is_root() ? this->Expected(this->plan_.seed, values_.size()) : std::vector<T>(values_.size()),
        this->wire_error());
    return status;
  }

 private:
  std::vector<T> values_;
  std::vector<T> result_;
  Handle handle_;
};

template <class T>
class ReduceScatter : public Reducing<T> {
 public:
  static constexpr size_t kRow = 3;

  ReduceScatter(const OperationPlan& plan, int rank) : Reducing<T>(plan, rank) {
    rows_ = SomeCount(this->random_);
    values_ = this->ContributionOf(rank, plan.seed, rows_ * kRow);
  }

  Status Submit(const CallOptions& call) override {
    const Tensor input =
        tensor(this->plan_.name, values_.data(), {static_cast<int64_t>(rows_), static_cast<int64_t>(kRow)});
    Result<OutputHandle<T>> handle = try_reducescatter_async<T>(input, this->options_, call);
    if (handle.ok()) handle_ = std::move(handle.value());
    return handle.ok() ? Status() : handle.status();
  }
  Status Finish() override {
    const Status status = handle_.wait();
    if (!status.ok()) return status;
    const std::vector<T> all = this->Expected(this->plan_.seed, rows_ * kRow);
    const size_t more = rows_ % this->members();
    const size_t least = rows_ / this->members();
    const auto begin_of = [&](size_t position) { return kRow * (position * least + std::min(position, more)); };
    this->ExpectEqual(
        handle_.result(),
        std::vector<T>(all.begin() + begin_of(this->position()), all.begin() + begin_of(this->position() + 1)),
        this->wire_error());
    return status;
  }

 private:
  size_t rows_ = 0;
  std::vector<T> values_;
  OutputHandle<T> handle_;
};

// -- The operation of a plan --

template <class T>
std::unique_ptr<Operation> MakeOf(const OperationPlan& plan, int rank) {
  switch (plan.kind) {
    case OperationKind::kAllreduce:
      return std::make_unique<Allreduce<T>>(plan, rank);
    case OperationKind::kGroupedAllreduce:
      return std::make_unique<GroupedAllreduce<T>>(plan, rank);
    case OperationKind::kReduce:
      return std::make_unique<Reduce<T>>(plan, rank);
    case OperationKind::kReduceScatter:
      return std::make_unique<ReduceScatter<T>>(plan, rank);
    case OperationKind::kBroadcast:
      return std::make_unique<Broadcast<T>>(plan, rank);
    case OperationKind::kSendRecv:
      return std::make_unique<SendRecv<T>>(plan, rank);
    case OperationKind::kAllgather:
    case OperationKind::kGather:
    case OperationKind::kScatter:
    case OperationKind::kAlltoall:
      return std::make_unique<Moving<T>>(plan, rank);
    case OperationKind::kBroadcastObject:
    case OperationKind::kAllgatherObject:
      return std::make_unique<Objects>(plan, rank);
    case OperationKind::kSparseAllreduce:
      return std::make_unique<SparseAllreduce<T>>(plan, rank);
    case OperationKind::kBarrier:
      return std::make_unique<Barrier>(plan, rank);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Operation> MakeOperation(const OperationPlan& plan, int rank) {
  switch (plan.seed % 4) {
    case 0:
      return MakeOf<int32_t>(plan, rank);
    case 1:
      return MakeOf<int64_t>(plan, rank);
    case 2:
      return MakeOf<float>(plan, rank);
    default:
      return MakeOf<double>(plan, rank);
  }
}

}  // namespace ronda::chaos
