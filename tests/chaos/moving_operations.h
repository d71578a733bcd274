#ifndef RONDA_TESTS_CHAOS_MOVING_OPERATIONS_H_
#define RONDA_TESTS_CHAOS_MOVING_OPERATIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "tests/chaos/planned_operation.h"
#include "tests/chaos/round_plan.h"

namespace ronda::chaos {

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

// Operations whose result the library owns, and in which each member's number of rows is another.
template <class T>
class Moving : public PlannedOperation {
 public:
  Moving(const OperationPlan& plan, int rank) : PlannedOperation(plan, rank), rows_(DrawRows()) {
    const int64_t all = std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
    const bool is_dealt = plan.kind == OperationKind::kScatter || plan.kind == OperationKind::kAlltoall;
    // To be dealt out, every member has rows for all, by the same splits.
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

  // The rows that `from` deals to this rank.
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
    // A set of one rank has nobody to send to; the other members have nothing to do.
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

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_MOVING_OPERATIONS_H_
