// The hosts of an elastic job and their slots: which of them are listed, which have a member, which cool down.
#ifndef RONDA_RUNTIME_ELASTIC_SLOT_TABLE_H_
#define RONDA_RUNTIME_ELASTIC_SLOT_TABLE_H_

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

// 0 if `time` is over, -1 for never.
inline int64_t MillisecondsUntil(absl::Time time, absl::Time now) {
  if (time == absl::InfiniteFuture()) return -1;
  return time <= now ? 0 : absl::ToInt64Milliseconds(time - now);
}

// A slot is a place on a host for one member. Hosts are never forgotten: one that is listed again is the same host.
//
// Thread-compatible, and copyable.
class SlotTable {
 public:
  // A host, and how many members it takes.
  struct Host {
    std::string name;
    int slots = 0;
  };

  // Where the members of an epoch meet, if they are on several hosts.
  struct MeetingPoint {
    std::string address;
    int port = 0;
  };

  // A cooldown doubles with each failure in a row, up to the longest.
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

  // Which slots may get a member.
  enum class Choice { kFree, kFreeOrLeft };

  explicit SlotTable(const Cooldowns& cooldowns) : cooldowns_(cooldowns) {}

  // These are all hosts from now on, each once. A host that was not listed gets a fresh start.
  void List(const std::vector<Host>& hosts);
  bool IsListed(const SlotId& id) const { return id.slot < hosts_[id.host].listed; }

  std::optional<size_t> Find(absl::string_view name) const;
  const std::string& name(size_t host) const { return hosts_[host].name; }
  int listed_slots(size_t host) const { return hosts_[host].listed; }
  const MeetingPoint& meeting_point(size_t host) const { return hosts_[host].meeting_point; }
  void set_meeting_point(size_t host, MeetingPoint point) { hosts_[host].meeting_point = std::move(point); }

  // A slot's member.
  void Take(const SlotId& id) { At(id).use = Use::kTaken; }
  void Free(const SlotId& id) { At(id).use = Use::kFree; }
  void Leave(const SlotId& id) { At(id).use = Use::kLeft; }  // it does not want to be replaced

  // Failures, and their end.
  void OnDeath(const SlotId& id, absl::Time now);
  void OnFailureToStart(size_t host, absl::Time now);
  void OnLoss(size_t host, absl::Time now);
  void OnStart(size_t host) { hosts_[host].failures = 0; }
  // Members in a row have failed to start on each host that is listed; false if none is.
  bool DoAllFail() const;

  // The first slot that may get a member now. A slot that was left comes after all that are free.
  std::optional<SlotId> FindUsable(Choice choice, absl::Time now) const;
  // When there is one, as far as time goes; the infinite future if never.
  absl::Time UsableFrom(Choice choice) const;

  // For JobMembership's fingerprint. `slots` are those of the host's slots, with their members, in any order.
  uint64_t SlotFingerprint(const SlotId& id, absl::Time now) const;
  uint64_t HostFingerprint(size_t host, std::vector<uint64_t> slots, absl::Time now) const;
  size_t host_count() const { return hosts_.size(); }
  int slot_count(size_t host) const { return static_cast<int>(hosts_[host].slots.size()); }
  std::string Describe(absl::Time now) const;

 private:
  enum class Use { kFree, kTaken, kLeft };

  // Time that passes before something is used again.
  struct Rest {
    absl::Time usable = absl::InfinitePast();  // not before
    int times = 0;
  };

  struct Slot {
    Use use = Use::kFree;
    Rest rest;
  };

  struct KnownHost {
    std::string name;
    std::vector<Slot> slots;  // of these, as many as are listed are used
    int listed = 0;
    int failures = 0;  // in a row: losses of the host, and ends of members there before they joined
    Rest rest;
    MeetingPoint meeting_point;
  };

  static void CoolDown(Rest* rest, absl::Duration least, absl::Duration most, absl::Time now);
  Slot& At(const SlotId& id) { return hosts_[id.host].slots[static_cast<size_t>(id.slot)]; }

  // Calls visit(id, time from which it is usable) for the listed slots in such use.
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

#endif  // RONDA_RUNTIME_ELASTIC_SLOT_TABLE_H_
