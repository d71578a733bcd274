// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/membership/slot_table.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// A host cools down if this number of its members end in a row before they join.
constexpr int kMaxStartFailures = 3;

}  // namespace

void SlotTable::List(const std::vector<Host>& hosts) {
  std::map<std::string, int> before;
  for (KnownHost& host : hosts_) before[host.name] = std::exchange(host.listed, 0);
  for (const Host& host : hosts) {
    const std::optional<size_t> found = Find(host.name);
    KnownHost& known = found.has_value() ? hosts_[*found] : hosts_.emplace_back(KnownHost{.name = host.name});
    known.listed = host.slots;
    known.slots.resize(std::max(known.slots.size(), static_cast<size_t>(host.slots)));
    const int listed_before = before[host.name];
    if (listed_before == 0) {
      known.failures = 0;
      known.rest = {};
    }
    for (int slot = listed_before; slot < host.slots; ++slot) {
      Slot& of = known.slots[static_cast<size_t>(slot)];
      if (of.use == Use::kLeft) of.use = Use::kFree;
    }
  }
}

std::optional<size_t> SlotTable::Find(absl::string_view name) const {
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const auto& host) { return host.name == name; });
  if (found == hosts_.end()) return std::nullopt;
  return static_cast<size_t>(found - hosts_.begin());
}

void SlotTable::OnDeath(const SlotId& id, absl::Time now) {
  CoolDown(&At(id).rest, cooldowns_.min_slot, cooldowns_.max_slot, now);
}

void SlotTable::OnFailureToStart(size_t host, absl::Time now) {
  if (++hosts_[host].failures < kMaxStartFailures) return;
  CoolDown(&hosts_[host].rest, cooldowns_.min_host, cooldowns_.max_host, now);
}

void SlotTable::OnLoss(size_t host, absl::Time now) {
  ++hosts_[host].failures;
  CoolDown(&hosts_[host].rest, cooldowns_.min_host, cooldowns_.max_host, now);
}

void SlotTable::CoolDown(Rest* rest, absl::Duration least, absl::Duration most, absl::Time now) {
  const auto times = static_cast<double>(int64_t{1} << std::min(rest->times++, 30));
  rest->usable = now + std::min(most, least * times);
}

bool SlotTable::DoAllFail() const {
  const auto is_listed = [](const KnownHost& host) { return host.listed > 0; };
  return std::any_of(hosts_.begin(), hosts_.end(), is_listed) &&
         std::all_of(hosts_.begin(), hosts_.end(),
                     [&](const KnownHost& host) { return !is_listed(host) || host.failures >= kMaxStartFailures; });
}

std::optional<SlotTable::SlotId> SlotTable::FindUsable(Choice choice, absl::Time now) const {
  std::optional<SlotId> first;
  const auto take_first = [&](const SlotId& id, absl::Time usable) {
    if (!first.has_value() && usable <= now) first = id;
  };
  ForEachListed(Use::kFree, take_first);
  if (choice == Choice::kFreeOrLeft) ForEachListed(Use::kLeft, take_first);
  return first;
}

absl::Time SlotTable::UsableFrom(Choice choice) const {
  absl::Time earliest = absl::InfiniteFuture();
  const auto take_earliest = [&](const SlotId&, absl::Time usable) { earliest = std::min(earliest, usable); };
  ForEachListed(Use::kFree, take_earliest);
  if (choice == Choice::kFreeOrLeft) ForEachListed(Use::kLeft, take_earliest);
  return earliest;
}

uint64_t SlotTable::SlotFingerprint(const SlotId& id, absl::Time now) const {
  const Slot& slot = hosts_[id.host].slots[static_cast<size_t>(id.slot)];
  // If all cooldowns have the same length, the number of cooldowns makes no difference.
  const int times = cooldowns_.min_slot == cooldowns_.max_slot ? 0 : slot.rest.times;
  return absl::HashOf(static_cast<int>(slot.use), MillisecondsUntil(slot.rest.usable, now), times, IsListed(id));
}

uint64_t SlotTable::HostFingerprint(size_t host, std::vector<uint64_t> slots, absl::Time now) const {
  std::sort(slots.begin(), slots.end());
  const KnownHost& of = hosts_[host];
  const int times = cooldowns_.min_host == cooldowns_.max_host ? 0 : of.rest.times;
  return absl::HashOf(slots, of.listed, std::min(of.failures, kMaxStartFailures),
                      MillisecondsUntil(of.rest.usable, now), times);
}

std::string SlotTable::Describe(absl::Time now) const {
  std::string text;
  for (const KnownHost& host : hosts_) {
    absl::StrAppend(&text, "; host ", host.name, " failures ", host.failures, " rest ", host.rest.times, " usable ",
                    MillisecondsUntil(host.rest.usable, now));
    for (int slot = 0; slot < host.listed; ++slot) {
      const Slot& of = host.slots[static_cast<size_t>(slot)];
      absl::StrAppend(&text, "; slot ", static_cast<int>(of.use), " deaths ", of.rest.times, " usable ",
                      MillisecondsUntil(of.rest.usable, now));
    }
  }
  return text;
}

}  // namespace ronda
