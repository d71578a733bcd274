// The command line of a subcommand of ronda-bench.
#ifndef RONDA_BENCH_ARGUMENTS_H_
#define RONDA_BENCH_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda::bench {

// The options of one subcommand: what they are called, where their values go, and the text of --help. Every option
// takes a value, as "--name value" or "--name=value", but for switches, --help and -h. A repeated option replaces the
// earlier one. What is bound must outlive the Flags, and holds the default until it is set.
//
//   CollectivesOptions options;
//   Flags flags("collectives", "Times collective operations.");
//   flags.Add({.names = {"-b", "--min-bytes"}, .value = "SIZE", .help = "Smallest message."},
//   Size(&options.min_bytes)); absl::Status status = flags.Parse(words);
//
// Thread-compatible.
class Flags {
 public:
  // Reads the value that the user gave. Errors: INVALID_ARGUMENT with what is expected ("a size such as 64KiB").
  using Reader = std::function<absl::Status(const std::string& value)>;

  struct Flag {
    std::vector<std::string> names;  // "-b", "--min-bytes"
    std::string value;               // what --help calls the value; empty: a switch, whose reader gets ""
    std::string help;                // may have several lines
  };

  Flags(std::string command, std::string description)
      : command_(std::move(command)), description_(std::move(description)) {}

  void Add(Flag flag, Reader reader);

  // Errors: INVALID_ARGUMENT that quotes the culprit and says what is right. Words that are no options are refused
  // unless AllowOperands was called.
  absl::Status Parse(const std::vector<std::string>& words);

  // Words that are no options go to `operands`; --help calls them `name`.
  void AllowOperands(std::string name, std::vector<std::string>* operands);

  bool help_requested() const { return help_requested_; }
  std::string Usage() const;
  std::string Help() const;

 private:
  struct Entry {
    Flag flag;
    Reader reader;
  };

  const Entry* Find(absl::string_view name) const;
  absl::Status ReadOption(const std::vector<std::string>& words, size_t* next);
  absl::Status ReadOperand(const std::string& word);

  const std::string command_;
  const std::string description_;
  std::vector<Entry> entries_;
  std::string operand_name_;
  std::vector<std::string>* operands_ = nullptr;
  bool help_requested_ = false;
};

// "4", "64KiB", "256M" (K, M and G are powers of 1,024, with or without iB or B). Errors: INVALID_ARGUMENT.
absl::StatusOr<size_t> ParseSize(absl::string_view text);

// "64 KiB", "1.5 MiB", "4 B": three digits at most where that is exact enough to read.
std::string FormatSize(size_t bytes);

// The words of a comma-separated list. Errors: INVALID_ARGUMENT if one is empty.
absl::StatusOr<std::vector<std::string>> SplitList(absl::string_view text);

struct IntegerRange {
  int64_t min = 0;
  int64_t max = int64_t{1} << 30;
};

// Readers, each into the variable it is given.
Flags::Reader Size(size_t* value);
Flags::Reader SizeList(std::vector<size_t>* values);
Flags::Reader Integer(int* value, IntegerRange range);
Flags::Reader IntegerList(std::vector<int>* values, IntegerRange range);
Flags::Reader Number(double* value);            // finite and not negative
Flags::Reader Duration(absl::Duration* value);  // "0", "100ms"; not negative
Flags::Reader DurationList(std::vector<absl::Duration>* values);
Flags::Reader Text(std::string* value);
Flags::Reader TextList(std::vector<std::string>* values);
// One of `choices`, or a list of them; "all" in a list stands for all of them.
Flags::Reader Choice(std::string* value, std::vector<std::string> choices);
Flags::Reader ChoiceList(std::vector<std::string>* values, std::vector<std::string> choices);
// A switch: sets `value` to true.
Flags::Reader Switch(bool* value);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ARGUMENTS_H_
