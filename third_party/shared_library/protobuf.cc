// SPDX-License-Identifier: Apache-2.0

// Replaces an object file of Debian's Protocol Buffers in libronda.so: the arenas, which count in a thread-local
// variable. Ronda's messages are on the stack and in vectors, never on an arena. Code calls the functions below only
// for a message on an arena, so they abort.
#include <google/protobuf/arena.h>
#include <google/protobuf/arena_impl.h>

#include <cstdint>
#include <cstdlib>
#include <typeinfo>
#include <utility>

namespace google::protobuf {

void* Arena::AllocateAlignedWithHook(size_t, const std::type_info*) { std::abort(); }
void* Arena::AllocateAlignedWithHookForArray(size_t, const std::type_info*) { std::abort(); }
std::pair<void*, internal::SerialArena::CleanupNode*> Arena::AllocateAlignedWithCleanup(size_t, const std::type_info*) {
  std::abort();
}

namespace internal {

__thread ThreadSafeArena::ThreadCache ThreadSafeArena::thread_cache_ = {};

void ThreadSafeArena::AddCleanup(void*, void (*)(void*)) { std::abort(); }
uint64_t ThreadSafeArena::SpaceAllocated() const { std::abort(); }
ThreadSafeArena::~ThreadSafeArena() { std::abort(); }

}  // namespace internal
}  // namespace google::protobuf
