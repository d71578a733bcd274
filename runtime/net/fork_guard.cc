// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/fork_guard.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "runtime/base/logging.h"
#include "runtime/base/mutex.h"

namespace ronda {
namespace {

std::array<uint8_t, 16> InIPv6sForm(const in_addr& address) {
  std::array<uint8_t, 16> bytes = {};
  bytes[10] = bytes[11] = 0xff;
  std::memcpy(&bytes[12], &address, sizeof(address));
  return bytes;
}

// Returns this process's open descriptors. The result also contains the descriptor through which this function reads
// /proc/self/fd, which is closed on return.
std::vector<int> OpenDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  std::vector<int> descriptors;
  while (const dirent* const entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd)) descriptors.push_back(fd);
  }
  return descriptors;
}

}  // namespace

// The endpoints of all ForkGuards. A pthread_atfork handler takes the lock before fork(), so that no other thread holds
// it in the child.
class GuardedEndpoints {
 public:
  using Key = ForkGuard::Key;

  static GuardedEndpoints& Instance() {
    static GuardedEndpoints* const instance = new GuardedEndpoints;  // never destroyed: a process may fork as it ends
    return *instance;
  }

  void Add(const Key& key) {
    MutexLock lock(&mu_);
    keys_.insert(key);
  }

  void Remove(const Key& key) {
    MutexLock lock(&mu_);
    keys_.erase(keys_.find(key));
  }

 private:
  using AddressReader = int (*)(int fd, sockaddr* address, socklen_t* size);

  GuardedEndpoints() {
    RONDA_CHECK(pthread_atfork([]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Instance().mu_.Lock(); },
                               []() ABSL_NO_THREAD_SAFETY_ANALYSIS { Instance().mu_.Unlock(); },
                               []() ABSL_NO_THREAD_SAFETY_ANALYSIS { Instance().CloseInChild(); }) == 0);
  }

  // Returns the address that `read` finds for the TCP socket `fd`, or nullopt if `fd` is not a TCP socket or has no
  // address.
  static std::optional<Key> KeyOf(int fd, AddressReader read) {
    sockaddr_storage storage = {};
    socklen_t size = sizeof(storage);
    if (read(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
    if (storage.ss_family == AF_INET) {
      const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
      return Key(InIPv6sForm(address.sin_addr), ntohs(address.sin_port));
    }
    if (storage.ss_family != AF_INET6) return std::nullopt;
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    Key key;
    std::memcpy(key.first.data(), &address.sin6_addr, sizeof(address.sin6_addr));
    key.second = ntohs(address.sin6_port);
    return key;
  }

  bool IsGuardedLocked(int fd) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const AddressReader read : {getsockname, getpeername}) {
      const std::optional<Key> key = KeyOf(fd, read);
      if (key && keys_.count(*key) > 0) return true;
    }
    return false;
  }

  // Runs in the child after fork(), with the lock that the handler took before fork().
  void CloseInChild() ABSL_UNLOCK_FUNCTION(mu_) {
    if (!keys_.empty()) {
      for (const int fd : OpenDescriptors()) {
        if (IsGuardedLocked(fd)) close(fd);
      }
      keys_.clear();
    }
    mu_.Unlock();
  }

  Mutex mu_;
  std::multiset<Key> keys_ ABSL_GUARDED_BY(mu_);
};

ForkGuard::ForkGuard(const Endpoint& endpoint) {
  key_.second = endpoint.port;
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, endpoint.address.c_str(), &ipv4) == 1) {
    key_.first = InIPv6sForm(ipv4);
  } else {
    RONDA_CHECK(inet_pton(AF_INET6, endpoint.address.c_str(), key_.first.data()) == 1);
  }
  GuardedEndpoints::Instance().Add(key_);
}

ForkGuard::~ForkGuard() { GuardedEndpoints::Instance().Remove(key_); }

}  // namespace ronda
