// SPDX-License-Identifier: Apache-2.0

// Files of settings, in the part of YAML that they need.
//
//   # a comment
//   compression: fp16
//   gradient_merge_configs:        a map, of one level
//     k_steps: 4
//   sparsity: [0.75, 0.99]
//
// Values are plain, or in quotes. Other parts of YAML are refused, with the line.
#ifndef RONDA_CLIENT_RONDA_TRAINING_SETTINGS_FILE_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_SETTINGS_FILE_HPP_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../status.hpp"

namespace ronda {
inline namespace v1 {
namespace detail {

// A value in a file of settings. read() and choose() refuse values that they do not understand, with the file, the line
// and the key.
class SettingsValue {
 public:
  SettingsValue(std::string where, std::string key, std::string text)
      : where_(std::move(where)), key_(std::move(key)), text_(std::move(text)) {}

  const std::string& key() const { return key_; }

  Status read(bool* target) const {
    return choose({{"true", true}, {"false", false}, {"yes", true}, {"no", false}, {"on", true}, {"off", false}},
                  target);
  }

  template <class Number>
  std::enable_if_t<std::is_arithmetic_v<Number>, Status> read(Number* target) const {
    const std::optional<Number> number = number_of<Number>(text_);
    if (!number) return misread(std::is_integral_v<Number> ? "a whole number" : "a number");
    *target = *number;
    return {};
  }

  // A list in brackets of at least one number, or a single number.
  Status read(std::vector<double>* target) const {
    std::string_view rest = text_;
    if (rest.size() >= 2 && rest.front() == '[' && rest.back() == ']') rest = rest.substr(1, rest.size() - 2);
    target->clear();
    while (true) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::optional<double> number = number_of<double>(std::string(trimmed(rest.substr(0, comma))));
      if (!number) return misread("a number, or numbers as in [0.75, 0.99]");
      target->push_back(*number);
      if (comma == rest.size()) return {};
      rest.remove_prefix(comma + 1);
    }
  }

  template <class Choice>
  Status choose(std::initializer_list<std::pair<const char*, Choice>> choices, Choice* target) const {
    std::string words;
    for (const auto& [word, choice] : choices) {
      if (text_ == word) {
        *target = choice;
        return {};
      }
      words += (words.empty() ? "" : ", ") + std::string(word);
    }
    return misread("one of " + words);
  }

  Status refuse(const std::string& problem) const { return invalid_argument(where_ + ": " + key_ + " " + problem); }

  static std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
  }

 private:
  template <class Number>
  static std::optional<Number> number_of(const std::string& text) {
    if (text.empty()) return std::nullopt;
    char* end = nullptr;
    errno = 0;
    if constexpr (std::is_integral_v<Number>) {
      const long long number = std::strtoll(text.c_str(), &end, 10);
      const auto narrow = static_cast<Number>(number);
      const bool fits = static_cast<long long>(narrow) == number && (std::is_signed_v<Number> || number >= 0);
      return *end == '\0' && errno == 0 && fits ? std::optional(narrow) : std::nullopt;
    } else {
      const double number = std::strtod(text.c_str(), &end);
      return *end == '\0' && errno == 0 ? std::optional(static_cast<Number>(number)) : std::nullopt;
    }
  }

  Status misread(const std::string& wanted) const { return refuse("takes " + wanted + "; got '" + text_ + "'"); }

  std::string where_, key_, text_;
};

// Reads a file's text into its values, in their order. The key of a value in a map is the map's key, a dot, and its own
// key. Keys without a value are left out.
class SettingsReader {
 public:
  // `name` is the name of the file, for errors.
  SettingsReader(std::string name, std::string_view text) : name_(std::move(name)), rest_(text) {}

  // Errors: RONDA_ERROR_INVALID_ARGUMENT, with the file and the line.
  Result<std::vector<SettingsValue>> read() {
    while (!rest_.empty()) {
      ++line_;
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      Status status = read_line(rest_.substr(0, end));
      if (!status.ok()) return status;
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
    }
    return std::move(values_);
  }

 private:
  std::string where() const { return name_ + ":" + std::to_string(line_); }

  Status error(const std::string& problem) const { return invalid_argument(where() + ": " + problem); }

  Status read_line(std::string_view line) {
    line = without_comment(line);
    const std::string_view content = SettingsValue::trimmed(line);
    if (content.empty() || (content == "---" && keys_.empty())) return {};
    const std::size_t indent = line.find_first_not_of(' ');
    if (line[indent] == '\t') return error("a tab: YAML indents with spaces");
    const std::size_t colon = content.find(':');
    const bool is_pair = colon != std::string_view::npos && colon > 0 &&
                         (colon + 1 == content.size() || content[colon + 1] == ' ' || content[colon + 1] == '\t');
    if (!is_pair) return error("a line is a setting and its value, for example compression: fp16");
    std::string key(SettingsValue::trimmed(content.substr(0, colon)));
    std::replace(key.begin(), key.end(), '-', '_');
    Status status = enter(indent, &key);
    if (!status.ok()) return status;
    if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) return error(key + " is there twice");
    keys_.push_back(key);
    return add(key, SettingsValue::trimmed(content.substr(colon + 1)));
  }

  // Puts the map's name before an indented key.
  Status enter(std::size_t indent, std::string* key) {
    if (indent == 0) {
      map_.clear();
      indent_ = 0;
      return {};
    }
    if (map_.empty() || (indent_ != 0 && indent != indent_)) {
      return error(*key + " is indented, but is in no map: maps have one level, and begin with a line such as " +
                   "gradient_merge_configs:");
    }
    indent_ = indent;
    *key = map_ + "." + *key;
    return {};
  }

  Status add(const std::string& key, std::string_view value) {
    if (value.empty()) {
      if (indent_ == 0) map_ = key;
      return {};
    }
    if (indent_ == 0) map_.clear();
    const bool is_quoted = value.front() == '"' || value.front() == '\'';
    if (is_quoted) {
      if (value.size() < 2 || value.back() != value.front()) return error(key + ": the quote does not end");
      value = value.substr(1, value.size() - 2);
    } else if (std::string_view("{&*!|>%@`").find(value.front()) != std::string_view::npos) {
      return error(key + ": only plain values and lists of numbers in brackets are understood");
    }
    values_.emplace_back(where(), key, std::string(value));
    return {};
  }

  // A comment starts at the beginning of the line, or after a space.
  static std::string_view without_comment(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return line.substr(0, i);
    }
    return line;
  }

  const std::string name_;
  std::string_view rest_;
  int line_ = 0;
  std::string map_;         // the open map
  std::size_t indent_ = 0;  // of the map's keys; 0: the map has no keys yet
  std::vector<std::string> keys_;
  std::vector<SettingsValue> values_;
};

// The known name that is nearest to `wrong` by Levenshtein's distance, if any is near.
inline std::string nearest_name(std::string_view wrong, const std::vector<std::string_view>& known) {
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, wrong.size() / 3) + 1;
  for (const std::string_view name : known) {
    std::vector<std::size_t> row(name.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i + 1);
      for (std::size_t j = 0; j < name.size(); ++j) {
        const std::size_t changed = diagonal + (wrong[i] == name[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() >= least) continue;
    least = row.back();
    nearest = name;
  }
  return std::string(nearest);
}

}  // namespace detail
}  // namespace v1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_SETTINGS_FILE_HPP_
