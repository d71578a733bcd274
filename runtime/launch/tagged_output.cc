#include "runtime/launch/tagged_output.h"

#include <array>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace ronda {
namespace {

constexpr std::array<absl::string_view, 3> kEnds = {"]<stdout>:", "]<stderr>:", "]<stddiag>:"};

// Longer ones are no mark.
constexpr size_t kMaxDigits = 10;

struct Mark {
  enum class Kind { kNone, kIncomplete, kMark } kind = Kind::kNone;
  RankId rank = 0;
  size_t length = 0;
};

constexpr Mark kNoMark = {};
constexpr Mark kIncompleteMark = {.kind = Mark::Kind::kIncomplete};

size_t CountDigits(absl::string_view text) {
  size_t count = 0;
  while (count < text.size() && count <= kMaxDigits && absl::ascii_isdigit(text[count])) ++count;
  return count;
}

// Reads one of kEnds, behind a rank's number that ends at `begin`.
Mark ReadEnd(absl::string_view text, size_t begin, RankId rank) {
  const absl::string_view rest = text.substr(begin);
  for (const absl::string_view end : kEnds) {
    if (absl::StartsWith(rest, end)) return {Mark::Kind::kMark, rank, begin + end.size()};
    if (absl::StartsWith(end, rest)) return kIncompleteMark;
  }
  return kNoMark;
}

// Reads a mark at the start of `text`, which begins with "[".
Mark ReadMark(absl::string_view text) {
  size_t at = 1;
  const size_t job_digits = CountDigits(text.substr(at));
  at += job_digits;
  if (at == text.size() && job_digits <= kMaxDigits) return kIncompleteMark;
  if (job_digits == 0 || job_digits > kMaxDigits || text[at] != ',') return kNoMark;
  const size_t rank_begin = ++at;
  const size_t rank_digits = CountDigits(text.substr(rank_begin));
  at += rank_digits;
  if (at == text.size() && rank_digits <= kMaxDigits) return kIncompleteMark;
  RankId rank = 0;
  if (!absl::SimpleAtoi(text.substr(rank_begin, rank_digits), &rank)) return kNoMark;
  return ReadEnd(text, at, rank);
}

}  // namespace

void TaggedOutput::Feed(absl::string_view bytes, Emit emit) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  size_t text_begin = 0;
  for (size_t at = bytes.find('['); at != absl::string_view::npos; at = bytes.find('[', at)) {
    const Mark mark = ReadMark(bytes.substr(at));
    if (mark.kind == Mark::Kind::kNone || mark.rank >= rank_count_) {
      ++at;
      continue;
    }
    EmitText(bytes.substr(text_begin, at - text_begin), emit);
    if (mark.kind == Mark::Kind::kIncomplete) {
      held_ = std::string(bytes.substr(at));
      return;
    }
    source_ = mark.rank;
    at += mark.length;
    text_begin = at;
  }
  EmitText(bytes.substr(text_begin), emit);
}

void TaggedOutput::Finish(Emit emit) {
  EmitText(held_, emit);
  held_.clear();
}

// A rank's text ends with its line, as its next line has a mark again.
void TaggedOutput::EmitText(absl::string_view text, Emit emit) {
  if (text.empty()) return;
  const size_t newline = source_.has_value() ? text.find('\n') : absl::string_view::npos;
  if (newline == absl::string_view::npos) {
    emit(source_, text);
    return;
  }
  emit(source_, text.substr(0, newline + 1));
  source_.reset();
  EmitText(text.substr(newline + 1), emit);
}

}  // namespace ronda
