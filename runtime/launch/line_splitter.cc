#include "runtime/launch/line_splitter.h"

#include <algorithm>
#include <utility>

namespace ronda {

void LineSplitter::Feed(absl::string_view bytes, Emit emit) {
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    Append(bytes.substr(0, end), emit);
    if (end == absl::string_view::npos) return;
    if (bytes[end] == '\r') {
      Redraw();
    } else {
      EndLine(emit);
    }
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::Finish(Emit emit) {
  if (!visible().empty()) emit(visible());
  *this = LineSplitter();
}

std::optional<absl::string_view> LineSplitter::progress() const {
  if (!redrawn_ || visible().empty()) return std::nullopt;
  return visible();
}

void LineSplitter::Append(absl::string_view text, Emit emit) {
  while (!text.empty()) {
    if (text_.size() == kMaxLine) {
      emit(text_);
      text_.clear();
    }
    const size_t fits = std::min(text.size(), kMaxLine - text_.size());
    text_.append(text.data(), fits);
    text.remove_prefix(fits);
  }
}

void LineSplitter::Redraw() {
  redrawn_ = true;
  if (text_.empty()) return;
  // Blanks are how a progress bar wipes itself out.
  if (text_.find_first_not_of(' ') == std::string::npos) text_.clear();
  previous_ = std::move(text_);
  text_.clear();
}

void LineSplitter::EndLine(Emit emit) {
  emit(visible());
  text_.clear();
  previous_.clear();
  redrawn_ = false;
}

}  // namespace ronda
