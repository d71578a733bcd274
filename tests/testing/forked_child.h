#ifndef RONDA_TESTS_TESTING_FORKED_CHILD_H_
#define RONDA_TESTS_TESTING_FORKED_CHILD_H_

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>

namespace ronda::testing {

// A copy of this process that runs one function and ends; what the function returns comes back through a pipe. For
// tests of what happens when a process dies.
//
// To be made while the test has a single thread. The destructor kills what still runs.
class ForkedChild {
 public:
  // Lets the function tell its parent that it has come so far (see WaitUntilReady).
  using SayReady = std::function<void()>;

  explicit ForkedChild(const std::function<std::string(const SayReady& say_ready)>& body);
  ~ForkedChild();
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;

  pid_t pid() const { return pid_; }

  // Returns once the child has called say_ready, or has ended.
  void WaitUntilReady();

  void Kill(int signal) const { kill(pid_, signal); }

  // What `body` returned; empty if the child was killed.
  std::string Result();

 private:
  pid_t pid_ = -1;
  int ready_pipe_ = -1;
  int result_pipe_ = -1;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FORKED_CHILD_H_
