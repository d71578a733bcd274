#ifndef RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
#define RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_

#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace ronda {

// Calls all of them at the same time, and returns when all have returned: for what may wait for each other. Where the
// system has no more threads to give, the rest come one after the other.
inline void RunSideBySide(const std::vector<std::function<void()>>& calls) {
  std::vector<std::thread> threads;
  threads.reserve(calls.size());
  for (const std::function<void()>& call : calls) {
    try {
      threads.emplace_back(call);
    } catch (const std::system_error&) {
      call();
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
