#ifndef RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/control/control_plane.h"
#include "runtime/shm/frame_ring.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Control messages through rings in shared memory: one up to the coordinator rank and one back down for each other
// rank. A message, a Wake and a failure all ring the receiver's doorbell, on which Wait sleeps.
//
// A writer that finds a ring full keeps the rest, and the reader rings its bell once there is room; the rest is sent
// from Receive. The coordinator waits there, before it hands out its own broadcasts, until all of it is in the rings.
//
// A worker that polls for the answer to a message gives the coordinator's poller a moment to come for the message, and
// wakes the coordinator's background thread only then.
class ShmControlPlane : public ControlPlane {
 public:
  explicit ShmControlPlane(std::shared_ptr<ShmWorld> world);

  absl::Status SendToCoordinator(absl::string_view payload) override;
  absl::Status Broadcast(absl::string_view payload) override;
  absl::StatusOr<Inbox> Receive() override;
  void Wait(absl::Time deadline) override;
  void Wake() override { bell_->Ring(); }
  bool StartPolling() override;
  bool KeepPolling() override;
  void StopPolling() override;
  void ExpectPolling() override { may_spin_ = false; }
  void CallOff(uint64_t schedule) override { world_->CallOff(schedule); }
  void Fail(const absl::Status& failure) override { world_->Fail(failure); }
  absl::Status failure() const override { return world_->failure(); }
  void Depart() override { world_->Depart(); }

 private:
  // The two rings between this rank and `peer`.
  struct Link {
    RankId peer;
    FrameWriter writer;
    FrameReader reader;
  };

  // Moves what is queued into the ring; whether anything was.
  absl::StatusOr<bool> Move(Link& link);
  absl::Status Flush(Link& link);
  // Rings for a message that the coordinator has had time to take.
  void RingAfterAll();
  absl::Status ReceiveFrom(Link& link, Inbox& inbox);
  // A link whose writer still holds something back, nullptr if there is none.
  absl::StatusOr<Link*> FlushAll();
  // Waits until there is none.
  // Errors: the job's failure; DEADLINE_EXCEEDED naming a rank that does not drain its messages.
  absl::Status FlushAllAndWait();

  // Waits a moment, before the next look. False: there have been too many.
  bool PauseBetweenLooks();
  // Whether Receive has something to return.
  bool HasNews() const;

  // Waits for a ring after `heard` without sleeping, if that has been worth it lately; whether there was one.
  bool Spin(uint32_t heard);
  void LearnFromSleep(absl::Duration slept);

  const std::shared_ptr<ShmWorld> world_;
  Doorbell* const bell_;
  std::vector<Link> links_;  // of the coordinator: one a worker; of a worker: one
  Inbox own_;                // messages of the coordinator to itself
  bool polling_ = false;
  uint32_t seen_ = 0;                      // rings before the last look, while polling
  int idle_looks_ = 0;                     // since something was received
  absl::Duration poll_until_;              // once there have been many of these
  bool gave_up_ = false;                   // the last look was one too many
  std::optional<absl::Duration> ring_at_;  // the time to ring for a message to the coordinator
  // Used by Wait alone.
  bool may_spin_ = true;  // in the next Wait
  uint32_t heard_ = 0;    // rings of the bell up to the last return of Wait
  absl::Duration spin_;   // how long Wait spins before it sleeps
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_
