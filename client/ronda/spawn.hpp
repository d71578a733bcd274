// SPDX-License-Identifier: Apache-2.0

// Runs a job without a launcher: the program starts the ranks as child processes.
#ifndef RONDA_CLIENT_RONDA_SPAWN_HPP_
#define RONDA_CLIENT_RONDA_SPAWN_HPP_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "job.hpp"
#include "status.hpp"

namespace ronda {
inline namespace abi1 {
namespace detail {

// What the parent process knows about a rank's process.
struct SpawnedRank {
  pid_t pid = -1;
  int errors = -1;     // the end of a pipe that carries the text of the rank's error; -1: the rank has ended
  std::string packed;  // received so far: a ronda_status in one byte, then the text of the error
};

// The processes of a spawned job, and the job's first failure.
class SpawnedJob {
 public:
  ~SpawnedJob() {
    signal_all(SIGKILL);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].errors >= 0) static_cast<void>(end(rank));
    }
  }

  // Starts the process of the next rank, which calls `run` and then exits. `run` returns the packed status.
  Status start(const std::function<std::string()>& run) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe");
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
      close(ends[0]);
      close(ends[1]);
      return system_error("fork");
    }
    if (pid == 0) {
      // The kernel kills this rank when the parent process ends, even if the parent crashes.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      for (const SpawnedRank& other : ranks_) close(other.errors);
      close(ends[0]);
      const std::string packed = run();
      std::fflush(nullptr);
      _exit(write_all(ends[1], packed) && packed[0] == RONDA_OK ? 0 : 1);
    }
    close(ends[1]);
    ranks_.push_back({pid, ends[0], {}});
    return {};
  }

  // Waits for all processes, and returns the job's first failure. If the first failure only reports the loss of another
  // rank, a rank's own error replaces it. After a failure, the other processes have kGrace to end. A rank has ended
  // when its pipe is closed. After kGrace this function does not wait for the pipes, because processes that the ranks
  // have forked may hold them open.
  Status wait() {
    while (true) {
      std::vector<pollfd> open;
      std::vector<std::size_t> owners;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].errors < 0) continue;
        open.push_back({ranks_[rank].errors, POLLIN, 0});
        owners.push_back(rank);
      }
      if (open.empty()) return failure_;
      if (poll(open.data(), open.size(), poll_timeout_ms()) == 0) {
        signal_all(SIGKILL);
        for (const std::size_t rank : owners) note(rank, end(rank));
        continue;
      }
      for (std::size_t i = 0; i < open.size(); ++i) {
        if (open[i].revents != 0 && !read_some(ranks_[owners[i]])) note(owners[i], end(owners[i]));
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kGrace{5};

  static Status system_error(const char* call) {
    return Status(RONDA_ERROR_INTERNAL, std::string("spawn: ") + call + ": " + std::strerror(errno));
  }

  static bool write_all(int to, const std::string& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t written = write(to, bytes.data() + done, bytes.size() - done);
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) done += static_cast<std::size_t>(written);
    }
    return true;
  }

  // Reads from the rank's pipe. Returns false at the end of the pipe.
  static bool read_some(SpawnedRank& rank) {
    char block[512];
    const ssize_t bytes = read(rank.errors, block, sizeof(block));
    if (bytes > 0) rank.packed.append(block, static_cast<std::size_t>(bytes));
    return bytes > 0 || (bytes < 0 && errno == EINTR);
  }

  // Returns how many milliseconds poll() should wait for the other ranks, or -1 for no limit.
  int poll_timeout_ms() const {
    if (failure_.ok()) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(failed_ + kGrace - Clock::now());
    return left.count() > 0 ? static_cast<int>(left.count()) + 1 : 0;
  }

  void signal_all(int signal) const {
    for (const SpawnedRank& rank : ranks_) {
      if (rank.errors >= 0) kill(rank.pid, signal);
    }
  }

  // Waits for the process of `rank`, which ends, and returns the process's error, or OK.
  Status end(std::size_t rank) {
    SpawnedRank& ended = ranks_[rank];
    close(ended.errors);
    ended.errors = -1;
    int state = 0;
    pid_t waited = -1;
    do {
      waited = waitpid(ended.pid, &state, 0);
    } while (waited < 0 && errno == EINTR);
    const std::string who = "rank " + std::to_string(rank) + ": ";
    const bool has_reported = !ended.packed.empty();
    if (has_reported && ended.packed[0] != RONDA_OK) {
      return Status(static_cast<ronda_status>(ended.packed[0]), who + ended.packed.substr(1));
    }
    if (waited < 0) {  // the kernel or the program has reaped the process
      if (has_reported) return {};
      return Status(
          RONDA_ERROR_PEER_FAILED,
          who + "ended with an unknown status: do not ignore SIGCHLD, and do not wait for processes of ranks");
    }
    if (WIFSIGNALED(state)) {
      return Status(RONDA_ERROR_PEER_FAILED, who + "ended by signal " + std::to_string(WTERMSIG(state)));
    }
    if (WEXITSTATUS(state) == 0) return {};
    return Status(RONDA_ERROR_PEER_FAILED, who + "ended with exit code " + std::to_string(WEXITSTATUS(state)));
  }

  void note(std::size_t rank, Status status) {
    if (status.ok()) return;
    // A rank's own error replaces errors that only report the loss of another rank.
    const bool is_own = ranks_[rank].packed.empty() || ranks_[rank].packed[0] != RONDA_ERROR_PEER_FAILED;
    if (failure_.ok()) failed_ = Clock::now();
    if (failure_.ok() || (is_own && !is_own_)) {
      failure_ = std::move(status);
      is_own_ = is_own;
    }
  }

  std::vector<SpawnedRank> ranks_;
  Status failure_;
  bool is_own_ = false;
  Clock::time_point failed_;
};

