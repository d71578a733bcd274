#include "runtime/launch/option_effects.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {

absl::Status NotAmong(const OptionUse& use, const std::vector<absl::string_view>& words) {
  return BadValue(use, absl::StrCat(absl::StrJoin(words, ", "), ", for example ", use.name, " ", words.front()));
}

bool IsWord(absl::string_view text, absl::string_view word) { return absl::EqualsIgnoreCase(text, word); }

OptionEffect SetVariable(absl::string_view variable, absl::string_view value) {
  return [variable, value](const OptionUse&, CommandLineDraft* draft) {
    draft->options.settings[std::string(variable)] = std::string(value);
    return absl::OkStatus();
  };
}

OptionEffect SetNumber(absl::string_view variable, NumberForm form, absl::string_view unit) {
  return [variable, form, unit](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const int number, ParseInteger(use, form));
    draft->options.settings[std::string(variable)] = absl::StrCat(number, unit);
    return absl::OkStatus();
  };
}

OptionEffect SetDuration(absl::string_view variable, NumberForm form, absl::Duration unit,
                         std::optional<absl::Duration> zero) {
  return [variable, form, unit, zero](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const double number, ParseNumber(use, form));
    const absl::Duration duration = number == 0 && zero ? *zero : number * unit;
    draft->options.settings[std::string(variable)] = absl::FormatDuration(duration);
    return absl::OkStatus();
  };
}

OptionEffect SetText(absl::string_view variable, TextForm form) {
  return [variable, form](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(draft->options.settings[std::string(variable)], ParseText(use, form));
    return absl::OkStatus();
  };
}

OptionEffect SetWord(absl::string_view variable, WordForm<absl::string_view> form) {
  return [variable, form = std::move(form)](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const absl::string_view meaning, ParseWord(use, form));
    draft->options.settings[std::string(variable)] = std::string(meaning);
    return absl::OkStatus();
  };
}

OptionEffect AlreadySo() {
  return [](const OptionUse&, CommandLineDraft*) { return absl::OkStatus(); };
}

OptionEffect WithoutEffect(absl::string_view reason) {
  return [reason](const OptionUse& use, CommandLineDraft* draft) {
    draft->options.notes.push_back(absl::StrCat(use.name, " has no effect: ", reason));
    return absl::OkStatus();
  };
}

OptionEffect WithoutEffect(absl::string_view reason, NumberForm form) {
  return [form, note = WithoutEffect(reason)](const OptionUse& use, CommandLineDraft* draft) -> absl::Status {
    RONDA_RETURN_IF_ERROR(ParseNumber(use, form).status());
    return note(use, draft);
  };
}

OptionEffect Refuse(absl::string_view instead) {
  return [instead](const OptionUse& use, CommandLineDraft*) {
    return absl::InvalidArgumentError(absl::StrCat(use.name, " is not for rondarun: ", instead));
  };
}

}  // namespace ronda
