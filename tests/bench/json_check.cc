#include "tests/bench/json_check.h"

#include <cctype>
#include <cstring>

namespace ronda::bench {
namespace {

// A recursive-descent reader that keeps nothing. Each Read* returns whether it has read what it is named after.
class Checker {
 public:
  explicit Checker(const std::string& text) : text_(text) {}

  std::string Check() {
    SkipBlanks();
    const bool is_valid = ReadValue() && AtEnd();
    return is_valid ? "" : "not JSON at byte " + std::to_string(next_) + ": " + text_.substr(next_, 40);
  }

 private:
  bool AtEnd() {
    SkipBlanks();
    return next_ == text_.size();
  }

  char Peek() const { return next_ < text_.size() ? text_[next_] : '\0'; }

  void SkipBlanks() {
    while (next_ < text_.size() && std::strchr(" \t\r\n", text_[next_]) != nullptr) ++next_;
  }

  bool ReadMark(char mark) {
    SkipBlanks();
    if (Peek() != mark) return false;
    ++next_;
    SkipBlanks();
    return true;
  }

  bool ReadWord(const char* word) {
    if (text_.compare(next_, std::strlen(word), word) != 0) return false;
    next_ += std::strlen(word);
    return true;
  }

  bool ReadValue() {
    if (Peek() == '{') return ReadObject();
    if (Peek() == '[') return ReadArray();
    if (Peek() == '"') return ReadString();
    return ReadWord("null") || ReadWord("true") || ReadWord("false") || ReadNumber();
  }

  bool ReadObject() {
    ReadMark('{');
    if (ReadMark('}')) return true;
    do {
      if (!ReadString() || !ReadMark(':') || !ReadValue()) return false;
    } while (ReadMark(','));
    return ReadMark('}');
  }

  bool ReadArray() {
    ReadMark('[');
    if (ReadMark(']')) return true;
    do {
      if (!ReadValue()) return false;
    } while (ReadMark(','));
    return ReadMark(']');
  }

  bool ReadString() {
    if (Peek() != '"') return false;
    for (++next_; next_ < text_.size(); ++next_) {
      const char c = text_[next_];
      if (c == '"') return ++next_, true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\') ++next_;
    }
    return false;
  }

  bool ReadDigits() {
    const size_t begin = next_;
    while (std::isdigit(static_cast<unsigned char>(Peek())) != 0) ++next_;
    return next_ > begin;
  }

  bool ReadNumber() {
    if (Peek() == '-') ++next_;
    if (!ReadDigits()) return false;
    if (Peek() == '.' && (++next_, !ReadDigits())) return false;
    if (Peek() != 'e' && Peek() != 'E') return true;
    ++next_;
    if (Peek() == '+' || Peek() == '-') ++next_;
    return ReadDigits();
  }

  const std::string& text_;
  size_t next_ = 0;
};

}  // namespace

std::string FindJsonError(const std::string& text) { return Checker(text).Check(); }

}  // namespace ronda::bench
