// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/monitor/timeline/trace_reader.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"

namespace ronda::testing {
namespace {

// Reads JSON from left to right, and supports only the parts of JSON that traces use. Every function returns false if
// the text is not what it reads.
class Reader {
 public:
  explicit Reader(absl::string_view text) : rest_(text) {}

  bool Document(std::vector<TraceEvent>* events) {
    if (!Token("[")) return false;
    do {
      if (!Event(&events->emplace_back())) return false;
    } while (Token(","));
    return Token("]") && AtEnd();
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool Token(absl::string_view token) {
    SkipSpace();
    return absl::ConsumePrefix(&rest_, token);
  }
  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }

  bool String(std::string* text) {
    if (!Token("\"")) return false;
    while (!rest_.empty() && rest_[0] != '"') {
      if (!Character(text)) return false;
    }
    return absl::ConsumePrefix(&rest_, "\"");
  }

  bool Character(std::string* text) {
    if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
    if (!absl::ConsumePrefix(&rest_, "\\")) {
      text->push_back(rest_[0]);
      rest_.remove_prefix(1);
      return true;
    }
    if (absl::ConsumePrefix(&rest_, "u00")) {
      int code = 0;
      if (rest_.size() < 2 || !absl::SimpleHexAtoi(rest_.substr(0, 2), &code)) return false;
      text->push_back(static_cast<char>(code));
      rest_.remove_prefix(2);
      return true;
    }
    if (rest_.empty() || (rest_[0] != '"' && rest_[0] != '\\')) return false;
    text->push_back(rest_[0]);
    rest_.remove_prefix(1);
    return true;
  }

  bool Number(std::string* text) {
    SkipSpace();
    while (!rest_.empty() && (std::isdigit(rest_[0]) != 0 || rest_[0] == '.')) {
      text->push_back(rest_[0]);
      rest_.remove_prefix(1);
    }
    double value = 0;
    return absl::SimpleAtod(*text, &value);
  }

  bool Scalar(std::string* text) {
    SkipSpace();
    return absl::StartsWith(rest_, "\"") ? String(text) : Number(text);
  }

  // Reads the members of an object. The value of "args" is also an object, whose members go to `args`.
  bool Members(std::map<std::string, std::string>* members, std::map<std::string, std::string>* args) {
    if (!Token("{")) return false;
    do {
      std::string name;
      if (!String(&name) || !Token(":")) return false;
      if (name == "args" && args != nullptr) {
        if (!Members(args, nullptr)) return false;
      } else if (!Scalar(&(*members)[name])) {
        return false;
      }
    } while (Token(","));
    return Token("}");
  }

  bool Event(TraceEvent* event) {
    std::map<std::string, std::string> members;
    if (!Members(&members, &event->args)) return false;
    event->ph = members["ph"];
    event->name = members["name"];
    const bool has_time = event->ph != "M";
    return absl::SimpleAtoi(members["pid"], &event->pid) && absl::SimpleAtoi(members["tid"], &event->tid) &&
           (!has_time || absl::SimpleAtod(members["ts"], &event->ts)) &&
           (event->ph != "X" || absl::SimpleAtod(members["dur"], &event->dur));
  }

  absl::string_view rest_;
};

// The rounding error, in microseconds, of a time that is stored as a double, if the host has been up for some days.
constexpr double kRounding = 0.0005;

bool Apart(const TraceEvent& a, const TraceEvent& b) {
  return a.end() <= b.ts + kRounding || b.end() <= a.ts + kRounding;
}
bool Within(const TraceEvent& a, const TraceEvent& b) {
  return b.ts <= a.ts + kRounding && a.end() <= b.end() + kRounding;
}

}  // namespace

void PrintTo(const TraceEvent& event, std::ostream* out) {
  *out << event.ph << " '" << event.name << "' in row " << event.tid << " at " << event.ts << " for " << event.dur;
}

std::optional<std::vector<TraceEvent>> ReadTrace(absl::string_view json) {
  std::vector<TraceEvent> events;
  if (!Reader(json).Document(&events)) return std::nullopt;
  return events;
}

std::optional<std::vector<TraceEvent>> ReadTraceFile(const std::string& path) {
  return ReadTrace(ReadFile(path).value_or(""));
}

std::vector<TraceEvent> Named(const std::vector<TraceEvent>& events, absl::string_view name) {
  std::vector<TraceEvent> named;
  std::copy_if(events.begin(), events.end(), std::back_inserter(named),
               [&](const TraceEvent& event) { return event.name == name; });
  return named;
}

int RowOf(const std::vector<TraceEvent>& events, absl::string_view name) {
  for (const TraceEvent& event : Named(events, "thread_name")) {
    if (event.args.at("name") == name) return event.tid;
  }
  return -1;
}

std::string Overlap(const std::vector<TraceEvent>& events) {
  for (const TraceEvent& a : events) {
    for (const TraceEvent& b : events) {
      if (a.ph != "X" || b.ph != "X" || a.tid != b.tid || a.pid != b.pid) continue;
      if (Apart(a, b) || Within(a, b) || Within(b, a)) continue;
      return absl::StrCat(a.name, " (", a.ts, " + ", a.dur, ") and ", b.name, " (", b.ts, " + ", b.dur, ")");
    }
  }
  return "";
}

}  // namespace ronda::testing
