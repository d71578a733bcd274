#ifndef RONDA_RUNTIME_LAUNCH_OUTPUT_LAST_ERROR_H_
#define RONDA_RUNTIME_LAUNCH_OUTPUT_LAST_ERROR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ronda {

// The line of a program's standard error that most likely says why the program ended.
//
// That is the last line that is neither blank nor a warning of Python's, unless Python has printed an exception: then
// it is the exception's type with the first line of its message. The rest of the message, its notes, and what libraries
// print while the interpreter ends come behind that line, and do not replace it. An exception of which the program has
// printed the traceback, and then gone on, counts until kMostBehind more lines have come, or C++ ends the process.
//
// Thread-compatible.
class LastError {
 public:
  static constexpr int kMostBehind = 256;

  // Takes the next line, without its end.
  void Add(absl::string_view line);

  // Empty: there was no such line.
  const std::string& text() const { return text_; }

 private:
  // kFrames, kGroupFrames: in a traceback, of an exception or a group of them. kMessage: behind an exception whose
  // message begins on the next line. kSourceOfWarning: the line behind a warning may be the source code that caused it.
  enum class State { kOutside, kFrames, kGroupFrames, kMessage, kSourceOfWarning };
  // kSecondary: an exception that Python meets in a thread or at the end does not replace the one before.
  enum class Weight { kPrimary, kSecondary };

  void AddOutside(absl::string_view line);
  void AddToGroup(absl::string_view line);
  void TakeException(absl::string_view line);
  void TakeFinal(absl::string_view line);
  bool has_exception() const { return lines_behind_ < kMostBehind; }

  std::string text_;
  State state_ = State::kOutside;
  Weight weight_ = Weight::kPrimary;  // of the next traceback
  int lines_behind_ = kMostBehind;    // the last exception; no fewer than kMostBehind: it does not count
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OUTPUT_LAST_ERROR_H_
