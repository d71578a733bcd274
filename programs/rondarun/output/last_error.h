// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_OUTPUT_LAST_ERROR_H_
#define RONDA_PROGRAMS_RONDARUN_OUTPUT_LAST_ERROR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ronda {

// Finds the line of a program's standard error that most probably shows why the program ended.
//
// The result is the last line that is not blank and is no Python warning. If Python has printed an exception, the
// result is the exception's type with the first line of its message. A later line does not replace the exception if it
// belongs to the exception's message or notes, or if libraries print it while the interpreter ends. A program may print
// an exception's traceback and then go on. If the program goes on after an exception, the exception remains the result
// until kMostBehind more lines have been printed, or until C++ ends the process.
//
// Thread-compatible.
class LastError {
 public:
  static constexpr int kMostBehind = 256;

  // Adds the next line, which is given without its newline.
  void Add(absl::string_view line);

  // Returns the line that has been found, or an empty text if no line has been found yet.
  const std::string& text() const { return text_; }

 private:
  // Where the next line stands:
  //   kFrames, kGroupFrames  in the traceback of an exception, or of a group of exceptions
  //   kMessage               after an exception whose message begins on the next line
  //   kSourceOfWarning       after a warning; the line may be the source code that caused it
  enum class State { kOutside, kFrames, kGroupFrames, kMessage, kSourceOfWarning };
  // kSecondary: an exception in a thread or at the end of Python does not replace the earlier exception.
  enum class Weight { kPrimary, kSecondary };

  void AddOutside(absl::string_view line);
  void AddToGroup(absl::string_view line);
  void RecordException(absl::string_view line);
  void RecordFinal(absl::string_view line);
  bool has_exception() const { return lines_behind_ < kMostBehind; }

  std::string text_;
  State state_ = State::kOutside;
  Weight weight_ = Weight::kPrimary;  // of the next traceback
  int lines_behind_ = kMostBehind;    // after the last exception; from kMostBehind on it is ignored
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_OUTPUT_LAST_ERROR_H_
