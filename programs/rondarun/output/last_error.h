// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_OUTPUT_LAST_ERROR_H_
#define RONDA_PROGRAMS_RONDARUN_OUTPUT_LAST_ERROR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ronda {

// Finds the line on a program's stderr that most likely shows why the program ended.
//
// This is the last line that is neither blank nor a Python warning. If Python has printed an exception, it is the type
// of the exception with the first line of the message. A later line does not replace the exception if it belongs to the
// exception's message or notes, or if libraries print it while the interpreter shuts down. A program may print the
// traceback of an exception and then continue. In that case, the exception remains the result until kMostBehind more
// lines have been printed, or until C++ terminates the process.
//
// Thread-compatible.
class LastError {
 public:
  static constexpr int kMostBehind = 256;

  // Adds the next line, without its newline.
  void Add(absl::string_view line);

  // Returns the line found so far, or "" if there is none.
  const std::string& text() const { return text_; }

 private:
  // Where the next line stands:
  //   kFrames, kGroupFrames  in the traceback of an exception, or of a group of exceptions
  //   kMessage               after an exception whose message starts on this line
  //   kSourceOfWarning       after a warning; this line may be the source code that caused it
  enum class State { kOutside, kFrames, kGroupFrames, kMessage, kSourceOfWarning };
  // kSecondary: an exception in a thread, or while Python shuts down, does not replace an earlier exception.
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
