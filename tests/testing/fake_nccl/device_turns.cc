#include "tests/testing/fake_nccl/device_turns.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "tests/testing/fake_nccl/reports.h"

namespace ronda::testing {
namespace {

// How long a device that prefers the last waits for it.
constexpr absl::Duration kPreference = absl::Milliseconds(20);
// Longer waits for the device are reported.
constexpr absl::Duration kLongWait = absl::Seconds(3);
constexpr absl::Duration kNap = absl::Microseconds(200);

}  // namespace

DeviceTurns& DeviceTurns::Of(int device) {
  static auto* const mu = new Mutex();
  static auto* const devices = new std::map<int, std::unique_ptr<DeviceTurns>>();
  const MutexLock lock(mu);
  std::unique_ptr<DeviceTurns>& turns = (*devices)[device];
  if (turns == nullptr) turns.reset(new DeviceTurns(device));
  return *turns;
}

DeviceTurns::Place DeviceTurns::Add(std::string communicator, void* stream) {
  const MutexLock lock(&mu_);
  return launches_.insert(launches_.end(), Launch{.communicator = std::move(communicator), .stream = stream});
}

bool DeviceTurns::HasRival(const Launch& launch) const {
  return std::ranges::any_of(launches_,
                             [&](const Launch& other) { return other.stream != launch.stream && !other.has_begun; });
}

void DeviceTurns::Begin(Place place, const std::atomic<bool>& gives_up) {
  const absl::Duration begin = MonotonicTime();
  bool is_reported = false;
  while (!gives_up.load()) {
    std::string holder;
    {
      const MutexLock lock(&mu_);
      const bool prefers_other = device_ % 2 == 1 && HasRival(*place) && MonotonicTime() - begin < kPreference;
      if (running_ == nullptr && !prefers_other) {
        running_ = &*place;
        place->has_begun = true;
        return;
      }
      if (running_ != nullptr) holder = running_->communicator;
    }
    if (!holder.empty() && MonotonicTime() - begin > kLongWait && !std::exchange(is_reported, true)) {
      Report(absl::StrCat("nothing orders communicator ", place->communicator, " and communicator ", holder,
                          " on device ", device_, ", and the one waits for the other"));
    }
    absl::SleepFor(kNap);
  }
}

void DeviceTurns::End(Place place) {
  const MutexLock lock(&mu_);
  if (running_ == &*place) running_ = nullptr;
  launches_.erase(place);
}

}  // namespace ronda::testing
