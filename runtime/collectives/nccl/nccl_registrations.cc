// SPDX-License-Identifier: Apache-2.0

// The registration of memory with NCCL.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/side_by_side.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/nccl/nccl_entry.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_memory.h"

namespace ronda {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(1);

}  // namespace

// Deregisters the memory of one communicator. Owns everything that the calls need.
struct NcclGroups::Deregistration {
  const RankId rank;
  const std::shared_ptr<Device> device;
  const std::shared_ptr<const NcclLibrary> library;
  const NcclHandle handle;
  Entry* const entry;                  // not used by Run()
  const std::shared_ptr<Child> child;  // the handle's owner; nullptr: the entry. Not used by Run()
  const std::vector<Entry::Registration> registrations;
  // Set when Run() ends and when Reclaim() is called. Whichever happens last takes over the communicator.
  std::atomic<bool> is_either_over = false;

  void Run() {
    LogIfError(rank, device->Call("taking memory back from NCCL", [&](const ronda_cuda_plugin&) {
      for (const Entry::Registration& each : registrations) {
        if (each.registration == nullptr) continue;
        if (each.kind == Entry::Registration::Kind::kWindow) {
          library->functions.CommWindowDeregister(handle, each.registration);
        } else {
          library->functions.CommDeregister(handle, each.registration);
        }
      }
      return 0;
    }));
    if (is_either_over.exchange(true)) AbortOne(rank, *device, library->functions, handle);
  }

  // Returns whether the caller gets the communicator back. If not, Run() aborts it at its end.
  bool Reclaim() { return is_either_over.exchange(true); }
};

absl::Status NcclGroups::Register(Entry* entry, void* memory, size_t bytes) {
  {
    const MutexLock lock(&mu_);
    const auto is_same = [&](const Entry::Registration& known) { return known.memory == memory; };
    if (std::ranges::any_of(entry->registrations, is_same)) return failure_;
  }
  return UsesWindows(entry->use) ? RegisterWindow(entry, memory, bytes) : RegisterLocally(entry, memory, bytes);
}

absl::Status NcclGroups::RegisterInTime(Entry* entry, void* memory, size_t bytes, const WaitLimits& limits) {
  Wait wait = {.doing = "registering memory", .limits = limits};
  wait.limits.deadline = std::max(limits.deadline, options_.init_deadline);
  absl::Status status;
  std::atomic<bool> is_over = false;
  SideBySide({[&] {
                const absl::Cleanup end = [&] { is_over.store(true); };
                status = Register(entry, memory, bytes);
              },
              [&] { WatchRegistration(*entry, wait, is_over); }})
      .Run();
  return status;
}

absl::StatusOr<DirectMemory> NcclGroups::AllocateMemory(size_t bytes) {
  const std::string purpose = absl::StrCat("tensors (", options_.memory_setting, " on rank ", JobRank(0), ")");
  RONDA_ASSIGN_OR_RETURN(std::byte* const data, AllocateNcclMemory(*options_.device, nccl_, bytes, purpose));
  const auto free = [device = options_.device, library = options_.library](std::byte* its) {
    FreeNcclMemory(*device, library->functions, its);
  };
  return DirectMemory{.data = std::shared_ptr<std::byte>(data, free), .bytes = bytes};
}

void NcclGroups::WatchRegistration(const Entry& entry, const Wait& wait, const std::atomic<bool>& is_over) {
  const absl::Duration begin = MonotonicTime();
  bool is_reported = false;
  while (!is_over.load()) {
    const absl::Duration waited = MonotonicTime() - begin;
    absl::Status failure = options_.job_failure();
    if (failure.ok() && waited > wait.limits.deadline) failure = TooLong(entry, wait);
    if (!failure.ok()) {
      options_.fail_job(Fail(std::move(failure)));
      AbortAll();
      return;
    }
    if (waited > wait.limits.warning && !std::exchange(is_reported, true)) Report(entry, wait);
    absl::SleepFor(kPollInterval);
  }
}

