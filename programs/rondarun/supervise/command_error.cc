// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/command_error.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "programs/options/shell_words.h"
#include "runtime/base/environment.h"

namespace ronda {
namespace {

// The kernel reads only this many bytes of a script's first line.
constexpr int kMaxFirstLine = 256;

bool IsFile(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsDirectory(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool IsExecutable(const std::string& path) { return IsFile(path) && access(path.c_str(), X_OK) == 0; }

bool IsPath(const std::string& command) { return absl::StrContains(command, '/'); }

// Returns the path of the program that exec would run, or "" if exec would not find one.
std::string FindProgram(const std::string& command) {
  if (IsPath(command)) return IsExecutable(command) ? command : "";
  const std::string folders = ProcessEnvironment()("PATH").value_or("");
  for (const absl::string_view folder : absl::StrSplit(folders, ':')) {
    const std::string path = folder.empty() ? command : absl::StrCat(folder, "/", command);
    if (IsExecutable(path)) return path;
  }
  return "";
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string bytes(kMaxFirstLine, '\0');
  file.read(bytes.data(), kMaxFirstLine);
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes.substr(0, bytes.find('\n'));
}

bool IsPython(const std::string& path) {
  const std::string line = FirstLine(path);
  const bool says_so = absl::StartsWith(line, "#!") && absl::StrContains(line, "python");
  return says_so || absl::EndsWith(path, ".py");
}

// Returns a text such as "; write: rondarun -np 2 python3 train.py --lr 3".
std::string Instead(const CommandWords& words, const std::vector<std::string>& program) {
  std::vector<std::string> command = program;
  command.insert(command.end(), words.command.begin() + 1, words.command.end());
  return absl::StrCat("; write: ", words.before, " ", ShellQuote(command));
}

std::string WithPython(const CommandWords& words) { return Instead(words, {"python3", words.command.front()}); }

// Returns the error for a script that exists although its interpreter does not.
absl::Status NoInterpreter(const std::string& script) {
  const std::string line = FirstLine(script);
  const std::string interpreter = absl::StartsWith(line, "#!") ? absl::StrCat(": ", line.substr(2)) : "";
  return absl::NotFoundError(absl::StrCat("command not found: ", script,
                                          " (the file exists, but not the interpreter it asks for", interpreter, ")"));
}

absl::Status NotFound(const CommandWords& words) {
  const std::string& command = words.command.front();
  if (IsPath(command) && IsFile(command)) return NoInterpreter(command);
  if (const std::string script = FindProgram(command); !script.empty()) return NoInterpreter(script);
  std::string text = absl::StrCat("command not found: ", command);
  if (IsPath(command)) return absl::NotFoundError(text);
  if (!IsFile(command)) return absl::NotFoundError(absl::StrCat(text, " (in no directory of PATH)"));
  const std::string program = IsPython(command) ? WithPython(words) : Instead(words, {absl::StrCat("./", command)});
  return absl::NotFoundError(absl::StrCat(text, " (the file in this directory is not in PATH)", program));
}

absl::Status NotExecutable(const CommandWords& words) {
  const std::string& command = words.command.front();
  std::string remedy = absl::StrCat("; make it so: chmod +x ", ShellQuote(command));
  if (IsPython(command)) remedy = WithPython(words);
  if (IsDirectory(command)) remedy = " (it is a directory)";
  return absl::PermissionDeniedError(absl::StrCat("command is not executable: ", command, remedy));
}

}  // namespace

absl::Status CheckScript(const CommandWords& words) {
  const std::string path = FindProgram(words.command.front());
  if (path.empty()) return absl::OkStatus();
  const std::string line = FirstLine(path);
  absl::string_view visible = line;
  const bool has_return = absl::ConsumeSuffix(&visible, "\r");
  if (absl::StartsWith(line, "#!") && has_return) {
    return absl::NotFoundError(absl::StrCat(
        "command not found: ", path, " (its first line, ", visible,
        ", ends with a carriage return, which editors do not show, and no interpreter has such a name); remove the "
        "carriage returns: sed -i 's/\\r$//' ",
        ShellQuote(path)));
  }
  if (absl::EndsWith(path, ".py") && !absl::StartsWith(line, "#!")) {
    return absl::PermissionDeniedError(absl::StrCat("command is not executable: ", words.command.front(),
                                                    " (it does not begin with #! and the name of an interpreter)",
                                                    WithPython(words)));
  }
  return absl::OkStatus();
}

absl::Status CommandError(const CommandWords& words, int error) {
  if (error == ENOENT || error == ENOTDIR) return NotFound(words);
  if (error == EACCES || error == ENOEXEC) return NotExecutable(words);
  return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", words.command.front()));
}

}  // namespace ronda
