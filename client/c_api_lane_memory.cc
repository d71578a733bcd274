// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: the memory of lanes, and of the job, which all ranks have registered together.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/c_api_support.h"
#include "client/lane_blocks.h"
#include "client/session.h"
#include "runtime/base/logging.h"
#include "runtime/engine/device/caller_lane.h"
#include "runtime/engine/device/lane_memory.h"

namespace ronda {
namespace {

// The process sets whose lanes can be the source of an allocator. An allocator's functions have no parameter for the
// set, so each set needs functions of its own.
constexpr ronda_process_set kAllocators = 256;

constexpr int kAnyDevice = -1;

Outcome Failed(const char* function, const absl::Status& status) {
  return Failure(absl::Status(status.code(), absl::StrCat(function, ": ", status.message())), Answer::kSubmission);
}

absl::StatusOr<std::shared_ptr<LaneMemory>> MemoryOf(Session& session, ronda_process_set process_set) {
  const std::shared_ptr<CallerLane> lane = session.runtime().lanes().Find(process_set);
  if (lane != nullptr) return lane->memory();
  return absl::FailedPreconditionError(
      absl::StrCat("process set ", process_set, " has no open lane: call ronda_lane_open() first"));
}

Outcome TakeBlock(const char* function, const std::shared_ptr<LaneMemory>& from, size_t bytes, void* stream,
                  void** memory) {
  const absl::StatusOr<void*> block = globals().lane_blocks.Allocate(from, bytes, stream);
  if (!block.ok()) return Failed(function, block.status());
  *memory = *block;
  return {};
}

ronda_status Allocate(const char* function, ronda_process_set process_set, size_t bytes, int device, void* stream,
                      void** memory) {
  return CallWithSession([&](Session& session) -> Outcome {
    const absl::StatusOr<std::shared_ptr<LaneMemory>> lane = MemoryOf(session, process_set);
    if (!lane.ok()) return Failed(function, lane.status());
    if (device != kAnyDevice && device != (*lane)->device()) {
      return Failed(function,
                    absl::InvalidArgumentError(absl::StrCat("the lane's memory is on cuda:", (*lane)->device(),
                                                            ", and the tensor would be on cuda:", device)));
    }
    return TakeBlock(function, *lane, bytes, stream, memory);
  });
}

template <ronda_process_set kSet>
void* AllocateIn(size_t bytes, int device, void* stream) {
  void* memory = nullptr;
  Allocate("an allocator of ronda_lane_allocator()", kSet, bytes, device, stream, &memory);
  return memory;
}

// The caller gets no status, so an error is logged.
void Deallocate(void* memory, size_t /*bytes*/, int /*device*/, void* stream) {
  if (ronda_lane_free(memory, stream) == RONDA_OK) return;
  Log(LogLevel::kError, -1,
      absl::StrCat("an allocator of ronda_lane_allocator() has not freed a block: ", ronda_last_error()));
}

template <ronda_process_set... kSets>
constexpr auto AllocateFunctions(std::integer_sequence<ronda_process_set, kSets...>) {
  return std::array<ronda_lane_allocate_function, sizeof...(kSets)>{AllocateIn<kSets>...};
}

constexpr auto kAllocateFunctions = AllocateFunctions(std::make_integer_sequence<ronda_process_set, kAllocators>());

}  // namespace
}  // namespace ronda

ronda_status ronda_lane_memory(ronda_process_set process_set, size_t* bytes) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (bytes == nullptr) return ronda::NullArgument("ronda_lane_memory", "bytes");
    const auto memory = ronda::MemoryOf(session, process_set);
    *bytes = memory.ok() ? (*memory)->bytes() : 0;
    return {};
  });
}

ronda_status ronda_lane_allocate(ronda_process_set process_set, size_t bytes, void* stream, void** memory) {
  constexpr char kFunction[] = "ronda_lane_allocate";
  if (memory == nullptr) {
    return ronda::CallWithSession([&](ronda::Session&) { return ronda::NullArgument(kFunction, "memory"); });
  }
  return ronda::Allocate(kFunction, process_set, bytes, ronda::kAnyDevice, stream, memory);
}

ronda_status ronda_gradient_allocate(size_t bytes, void* stream, void** memory) {
  constexpr char kFunction[] = "ronda_gradient_allocate";
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (memory == nullptr) return ronda::NullArgument(kFunction, "memory");
    *memory = nullptr;
    const std::shared_ptr<ronda::LaneMemory> own = session.runtime().gradient_memory();
    return own == nullptr ? ronda::Outcome() : ronda::TakeBlock(kFunction, own, bytes, stream, memory);
  });
}

ronda_status ronda_lane_free(void* memory, void* stream) {
  return ronda::Call([&]() -> ronda::Outcome {
    const absl::Status status = ronda::globals().lane_blocks.Free(memory, stream);
    return ronda::Failure(absl::Status(status.code(), absl::StrCat("ronda_lane_free: ", status.message())),
                          ronda::Answer::kSubmission);
  });
}

ronda_status ronda_lane_allocator(ronda_process_set process_set, ronda_lane_allocate_function* allocate,
                                  ronda_lane_free_function* free) {
  constexpr char kFunction[] = "ronda_lane_allocator";
  return ronda::CallWithSession([&](ronda::Session&) -> ronda::Outcome {
    if (allocate == nullptr) return ronda::NullArgument(kFunction, "allocate");
    if (free == nullptr) return ronda::NullArgument(kFunction, "free");
    if (process_set >= ronda::kAllocators) {
      return {RONDA_ERROR_INVALID_ARGUMENT,
              absl::StrCat(kFunction, ": process set ", process_set, " has no allocator: only the sets 0 to ",
                           ronda::kAllocators - 1, " have one")};
    }
    *allocate = ronda::kAllocateFunctions[static_cast<size_t>(process_set)];
    *free = ronda::Deallocate;
    return {};
  });
}
