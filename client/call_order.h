// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_CALL_ORDER_H_
#define RONDA_CLIENT_CALL_ORDER_H_

#include <cstdint>
#include <vector>

namespace ronda {

// Assigns a name, one of kNames numbers, to each unnamed call, so that the n-th unnamed call has the same name on every
// rank.
//
// The name of a call depends only on the signatures of the earlier calls, not on time or on its own signature. Ranks
// that have made the same calls so far therefore give their next call the same name. If the next calls of two ranks
// differ, both requests still have the same name, so Ronda compares them and finds the difference.
//
// A program that repeats its steps gets the same names in each step. CallOrder detects a step of p calls when each of
// the last n calls equals the call p positions earlier, where n is the larger of p and kEvidence. The following calls
// cycle through the same p names until a call differs from the call p positions earlier. While no step is detected,
// calls cycle through all kNames names. If several p fit, CallOrder chooses the smallest. That p may be wrong, because
// a run of equal calls may be part of a longer step. When a step ends early, CallOrder therefore doubles the number of
// repeated calls that it requires to detect the next step.
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

  // Returns the number of calls added so far, which is also the index of the next call.
  uint64_t count() const { return count_; }

  uint64_t NextName() const { return next_name_; }

  // Returns the name of call `call`.
  // REQUIRES: `call` is one of the last kRemembered calls.
  uint64_t NameOf(uint64_t call) const { return names_[call % kRemembered]; }

  // Adds the next call, which has the name NextName(). Calls that can belong to the same collective operation have
  // equal signatures.
  void Add(uint64_t signature);

  // Forgets `call` and all earlier calls, because the ranks' calls up to `call` differed, so the ranks may have
  // detected different steps. The following calls then have the same names on all ranks that call RestartAfter(), no
  // matter when they call it. Of several RestartAfter() calls, the one with the greatest `call` takes effect.
  void RestartAfter(uint64_t call);

 private:
  uint64_t SignatureOf(uint64_t call) const { return signatures_[call % kRemembered]; }
  // Processes `call`, after all earlier calls have been processed, and sets the name of the next call.
  void Follow(uint64_t call);
  // Returns how many consecutive calls, ending with `call`, equal the call `distance` positions earlier. Counts only
  // remembered calls.
  uint64_t RunOf(uint64_t call, uint64_t distance) const;
  // Updates runs_. Returns the length of the step that repeats up to `call`, or 0 if there is none.
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
