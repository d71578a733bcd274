// The effects that options have, by kind, so that the tables of options say only what is particular to each.
#ifndef RONDA_RUNTIME_LAUNCH_OPTION_EFFECTS_H_
#define RONDA_RUNTIME_LAUNCH_OPTION_EFFECTS_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/launch/option.h"
#include "runtime/launch/option_value.h"

namespace ronda {

// Words that an option takes, in any case, and what each means. The first is the example in errors.
template <typename Meaning>
using WordForm = std::vector<std::pair<absl::string_view, Meaning>>;

// INVALID_ARGUMENT that lists `words`.
absl::Status NotAmong(const OptionUse& use, const std::vector<absl::string_view>& words);

bool IsWord(absl::string_view text, absl::string_view word);

template <typename Meaning>
absl::StatusOr<Meaning> ParseWord(const OptionUse& use, const WordForm<Meaning>& form) {
  std::vector<absl::string_view> words;
  for (const auto& [word, meaning] : form) {
    if (IsWord(use.value, word)) return meaning;
    words.push_back(word);
  }
  return NotAmong(use, words);
}

// Environment variables of the ranks.

// Sets `variable` to `value`.
OptionEffect SetVariable(absl::string_view variable, absl::string_view value);
// Sets `variable` to the number in the option's value, with `unit` behind it.
OptionEffect SetNumber(absl::string_view variable, NumberForm form, absl::string_view unit);
// Sets `variable` to so many times `unit`; `zero`: what 0 means, where that is not nothing.
OptionEffect SetDuration(absl::string_view variable, NumberForm form, absl::Duration unit,
                         std::optional<absl::Duration> zero);
OptionEffect SetText(absl::string_view variable, TextForm form);
OptionEffect SetWord(absl::string_view variable, WordForm<absl::string_view> form);

// Places in the draft: `place` is called with the draft, and returns a reference to what is to be assigned.

template <typename Place, typename Value>
OptionEffect Store(Place place, Value value) {
  return [place, value](const OptionUse&, CommandLineDraft* draft) {
    place(draft) = value;
    return absl::OkStatus();
  };
}

template <typename Place>
OptionEffect StoreInteger(Place place, NumberForm form) {
  return [place, form](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(place(draft), ParseInteger(use, form));
    return absl::OkStatus();
  };
}

template <typename Place>
OptionEffect StoreText(Place place, TextForm form) {
  return [place, form](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(place(draft), ParseText(use, form));
    return absl::OkStatus();
  };
}

template <typename Place, typename Meaning>
OptionEffect StoreWord(Place place, WordForm<Meaning> form) {
  return [place, form](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(place(draft), ParseWord(use, form));
    return absl::OkStatus();
  };
}

// For options that are understood and change nothing.

// What the option asks for is the case anyway.
OptionEffect AlreadySo();
// Notes that the option has no effect, and why: `reason` continues "--x has no effect: ".
OptionEffect WithoutEffect(absl::string_view reason);
// The same for an option whose value must be right nevertheless.
OptionEffect WithoutEffect(absl::string_view reason, NumberForm form);

// Refuses the option: `instead` says what to do, and continues "--x is not for rondarun: ".
OptionEffect Refuse(absl::string_view instead);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTION_EFFECTS_H_
