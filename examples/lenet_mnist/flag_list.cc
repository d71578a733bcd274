// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/flag_list.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <system_error>

namespace lenet {
namespace {

constexpr int kNameWidth = 19;  // the width of the column of names in the help

template <class Number>
std::string TextOf(Number number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

template <class Number>
bool ParseNumber(const std::string& text, Number least, Number most, Number* number) {
  Number parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  // The negated comparison also rejects NaN.
  if (error != std::errc() || end != text.data() + text.size() || !(parsed >= least && parsed <= most)) return false;
  *number = parsed;
  return true;
}

const Flag& FindFlag(const std::vector<Flag>& flags, const std::string& name) {
  const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& any) { return any.name == name; });
  if (flag == flags.end()) throw UsageError("there is no flag \"" + name + "\"; --help lists those there are");
  return *flag;
}

}  // namespace

template <class Number>
Flag NumberFlag(const std::string& name, Number least, Number most, Number* number, const std::string& help,
                const std::string& initially) {
  return {name, "a number from " + TextOf(least) + " to " + TextOf(most),
          help + " (default: " + (initially.empty() ? TextOf(*number) : initially) + ")",
          [=](const std::string& value) { return ParseNumber(value, least, most, number); }};
}
template Flag NumberFlag(const std::string&, std::int64_t, std::int64_t, std::int64_t*, const std::string&,
                         const std::string&);
template Flag NumberFlag(const std::string&, std::uint64_t, std::uint64_t, std::uint64_t*, const std::string&,
                         const std::string&);
template Flag NumberFlag(const std::string&, double, double, double*, const std::string&, const std::string&);

Flag TextFlag(const std::string& name, const std::string& takes, std::string* text, const std::string& help) {
  return {name, takes, help, [=](const std::string& value) {
            *text = value;
            return !value.empty();
          }};
}

bool ReadFlags(const std::vector<Flag>& flags, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") return false;
    const std::size_t equals = arguments[i].find('=');
    const Flag& flag = FindFlag(flags, arguments[i].substr(0, equals));
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      throw UsageError(flag.name + " takes " + flag.takes + ", but nothing follows it");
    }
    const std::string value = equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1);
    if (!flag.set(value)) throw UsageError(flag.name + " takes " + flag.takes + ", not \"" + value + "\"");
  }
  return true;
}

std::string HelpText(const std::string& head, const std::vector<Flag>& flags) {
  std::ostringstream text;
  text << head << std::left;
  for (const Flag& flag : flags) text << "  " << std::setw(kNameWidth) << flag.name << flag.help << "\n";
  text << "  " << std::setw(kNameWidth) << "--help"
       << "print this\n";
  return text.str();
}

}  // namespace lenet