absl::Status NcclGroups::RegisterLocally(Entry* entry, void* memory, size_t bytes) {
  if (nccl_.CommRegister == nullptr || nccl_.CommDeregister == nullptr) return absl::OkStatus();
  absl::Status failure;
  RONDA_RETURN_IF_ERROR(options_.device->Call("registering memory with NCCL", [&](const ronda_cuda_plugin&) {
    const MutexLock lock(&mu_);
    failure = failure_;
    if (!failure.ok()) return 0;
    void* registration = nullptr;
    const NcclResult result = nccl_.CommRegister(OfCalls(*entry), memory, bytes, &registration);
    if (result != NcclResult::kSuccess) {
      failure = Explain(*entry, OfCalls(*entry), result,
                        "registering memory (NCCL_LOCAL_REGISTER=0 on all ranks does without)");
      return 0;
    }
    entry->registrations.push_back({.memory = memory, .registration = registration});
    return 0;
  }));
  return failure.ok() ? absl::OkStatus() : Fail(std::move(failure));
}

// NCCL's call returns when all ranks have made it. So it is made without holding mu_, like a collective, and aborting
// the parent ends it. If the communicator does not support windows, the call returns at once, and since 2.29 the memory
// is then not registered at all.
absl::Status NcclGroups::RegisterWindow(Entry* entry, void* memory, size_t bytes) {
  void* window = nullptr;
  const absl::string_view setting =
      entry->use == NcclUse::kMemory ? absl::string_view(options_.memory_setting) : "RONDA_NCCL_WINDOWS";
  const std::string doing =
      absl::StrCat("registering memory as a window (", setting, "=0 on rank ", JobRank(0), " does without)");
  const Wait wait = {.doing = doing};
  RONDA_RETURN_IF_ERROR(CallChild(entry, wait, [&](NcclHandle handle) {
    return nccl_.CommWindowRegister(handle, memory, bytes, &window, kNcclSymmetricWindow);
  }));
  if (window == nullptr) return RegisterLocally(entry, memory, bytes);
  const MutexLock lock(&mu_);
  entry->registrations.push_back(
      {.kind = Entry::Registration::Kind::kWindow, .memory = memory, .registration = window});
  return failure_;
}

// NCCL asks the peers that have mapped the memory, and waits for their answers, for ever if a peer is stopped. No other
// call can end this wait without freeing memory that the waiting thread uses. So no lock is held during the wait, and
// the waiting thread owns the communicator. Abort() need not abort it, because it has no work on the device.
bool NcclGroups::Deregister() {
  std::vector<std::shared_ptr<Deregistration>> all;
  std::vector<std::function<void()>> calls;
  {
    const MutexLock lock(&mu_);
    for (const std::unique_ptr<Entry>& entry : entries_) {
      if (entry->handle == nullptr || entry->registrations.empty()) continue;
      all.emplace_back(new Deregistration{
          .rank = self(),
          .device = options_.device,
          .library = options_.library,
          .handle = entry->child != nullptr ? entry->child->Take() : std::exchange(entry->handle, nullptr),
          .entry = entry.get(),
          .child = entry->child,
          .registrations = std::move(entry->registrations)});
      calls.emplace_back([call = all.back()] { call->Run(); });
      entry->registrations.clear();
    }
  }
  if (calls.empty()) return true;
  const bool in_time = CallInTime(SideBySide(std::move(calls)), options_.device->timeout(),
                                  "a peer may be stopped: NCCL's giving back of memory");
  const MutexLock lock(&mu_);
  for (const std::shared_ptr<Deregistration>& each : all) {
    if (!each->Reclaim()) continue;
    if (each->child == nullptr) {
      each->entry->handle = each->handle;
    } else {
      each->child->Put(each->handle);
      each->entry->child = each->child;  // Abort() may have taken the empty child meanwhile
    }
  }
  return in_time;
}

}  // namespace ronda
