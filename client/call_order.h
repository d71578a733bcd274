#ifndef RONDA_CLIENT_CALL_ORDER_H_
#define RONDA_CLIENT_CALL_ORDER_H_

#include <cstdint>
#include <vector>

namespace ronda {

// Gives each call that has no name of its own one of kNames numbers as its name, so that the n-th call of a rank has
// the same name as the n-th call of every other rank.
//
// The name of a call is a function of the signatures of the calls before it, and of nothing else: not of time, nor of
// its own signature. So ranks that have made the same calls name their next call alike, and if they differ in that call
// their requests meet under one name and are told apart.
//
// A program that repeats its steps gets the same names in each step. A step of p calls repeats if each of the last
// calls, p of them and at least kEvidence, is like the one p before: then p names are used over and over, until a call
// is unlike the one p before. Otherwise all names are used in turn. Of several p the smallest is taken, which may be
// wrong: a run of equal calls is part of a longer step. So whenever a step has ended early, the next takes twice the
// evidence.
//
// Thread-compatible.
class CallOrder {
 public:
  static constexpr uint64_t kMostInStep = 1024;             // calls of a step that is found
  static constexpr uint64_t kRemembered = 2 * kMostInStep;  // the last calls
  static constexpr uint64_t kNames = 2 * kMostInStep;
  static constexpr uint64_t kEvidence = 8;
  static constexpr uint64_t kMostEvidence = 256;

  CallOrder() : signatures_(kRemembered), names_(kRemembered), runs_(kMostInStep + 1) {}

  // How many calls have been added: the number of the next one.
  uint64_t count() const { return count_; }

  uint64_t NextName() const { return next_name_; }

  // The name that call `call` was given.
  // REQUIRES: it is one of the last kRemembered.
  uint64_t NameOf(uint64_t call) const { return names_[call % kRemembered]; }

  // The next call, which takes NextName(), is made. Calls that may meet have equal signatures.
  void Add(uint64_t signature);

  // Ranks have differed in call `call`, and so perhaps in what they would take for a step. Names the calls to come as
  // if nothing were known of it and those before, which is the same on every rank that does so, at whatever time. Of
  // several such calls the last one counts.
  void RestartAfter(uint64_t call);

 private:
  uint64_t SignatureOf(uint64_t call) const { return signatures_[call % kRemembered]; }
  // Looks at the last call but those after it, and names the next.
  void Follow(uint64_t call);
  // How many calls up to this one are each equal to the one `distance` before, as far as that is remembered.
  uint64_t RunOf(uint64_t call, uint64_t distance) const;
  // Updates runs_, and returns the length of the step that repeats up to this call; 0 if there is none.
  uint64_t FindStep(uint64_t call);

  std::vector<uint64_t> signatures_;  // of the last calls, by their number
  std::vector<uint64_t> names_;       // the same
  std::vector<uint64_t> runs_;        // RunOf the last call, by distance; of the call before it while a step repeats
  bool runs_hold_ = true;             // false: a step has repeated since
  uint64_t count_ = 0;
  uint64_t first_ = 0;      // calls before this one are forgotten
  uint64_t next_name_ = 0;  // of call count_
  uint64_t step_ = 0;       // calls of the step that repeats; 0: none does
  uint64_t step_name_ = 0;  // of the first call of the step
  uint64_t position_ = 0;   // of call count_ in the step
  uint64_t lasted_ = 0;     // calls since the step was found
  uint64_t evidence_ = kEvidence;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_CALL_ORDER_H_
