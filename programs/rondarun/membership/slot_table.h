// SPDX-License-Identifier: Apache-2.0

// The hosts of an elastic job and their slots. The table knows which hosts are listed, which slots have a member, and
// which hosts and slots are cooling down.
#ifndef RONDA_PROGRAMS_RONDARUN_MEMBERSHIP_SLOT_TABLE_H_
#define RONDA_PROGRAMS_RONDARUN_MEMBERSHIP_SLOT_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// Returns the milliseconds from `now` to `time`: 0 if `time` has passed, and -1 if it is infinite.
inline int64_t MillisecondsUntil(absl::Time time, absl::Time now) {
  if (time == absl::InfiniteFuture()) return -1;
  return time <= now ? 0 : absl::ToInt64Milliseconds(time - now);
}

// A slot is room for one member on a host. The table never forgets a host, so a host that is listed again still has the
// history of its slots.
//
// Thread-compatible, and copyable.
class SlotTable {
 public:
  // A host, and the maximum number of members that it takes.
  struct Host {
    std::string name;
    int slots = 0;
  };

  // The address and port at which the members of an epoch connect to each other if they run on several hosts.
  struct MeetingPoint {
    std::string address;
    int port = 0;
  };

  // Each consecutive failure doubles the cooldown, up to a maximum.
  struct Cooldowns {
    absl::Duration min_slot = absl::Milliseconds(100);
    absl::Duration max_slot = absl::Seconds(1);
    absl::Duration min_host = absl::Seconds(1);
    absl::Duration max_host = absl::Seconds(60);
  };

  struct SlotId {
    size_t host = 0;  // in the order in which they were listed first
    int slot = 0;     // of the host, from 0
  };

  // Which slots may get a member: only free slots, or also those whose member has left for good.
  enum class Choice { kFree, kFreeOrLeft };

  explicit SlotTable(const Cooldowns& cooldowns) : cooldowns_(cooldowns) {}

  // Sets the list of all hosts. The list contains each host once. A host that was not in the previous list starts
  // without failures or a cooldown, although its slots may still be cooling down.
  void List(const std::vector<Host>& hosts);
  bool IsListed(const SlotId& id) const { return id.slot < hosts_[id.host].listed; }

  std::optional<size_t> Find(absl::string_view name) const;
  const std::string& name(size_t host) const { return hosts_[host].name; }
  int listed_slots(size_t host) const { return hosts_[host].listed; }
  const MeetingPoint& meeting_point(size_t host) const { return hosts_[host].meeting_point; }
  void set_meeting_point(size_t host, MeetingPoint point) { hosts_[host].meeting_point = std::move(point); }

  // These functions set how a slot is used.
  void Occupy(const SlotId& id) { At(id).use = Use::kOccupied; }
  void Free(const SlotId& id) { At(id).use = Use::kFree; }
  void Leave(const SlotId& id) { At(id).use = Use::kLeft; }  // its member does not want to be replaced

  // OnDeath, OnFailureToStart and OnLoss record a failure. OnStart resets the number of consecutive failures.
  void OnDeath(const SlotId& id, absl::Time now);
  void OnFailureToStart(size_t host, absl::Time now);
  void OnLoss(size_t host, absl::Time now);
  void OnStart(size_t host) { hosts_[host].failures = 0; }
  // Returns whether several members in a row have failed to start on every listed host. Returns false if no host is
  // listed.
  bool DoAllFail() const;

  // Returns the first slot that can get a member now. Free slots come before slots whose member has left.
  std::optional<SlotId> FindUsable(Choice choice, absl::Time now) const;
  // Returns when FindUsable() will next find a slot if nothing else happens before. Returns the infinite future if it
  // never finds one.
  absl::Time UsableFrom(Choice choice) const;

  // These functions serve JobMembership's fingerprint. `slots` are the fingerprints of the host's slots and their
  // members, in any order.
  uint64_t SlotFingerprint(const SlotId& id, absl::Time now) const;
  uint64_t HostFingerprint(size_t host, std::vector<uint64_t> slots, absl::Time now) const;
  size_t host_count() const { return hosts_.size(); }
  int slot_count(size_t host) const { return static_cast<int>(hosts_[host].slots.size()); }
  std::string Describe(absl::Time now) const;

 private:
  enum class Use { kFree, kOccupied, kLeft };

  // Delays the next use of a slot or host.
  struct Rest {
    absl::Time usable = absl::InfinitePast();  // from this time on
    int times = 0;
  };

  struct Slot {
    Use use = Use::kFree;
    Rest rest;
  };

  struct KnownHost {
    std::string name;
    std::vector<Slot> slots;  // only the first `listed` ones are used
    int listed = 0;
    int failures = 0;  // in a row: losses of the host, and members that ended there before they joined
    Rest rest;
    MeetingPoint meeting_point;
  };

  static void CoolDown(Rest* rest, absl::Duration least, absl::Duration most, absl::Time now);
  Slot& At(const SlotId& id) { return hosts_[id.host].slots[static_cast<size_t>(id.slot)]; }

  // Calls visit(id, time) for each listed slot whose use is `use`, where `time` is when the slot can get a member.
  template <typename Visit>
  void ForEachListed(Use use, const Visit& visit) const {
    for (size_t host = 0; host < hosts_.size(); ++host) {
      for (int slot = 0; slot < hosts_[host].listed; ++slot) {
        const Slot& of = hosts_[host].slots[static_cast<size_t>(slot)];
        if (of.use == use) visit(SlotId{host, slot}, std::max(hosts_[host].rest.usable, of.rest.usable));
      }
    }
  }

  Cooldowns cooldowns_;
  std::vector<KnownHost> hosts_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_MEMBERSHIP_SLOT_TABLE_H_
