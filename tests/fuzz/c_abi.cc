// SPDX-License-Identifier: Apache-2.0

// Tests the C ABI with arbitrary values in the argument structs. Pointers are null or valid, because the library cannot
// check them any further.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "client/arguments.h"
#include "client/job_options.h"
#include "runtime/engine/submission.h"
#include "tests/fuzz/fuzz_input.h"

namespace ronda::fuzz {
namespace {

constexpr int kWorldSize = 3;
constexpr int kMostNumbers = RONDA_MAX_NDIM;

// The memory that pointers in the arguments point to. The input determines its content, and which pointers are null.
class Pointers {
 public:
  explicit Pointers(FuzzInput& input) : name_(input.Text()) {
    for (int i = 0; i < kMostNumbers && i < input.Below(kMostNumbers + 1); ++i) {
      numbers_[i] = input.Below(4) == 0 ? input.Number<int64_t>() : input.Below(4);
    }
    choices_ = input.Number<uint8_t>();
  }

  const char* name() { return Choose(name_.c_str()); }
  const int64_t* numbers() { return Choose(&numbers_[0]); }
  char* buffer() { return Choose(&buffer_[0]); }

 private:
  template <typename T>
  T* Choose(T* pointer) {
    choices_ = static_cast<uint8_t>(choices_ >> 1 | choices_ << 7);
    return choices_ % 2 == 0 ? pointer : nullptr;
  }

  const std::string name_;
  int64_t numbers_[kMostNumbers] = {};
  char buffer_[16] = {};  // only its address is used
  uint8_t choices_ = 0;
};

// A caller's argument struct.
template <typename Args>
class CallersStruct {
 public:
  CallersStruct(FuzzInput& input, Pointers& pointers) {
    const absl::string_view bytes = input.Take(sizeof(Args));
    std::memcpy(static_cast<void*>(&args_), bytes.data(), bytes.size());
    const int size = input.Below(8);  // 0: any number
    if (size == 1) args().struct_size = input.Number<uint16_t>() % (2 * kMaxStructSize);
    if (size > 1) args().struct_size = sizeof(Args);
    const auto point = [](auto& field, auto* to) { field = to; };
    if constexpr (requires { args().tensor; }) {
      args().tensor.name = pointers.name();
      args().tensor.shape = pointers.numbers();
    }
    if constexpr (requires { args().splits; }) {
      args().splits = pointers.numbers();
      args().split_count %= kMostNumbers + 1;
    }
    if constexpr (requires { args().name; }) args().name = pointers.name();
    if constexpr (requires { args().input; }) point(args().input, pointers.buffer());
    if constexpr (requires { args().output; }) point(args().output, pointers.buffer());
    // Any value or, in half of the cases, a value below 32, because the buffer has 16 bytes.
    if constexpr (requires { args().output_bytes; }) {
      if (input.Below(2) == 0) args().output_bytes = input.Below(32);
    }
    if constexpr (requires { args().data; }) point(args().data, pointers.buffer());
    if constexpr (requires { args().values; }) point(args().values, pointers.buffer());
    if constexpr (requires { args().indices; }) args().indices = pointers.numbers();
  }

  Args& args() { return args_; }

  // Returns a copy that has exactly struct_size bytes, so that AddressSanitizer finds a read beyond them. The bytes
  // after the fields are zero. If the library accepts no struct of this size, the copy only has the struct_size.
  const Args* Passed() {
    const size_t size = args_.struct_size;
    const bool is_possible = size >= sizeof(size) && size <= kMaxStructSize;
    const size_t bytes = is_possible ? size : sizeof(size);
    passed_.reset(new char[bytes]());
    std::memcpy(passed_.get(), &args_, std::min(bytes, sizeof(Args)));
    return reinterpret_cast<const Args*>(passed_.get());
  }

 private:
  Args args_ = {};
  std::unique_ptr<char[]> passed_;
};

void Check(const Submission& submission) {
  static const auto* const process_sets = new ProcessSets(kWorldSize);
  RequireOkOrRefused(CheckSubmission(submission, {.rank = 1, .world_size = kWorldSize, .process_sets = process_sets}));
}

template <typename Args>
void Submit(FuzzInput& input) {
  Pointers pointers(input);
  CallersStruct<Args> callers(input, pointers);
  Submission submission;
  const absl::Status converted = ToSubmission(callers.Passed(), {.rank = 1}, &submission);
  RequireOkOrRefused(converted);
  if (converted.ok()) Check(submission);
}

void SubmitSparse(FuzzInput& input) {
  Pointers pointers(input);
  CallersStruct<ronda_sparse_allreduce_args> callers(input, pointers);
  const auto submissions = ToSubmissions(callers.Passed(), {.rank = 1});
  RequireOkOrRefused(submissions.status());
  if (!submissions.ok()) return;
  Check(submissions->indices);
  Check(submissions->values);
}

void SetOptions(FuzzInput& input) {
  Pointers pointers(input);
  constexpr int kRanks[] = {0, 1, 2, 2, -1, 1 << 30};
  const ronda_rank_list sets[] = {{kRanks, input.Below(6)}, {nullptr, input.Below(2)}};
  CallersStruct<ronda_options> callers(input, pointers);
  callers.args().process_sets = input.Below(4) == 0 ? nullptr : sets;
  callers.args().process_set_count = input.Below(4) - 1;
  if (callers.args().process_set_count > 2) callers.args().process_set_count = 2;
  ClientOptions options;
  RequireOkOrRefused(ApplyOptions(callers.Passed(), &options));
}

constexpr void (*kSubmit[])(FuzzInput&) = {
    Submit<ronda_allreduce_args>,
    Submit<ronda_reduce_args>,
    Submit<ronda_reducescatter_args>,
    Submit<ronda_broadcast_args>,
    Submit<ronda_allgather_args>,
    Submit<ronda_gather_args>,
    Submit<ronda_scatter_args>,
    Submit<ronda_alltoall_args>,
    Submit<ronda_send_args>,
    Submit<ronda_recv_args>,
    Submit<ronda_object_args>,
    SubmitSparse,
    SetOptions,
};

}  // namespace
}  // namespace ronda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ronda::fuzz::FuzzInput input(data, size);
  ronda::fuzz::kSubmit[input.Below(std::size(ronda::fuzz::kSubmit))](input);
  return 0;
}