// Runs in the process of rank `rank`: joins the job, calls `body`, and leaves the job. Returns the packed status.
inline std::string run_spawned(int rank, int size, const std::string& job, const std::function<void()>& body,
                               const Options& options) {
  const auto pack = [](ronda_status code, const std::string& what) { return static_cast<char>(code) + what; };
  for (const char* name : {"RONDA_RANK", "RONDA_LOCAL_RANK"}) setenv(name, std::to_string(rank).c_str(), 1);
  for (const char* name : {"RONDA_SIZE", "RONDA_LOCAL_SIZE"}) setenv(name, std::to_string(size).c_str(), 1);
  setenv("RONDA_CROSS_RANK", "0", 1);
  setenv("RONDA_CROSS_SIZE", "1", 1);
  setenv("RONDA_JOB_ID", job.c_str(), 1);
  try {
    init(options);
    body();
    shutdown();
    return pack(RONDA_OK, "");
  } catch (const Error& error) {
    return pack(error.code(), error.what());
  } catch (const std::exception& error) {
    return pack(RONDA_ERROR_INTERNAL, error.what());
  } catch (...) {
    return pack(RONDA_ERROR_INTERNAL, "an exception that is no std::exception");
  }
}

}  // namespace detail

// Forks `size` processes, which are the ranks of a job on this host, and runs `body` once in each of them. Returns once
// all of them have ended. Each process calls init(options) before `body` and shutdown() afterwards, so `body` must not
// call these functions.
//
//   int main() {
//     ronda::spawn(2, [] {
//       std::vector<float> sum(3, ronda::rank());
//       ronda::allreduce(ronda::tensor("sum", sum), {ronda::Op::Sum});
//     });
//   }
//
// Call spawn() before the program starts threads, because fork() copies only the calling thread. The calling process
// must not be in a job. Changes that `body` makes to variables are lost, because `body` runs in other processes. If a
// rank fails, the other ranks end; those still running after 5 s are killed (SIGKILL). If the job fails, the function
// returns the job's first failure, and the text names the rank. If an Error leaves `body`, the result has the code and
// text of that Error. If another exception leaves `body`, the result is RONDA_ERROR_INTERNAL with the text of the
// exception. RONDA_ERROR_PEER_FAILED means that a rank's process was killed by a signal, or exited with a code other
// than 0. Errors of the call itself: RONDA_ERROR_INVALID_ARGUMENT (size), RONDA_ERROR_ALREADY_INITIALIZED,
// RONDA_ERROR_INTERNAL (the system cannot start a process).
inline Status try_spawn(int size, const std::function<void()>& body, const Options& options = {}) {
  if (size < 1) return detail::invalid_argument("spawn: there cannot be " + std::to_string(size) + " ranks");
  if (is_initialized()) {
    return Status(RONDA_ERROR_ALREADY_INITIALIZED, "spawn: this process is a rank of a job: call it before init()");
  }
  std::random_device random;
  std::string id = "spawn-";
  for (int word = 0; word < 4; ++word) id += std::to_string(random());
  std::fflush(nullptr);  // otherwise each process would write the buffered output again
  detail::SpawnedJob job;
  for (int rank = 0; rank < size; ++rank) {
    Status status = job.start([&] { return detail::run_spawned(rank, size, id, body, options); });
    if (!status.ok()) return status;
  }
  return job.wait();
}
inline void spawn(int size, const std::function<void()>& body, const Options& options = {}) {
  try_spawn(size, body, options).throw_if_error();
}

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_SPAWN_HPP_
