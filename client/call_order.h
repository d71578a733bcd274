// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_CALL_ORDER_H_
#define RONDA_CLIENT_CALL_ORDER_H_

#include <cstdint>
#include <vector>

namespace ronda {

// Gives names to calls that have no name. Each call gets one of kNames numbers. The n-th call of a rank gets the same
// number as the n-th call of every other rank.
//
// The name of a call depends only on the signatures of the earlier calls, not on time or on its own signature. Ranks
// that have made the same calls therefore give their next call the same name. If the next calls of two ranks differ,
// the two requests still have one name, so Ronda compares the requests and finds the difference.
//
// A program that repeats its steps gets the same names in each step. CallOrder finds a step of p calls if each of the
// last n calls equals the call p positions earlier, where n is the larger of p and kEvidence. Calls then get the same p
// names again and again, until a call differs from the call p positions earlier. Without a step, calls get all kNames
// names in turn. If several p fit, CallOrder chooses the smallest. The smallest p may be wrong, because a run of equal
// calls may be part of a longer step. After a step has ended early, CallOrder therefore requires twice as many repeated
// calls before it finds the next step.
//
// Thread-compatible.
class CallOrder {
 public:
  static constexpr uint64_t kMostInStep = 1024;             // calls of the longest step that is found
  static constexpr uint64_t kRemembered = 2 * kMostInStep;  // the most recent calls
  static constexpr uint64_t kNames = 2 * kMostInStep;
  static constexpr uint64_t kEvidence = 8;
  static constexpr uint64_t kMostEvidence = 256;

  CallOrder() : signatures_(kRemembered), names_(kRemembered), runs_(kMostInStep + 1) {}

  // Returns how many calls have been added, which is the number of the next call.
  uint64_t count() const { return count_; }

  uint64_t NextName() const { return next_name_; }

  // Returns the name of call `call`.
  // REQUIRES: `call` is one of the last kRemembered calls.
  uint64_t NameOf(uint64_t call) const { return names_[call % kRemembered]; }

  // Adds the next call, which has the name NextName(). Calls that may be one collective operation have equal
  // signatures.
  void Add(uint64_t signature);

  // Forgets `call` and all earlier calls, because the ranks have made different calls up to `call`, and may have found
  // different steps. The names of the following calls are then equal on all ranks that call RestartAfter(), however
  // late they call it. If RestartAfter() is called several times, the greatest `call` counts.
  void RestartAfter(uint64_t call);

 private:
  uint64_t SignatureOf(uint64_t call) const { return signatures_[call % kRemembered]; }
  // Processes `call`, which is the last call so far, and sets the name of the next call.
  void Follow(uint64_t call);
  // Returns how many calls in a row, up to `call`, equal the call `distance` positions earlier. Counts only calls that
  // are remembered.
  uint64_t RunOf(uint64_t call, uint64_t distance) const;
  // Updates runs_. Returns the length of the step that repeats up to `call`, or 0 if no step repeats.
  uint64_t FindStep(uint64_t call);

  std::vector<uint64_t> signatures_;  // of the last calls, by the number of the call
  std::vector<uint64_t> names_;       // of the last calls, by the number of the call
  std::vector<uint64_t> runs_;        // RunOf the last call, by distance
  bool runs_hold_ = true;             // false: a step has repeated since runs_ was updated
  uint64_t count_ = 0;
  uint64_t first_ = 0;      // calls before this one are forgotten
  uint64_t next_name_ = 0;  // of call count_
  uint64_t step_ = 0;       // calls of the step that repeats; 0: no step repeats
  uint64_t step_name_ = 0;  // of the step's first call
  uint64_t position_ = 0;   // of call count_ in the step
  uint64_t lasted_ = 0;     // calls since the step was found
  uint64_t evidence_ = kEvidence;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_CALL_ORDER_H_
