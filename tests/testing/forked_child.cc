#include "tests/testing/forked_child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace ronda::testing {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    read_end = ends[0];
    write_end = ends[1];
  }
  int read_end;
  int write_end;
};

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  return text;
}

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) std::abort();
    done += static_cast<size_t>(n);
  }
}

}  // namespace

ForkedChild::ForkedChild(const std::function<std::string(const SayReady&)>& body) {
  const Pipe ready;
  const Pipe result;
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    const std::string text = body([&] { close(ready.write_end); });
    WriteAll(result.write_end, text);
    // Not exit(): what the parent has registered to run at exit is the parent's.
    _exit(0);
  }
  close(ready.write_end);
  close(result.write_end);
  ready_pipe_ = ready.read_end;
  result_pipe_ = result.read_end;
}

ForkedChild::~ForkedChild() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(ready_pipe_);
  close(result_pipe_);
}

void ForkedChild::WaitUntilReady() { ReadAll(ready_pipe_); }

std::string ForkedChild::Result() { return ReadAll(result_pipe_); }

}  // namespace ronda::testing
