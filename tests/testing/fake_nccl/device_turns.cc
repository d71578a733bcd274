// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/device_turns.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "tests/testing/fake_nccl/reports.h"

namespace ronda::testing {
namespace {

// How long a device that prefers the last launch waits for a later one.
constexpr absl::Duration kPreference = absl::Milliseconds(20);
// Longer waits for the device are reported.
constexpr absl::Duration kLongWait = absl::Seconds(3);
constexpr absl::Duration kPollInterval = absl::Microseconds(200);

// The order of launches on all devices of this process.
struct Orders {
  // The number of launches, by communicator.
  using Counts = std::map<std::string, int>;
  // A launch on the first device that made it: the launches on that device before it, and how many devices still have
  // to make it.
  struct First {
    int device;
    Counts before;
    int left;
  };

  Mutex mu;
  std::map<std::string, std::set<int>> devices ABSL_GUARDED_BY(mu);  // by communicator
  std::map<std::string, int> ranks ABSL_GUARDED_BY(mu);              // by communicator
  std::map<int, Counts> launched ABSL_GUARDED_BY(mu);                // by device
  std::map<std::pair<std::string, int>, First> firsts ABSL_GUARDED_BY(mu);

  // Returns a communicator that `device` and the first device share, and that they had launched a different number of
  // times before this launch. Returns "" if there is none.
  std::string DifferenceLocked(int device, const Counts& own, const First& first) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto count = [](const Counts& counts, const std::string& name) {
      const auto found = counts.find(name);
      return found == counts.end() ? 0 : found->second;
    };
    for (const auto& [name, members] : devices) {
      const bool is_shared = members.count(device) != 0 && members.count(first.device) != 0;
      if (is_shared && count(own, name) != count(first.before, name)) return name;
    }
    return "";
  }
};

Orders& TheOrders() {
  static auto* const orders = new Orders();
  return *orders;
}

// Records a launch. Returns an error if it is out of order, and otherwise "".
std::string RecordLaunch(int device, const std::string& communicator) {
  Orders& orders = TheOrders();
  const MutexLock lock(&orders.mu);
  Orders::Counts& own = orders.launched[device];
  const auto [first, is_first] =
      orders.firsts.try_emplace({communicator, own[communicator]},
                                Orders::First{.device = device, .before = own, .left = orders.ranks[communicator]});
  const std::string other = orders.DifferenceLocked(device, own, first->second);
  const int first_device = first->second.device;
  if (--first->second.left == 0) orders.firsts.erase(first);
  ++own[communicator];
  if (other.empty()) return "";
  return absl::StrCat("communicators ", communicator, " and ", other, " are launched in different orders on devices ",
                      first_device, " and ", device);
}

}  // namespace

DeviceTurns& DeviceTurns::Of(int device) {
  static auto* const mu = new Mutex();
  static auto* const devices = new std::map<int, std::unique_ptr<DeviceTurns>>();
  const MutexLock lock(mu);
  std::unique_ptr<DeviceTurns>& turns = (*devices)[device];
  if (turns == nullptr) turns.reset(new DeviceTurns(device));
  return *turns;
}

DeviceTurns::Place DeviceTurns::Add(std::string communicator, void* stream, Group group) {
  std::string misorder = group == Group::kOfAllRanks ? RecordLaunch(device_, communicator) : "";
  // Reports the error now, because the launch may never begin: a launch before it may be waiting for another device.
  if (!misorder.empty()) Report(misorder);
  const MutexLock lock(&mu_);
  return launches_.insert(
      launches_.end(),
      Launch{.communicator = std::move(communicator), .stream = stream, .misorder = std::move(misorder)});
}

void DeviceTurns::Join(const std::string& communicator, int ranks) {
  Orders& orders = TheOrders();
  const MutexLock lock(&orders.mu);
  orders.devices[communicator].insert(device_);
  orders.ranks[communicator] = ranks;
}

bool DeviceTurns::HasRival(const Launch& launch) const {
  return std::ranges::any_of(launches_,
                             [&](const Launch& other) { return other.stream != launch.stream && !other.has_begun; });
}

void DeviceTurns::Leave(const std::string& communicator) {
  Orders& orders = TheOrders();
  const MutexLock lock(&orders.mu);
  orders.devices.erase(communicator);
}

void DeviceTurns::Begin(Place place, const std::atomic<bool>& gives_up) {
  if (!place->misorder.empty()) return HangUntil(gives_up, place->misorder);
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
    absl::SleepFor(kPollInterval);
  }
}

void DeviceTurns::End(Place place) {
  const MutexLock lock(&mu_);
  if (running_ == &*place) running_ = nullptr;
  launches_.erase(place);
}

}  // namespace ronda::testing
