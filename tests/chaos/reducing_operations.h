#ifndef RONDA_TESTS_CHAOS_REDUCING_OPERATIONS_H_
#define RONDA_TESTS_CHAOS_REDUCING_OPERATIONS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"
#include "tests/chaos/planned_operation.h"
#include "tests/chaos/round_plan.h"

namespace ronda::chaos {

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
    // The Adasum of equal vectors is that vector.
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
      // Two digits of each contribution and of the result are kept, and earlier errors may come back.
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
    const Status status = detail::wait_for_all(handles_);
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

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_REDUCING_OPERATIONS_H_
