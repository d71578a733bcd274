#ifndef RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_

#include <cstdint>
#include <memory>
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

  absl::Status Flush(Link& link);
  absl::Status ReceiveFrom(Link& link, Inbox& inbox);
  // A link whose writer still holds something back, nullptr if there is none.
  absl::StatusOr<Link*> FlushAll();
  // Waits until there is none.
  // Errors: the job's failure; DEADLINE_EXCEEDED naming a rank that does not drain its messages.
  absl::Status FlushAllAndWait();

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
  uint32_t seen_ = 0;          // rings before the last look, while polling
  int idle_looks_ = 0;         // since something was received
  absl::Duration poll_until_;  // once there have been many of these
  // Used by Wait alone.
  uint32_t heard_ = 0;   // rings of the bell up to the last return of Wait
  absl::Duration spin_;  // how long Wait spins before it sleeps
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_
