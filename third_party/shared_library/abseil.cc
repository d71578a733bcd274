// SPDX-License-Identifier: Apache-2.0

// Replaces object files of Debian's Abseil in libronda.so. Debian's archives are compiled for executables, so an object
// file with a thread-local variable cannot be linked into a shared library. Ronda would need three such object files:
// hash tables (which draw numbers, in debug builds), facts about the system (the id of the thread), and the sampling of
// cords, which pulls in absl::Mutex, stack traces and more.
//
// This file uses the declarations of Abseil's headers, so it does not compile or link with an incompatible version of
// Abseil.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "absl/base/internal/raw_logging.h"
#include "absl/base/internal/sysinfo.h"
#include "absl/container/internal/raw_hash_set.h"
#include "absl/strings/internal/cordz_functions.h"
#include "absl/strings/internal/cordz_info.h"
#include "absl/synchronization/mutex.h"

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace container_internal {

// The control bytes of a table without slots: the end of its slots, and no slot behind it.
alignas(16) ABSL_CONST_INIT ABSL_DLL const ctrl_t kEmptyGroup[16] = {
    ctrl_t::kSentinel, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty};

// Debug builds call this function, so that no program relies on an order of iteration.
bool ShouldInsertBackwards(size_t hash, const ctrl_t* ctrl) { return (H1(hash, ctrl) & 8) != 0; }

void ConvertDeletedToEmptyAndFullToDeleted(ctrl_t* ctrl, size_t capacity) {
  for (size_t i = 0; i < capacity; ++i) ctrl[i] = IsFull(ctrl[i]) ? ctrl_t::kDeleted : ctrl_t::kEmpty;
  ctrl[capacity] = ctrl_t::kSentinel;
  // The first control bytes are repeated behind the end, for groups that begin shortly before the end.
  for (size_t i = 0; i < NumClonedBytes(); ++i) ctrl[capacity + 1 + i] = i < capacity ? ctrl[i] : ctrl_t::kEmpty;
}

void HashTableSizeOverflow() {
  ABSL_RAW_LOG(FATAL, "Hash table size overflow");
  std::abort();
}

template FindInfo find_first_non_full(const ctrl_t*, size_t, size_t);

}  // namespace container_internal

namespace base_internal {

// A spin lock spins only if there are several CPUs.
int NumCPUs() { return static_cast<int>(std::thread::hardware_concurrency()); }

}  // namespace base_internal

namespace cord_internal {

// No cord is ever sampled, so these functions never have a cord to track.

ABSL_CONST_INIT thread_local int64_t cordz_next_sample = INT64_MAX;

bool cordz_should_profile_slow() { return false; }

void CordzInfo::TrackCord(InlineData&, MethodIdentifier) { std::abort(); }
void CordzInfo::MaybeTrackCordImpl(InlineData&, const InlineData&, MethodIdentifier) { std::abort(); }
void CordzInfo::Untrack() { std::abort(); }
void CordzInfo::Lock(MethodIdentifier) ABSL_NO_THREAD_SAFETY_ANALYSIS { std::abort(); }
void CordzInfo::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { std::abort(); }

}  // namespace cord_internal

// Only cords that are sampled call this function.
void Mutex::AssertHeld() const { std::abort(); }

ABSL_NAMESPACE_END
}  // namespace absl
