// SPDX-License-Identifier: Apache-2.0

// Replaces the C library's functions for threads, time and processes in programs that link this file. Calls by virtual
// threads go to the simulation, and calls by other threads to the C library.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/real_calls.h"
#include "tests/simulation/virtual_processes.h"
#include "tests/simulation/virtual_sockets.h"
#include "tests/simulation/virtual_threads.h"

#define RONDA_VIRTUAL extern "C" __attribute__((visibility("default")))

namespace ronda::simulation {
namespace {

// The initial times of the clocks, which are not 0, because programs interpret the time 0 as "never".
constexpr absl::Duration kMonotonicBase = absl::Hours(1);
constexpr absl::Duration kCalendarBase = absl::Hours(24 * 365 * 50);
// How long a virtual thread waits before it checks again whether a descriptor is ready. The time doubles with each
// check.
constexpr absl::Duration kShortestPollPeriod = absl::Microseconds(50);
constexpr absl::Duration kLongestPollPeriod = absl::Milliseconds(16);

template <typename Function>
void Find(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  if (*function == nullptr) abort();
}

bool IsCalendar(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

bool IsVirtual(clockid_t clock) {
  return IsCalendar(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
         clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME;
}

absl::Duration BaseOf(clockid_t clock) {
  return IsCalendar(clock) ? kCalendarBase + VirtualWorld::Get().calendar() : kMonotonicBase;
}

// Returns whether the current call, which creates a descriptor, must fail. If so, sets errno.
bool LacksDescriptor() {
  if (!VirtualWorld::IsInside() || !VirtualWorld::Get().FailsDescriptor()) return false;
  errno = EMFILE;
  return true;
}

int WaitUntil(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* time) {
  return VirtualWorld::Get().WaitFor(condition, mutex, absl::DurationFromTimespec(*time) - BaseOf(clock));
}

// Returns the abstract socket name in the address, or nullopt if there is none. A world has its own table of abstract
// names.
std::optional<std::string> NameIn(const sockaddr* address, socklen_t size) {
  constexpr size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;
  if (!VirtualWorld::IsInside() || address->sa_family != AF_UNIX || size < kBegin) return std::nullopt;
  const char* const path = reinterpret_cast<const sockaddr_un*>(address)->sun_path;
  return path[0] == '\0' ? std::optional(std::string(path + 1, size - kBegin)) : std::nullopt;
}

bool IsVirtualSocket(int fd) { return VirtualWorld::IsInside() && VirtualSockets::Get().Owns(fd); }

// Returns a message header for one vector.
msghdr MessageOf(iovec* vector) {
  msghdr message = {};
  message.msg_iov = vector;
  message.msg_iovlen = 1;
  return message;
}

uint16_t PortIn(const sockaddr* address) {
  sockaddr_in ipv4;
  std::memcpy(&ipv4, address, sizeof(ipv4));
  return ntohs(ipv4.sin_port);
}

// Returns the number of descriptors that are ready now. Lowers `*next` to the time at which a simulated socket may
// become ready.
int Look(pollfd* descriptors, nfds_t count, absl::Duration* next) {
  const VirtualWorld::Shield shield;
  const VirtualSockets& sockets = VirtualSockets::Get();
  std::vector<pollfd> real(descriptors, descriptors + count);
  for (pollfd& each : real) {
    if (sockets.Owns(each.fd)) each.fd = -1;
  }
  constexpr timespec kNoTime = {};
  int ready = RealCalls::Get().poll(real.data(), count, &kNoTime, nullptr);
  for (nfds_t i = 0; i < count; ++i) {
    descriptors[i].revents = real[i].revents;
    if (!sockets.Owns(descriptors[i].fd)) continue;
    descriptors[i].revents = sockets.Look(descriptors[i].fd, descriptors[i].events, next);
    ready += descriptors[i].revents != 0 ? 1 : 0;
  }
  return ready;
}

int Fail(int error_number) {
  errno = error_number;
  return -1;
}

}  // namespace

const RealCalls& RealCalls::Get() {
  static const RealCalls* const calls = [] {
    auto* const found = new RealCalls;
    Find("pthread_create", &found->create_thread);
    Find("pthread_join", &found->join_thread);
    Find("pthread_detach", &found->detach_thread);
    Find("pthread_self", &found->current_thread);
    Find("pthread_mutex_lock", &found->lock);
    Find("pthread_mutex_trylock", &found->try_lock);
    Find("pthread_mutex_unlock", &found->unlock);
    Find("pthread_cond_wait", &found->wait);
    Find("pthread_cond_clockwait", &found->wait_by_clock);
    Find("pthread_cond_signal", &found->notify_one);
    Find("pthread_cond_broadcast", &found->notify_all);
    Find("clock_gettime", &found->get_time);
    Find("nanosleep", &found->sleep);
    Find("sched_yield", &found->yield);
    Find("ppoll", &found->poll);
    Find("sendmsg", &found->send_message);
    Find("recvmsg", &found->receive_message);
    Find("send", &found->send);
    Find("recv", &found->receive);
    Find("socket", &found->make_socket);
    Find("accept4", &found->accept);
    Find("getsockname", &found->get_socket_name);
    Find("open", &found->open);
    Find("memfd_create", &found->create_memory_file);
    Find("close", &found->close);
    Find("socketpair", &found->make_socket_pair);
    Find("bind", &found->bind);
    Find("listen", &found->listen);
    Find("connect", &found->connect);
    Find("getsockopt", &found->get_socket_option);
    Find("kill", &found->kill);
    return found;
  }();
  return *calls;
}

}  // namespace ronda::simulation

using ronda::simulation::Fail;
using ronda::simulation::IsVirtualSocket;
using ronda::simulation::MessageOf;
using ronda::simulation::NameIn;
using ronda::simulation::PortIn;
using ronda::simulation::RealCalls;
using ronda::simulation::VirtualProcesses;
using ronda::simulation::VirtualSockets;
using ronda::simulation::VirtualWorld;

RONDA_VIRTUAL int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                                 void* argument) noexcept {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().create_thread(thread, attributes, start, argument);
  return VirtualWorld::Get().CreateThread(thread, start, argument);
}

RONDA_VIRTUAL int pthread_join(pthread_t thread, void** result) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().join_thread(thread, result);
  return VirtualWorld::Get().JoinThread(thread);
}

RONDA_VIRTUAL pthread_t pthread_self() noexcept {
  return VirtualWorld::IsInside() ? VirtualWorld::Get().CurrentThread() : RealCalls::Get().current_thread();
}

// Does nothing, because the world joins all of its threads.
RONDA_VIRTUAL int pthread_detach(pthread_t thread) noexcept {
  return VirtualWorld::IsInside() ? 0 : RealCalls::Get().detach_thread(thread);
}

RONDA_VIRTUAL int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return VirtualWorld::IsInside() ? VirtualWorld::Get().Lock(mutex) : RealCalls::Get().lock(mutex);
}

RONDA_VIRTUAL int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  return VirtualWorld::IsInside() ? VirtualWorld::Get().TryLock(mutex) : RealCalls::Get().try_lock(mutex);
}

RONDA_VIRTUAL int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  return VirtualWorld::IsInside() ? VirtualWorld::Get().Unlock(mutex) : RealCalls::Get().unlock(mutex);
}

RONDA_VIRTUAL int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().wait(condition, mutex);
  return VirtualWorld::Get().WaitFor(condition, mutex, absl::InfiniteDuration());
}

RONDA_VIRTUAL int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                         const timespec* time) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().wait_by_clock(condition, mutex, clock, time);
  return ronda::simulation::WaitUntil(condition, mutex, clock, time);
}

RONDA_VIRTUAL int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* time) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().wait_by_clock(condition, mutex, CLOCK_REALTIME, time);
  return ronda::simulation::WaitUntil(condition, mutex, CLOCK_REALTIME, time);
}

RONDA_VIRTUAL int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().notify_one(condition);
  VirtualWorld::Get().Notify(condition, 1);
  return 0;
}

RONDA_VIRTUAL int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().notify_all(condition);
  VirtualWorld::Get().Notify(condition, std::numeric_limits<size_t>::max());
  return 0;
}

RONDA_VIRTUAL int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (!VirtualWorld::IsInside() || !ronda::simulation::IsVirtual(clock)) return RealCalls::Get().get_time(clock, time);
  VirtualWorld& world = VirtualWorld::Get();
  world.Look();
  *time = absl::ToTimespec(ronda::simulation::BaseOf(clock) + world.now());
  return 0;
}

RONDA_VIRTUAL int nanosleep(const timespec* time, timespec* left) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().sleep(time, left);
  VirtualWorld& world = VirtualWorld::Get();
  world.SleepUntil(world.now() + absl::DurationFromTimespec(*time));
  return 0;
}

RONDA_VIRTUAL int sched_yield() noexcept {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().yield();
  VirtualWorld::Get().Yield();
  return 0;
}

RONDA_VIRTUAL int ppoll(pollfd* descriptors, nfds_t count, const timespec* longest, const sigset_t* mask) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().poll(descriptors, count, longest, mask);
  VirtualWorld& world = VirtualWorld::Get();
  const absl::Duration deadline =
      longest == nullptr ? absl::InfiniteDuration() : world.now() + absl::DurationFromTimespec(*longest);
  for (absl::Duration period = ronda::simulation::kShortestPollPeriod;;
       period = std::min(2 * period, ronda::simulation::kLongestPollPeriod)) {
    absl::Duration next = std::min(deadline, world.now() + period);
    const int ready = ronda::simulation::Look(descriptors, count, &next);
    if (ready != 0 || world.now() >= deadline) return ready;
    world.SleepUntil(next);
  }
}

RONDA_VIRTUAL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (!IsVirtualSocket(fd)) return RealCalls::Get().send_message(fd, message, flags);
  return VirtualSockets::Get().Send(fd, *message);
}

RONDA_VIRTUAL ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (!IsVirtualSocket(fd)) return RealCalls::Get().receive_message(fd, message, flags);
  return VirtualSockets::Get().Receive(fd, *message);
}

// Production code sends only a few bytes through send(), which a new connection always accepts at once.
RONDA_VIRTUAL ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  if (!IsVirtualSocket(fd)) return RealCalls::Get().send(fd, bytes, count, flags);
  iovec vector = {.iov_base = const_cast<void*>(bytes), .iov_len = count};
  return VirtualSockets::Get().Send(fd, MessageOf(&vector), VirtualSockets::Extent::kWhole);
}

RONDA_VIRTUAL ssize_t recv(int fd, void* bytes, size_t count, int flags) {
  if (!IsVirtualSocket(fd)) return RealCalls::Get().receive(fd, bytes, count, flags);
  iovec vector = {.iov_base = bytes, .iov_len = count};
  return VirtualSockets::Get().Receive(fd, MessageOf(&vector));
}

// IPv4 sockets are simulated.
RONDA_VIRTUAL int socket(int domain, int type, int protocol) noexcept {
  if (!VirtualWorld::IsInside() || domain != AF_INET) return RealCalls::Get().make_socket(domain, type, protocol);
  return ronda::simulation::LacksDescriptor() ? -1 : VirtualSockets::Get().Open();
}

RONDA_VIRTUAL int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  if (!IsVirtualSocket(fd)) return RealCalls::Get().accept(fd, address, size, flags);
  return ronda::simulation::LacksDescriptor() ? -1 : VirtualSockets::Get().Accept(fd);
}

RONDA_VIRTUAL int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  if (!IsVirtualSocket(fd)) return RealCalls::Get().get_socket_name(fd, address, size);
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(VirtualSockets::Get().PortOf(fd));
  *size = sizeof(ipv4);
  std::memcpy(address, &ipv4, sizeof(ipv4));
  return 0;
}

// Calls that create a descriptor. They can be made to fail in a simulated process.
RONDA_VIRTUAL int open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const int mode = va_arg(arguments, int);
  va_end(arguments);
  return ronda::simulation::LacksDescriptor() ? -1 : RealCalls::Get().open(path, flags, mode);
}

RONDA_VIRTUAL int memfd_create(const char* name, unsigned flags) noexcept {
  return ronda::simulation::LacksDescriptor() ? -1 : RealCalls::Get().create_memory_file(name, flags);
}

RONDA_VIRTUAL int close(int fd) {
  if (!VirtualWorld::IsInside()) return RealCalls::Get().close(fd);
  return IsVirtualSocket(fd) ? VirtualSockets::Get().Close(fd) : VirtualProcesses::Get().Close(fd);
}

RONDA_VIRTUAL int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  const int result = RealCalls::Get().make_socket_pair(domain, type, protocol, ends);
  if (result != 0 || !VirtualWorld::IsInside()) return result;
  for (const int end : {ends[0], ends[1]}) {
    VirtualProcesses::Get().Give(end, VirtualWorld::Get().current_process());
  }
  return 0;
}

RONDA_VIRTUAL int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  if (IsVirtualSocket(fd)) return VirtualSockets::Get().Bind(fd, PortIn(address));
  const std::optional<std::string> name = NameIn(address, size);
  if (!name) return RealCalls::Get().bind(fd, address, size);
  if (!VirtualProcesses::Get().TakeName(*name)) return Fail(EADDRINUSE);
  VirtualProcesses::Get().SetListener(fd);
  return 0;
}

RONDA_VIRTUAL int listen(int fd, int backlog) noexcept {
  if (IsVirtualSocket(fd)) return VirtualSockets::Get().Listen(fd);
  const bool is_virtual = VirtualWorld::IsInside() && VirtualProcesses::Get().IsListener(fd);
  return is_virtual ? 0 : RealCalls::Get().listen(fd, backlog);
}

RONDA_VIRTUAL int connect(int fd, const sockaddr* address, socklen_t size) {
  if (IsVirtualSocket(fd)) return VirtualSockets::Get().Connect(fd, PortIn(address));
  const std::optional<std::string> name = NameIn(address, size);
  if (!name) return RealCalls::Get().connect(fd, address, size);
  return VirtualProcesses::Get().ConnectToName(fd, *name) ? 0 : Fail(ECONNREFUSED);
}

RONDA_VIRTUAL int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  if (IsVirtualSocket(fd) && level == SOL_SOCKET && option == SO_ERROR) {
    const int error = VirtualSockets::Get().ErrorOf(fd);
    std::memcpy(value, &error, sizeof(error));
    return 0;
  }
  const std::optional<pid_t> peer = VirtualWorld::IsInside() ? VirtualProcesses::Get().PeerOf(fd) : std::nullopt;
  if (!peer || level != SOL_SOCKET || option != SO_PEERCRED) {
    return RealCalls::Get().get_socket_option(fd, level, option, value, size);
  }
  static_cast<ucred*>(value)->pid = *peer;
  return 0;
}

RONDA_VIRTUAL int kill(pid_t pid, int signo) noexcept {
  const bool is_virtual = VirtualWorld::IsInside() && VirtualProcesses::Get().Signal(pid, signo);
  return is_virtual ? 0 : RealCalls::Get().kill(pid, signo);
}

// Calls that allocate memory. They can be made to fail in a simulated process.
void* operator new(size_t bytes) {
  if (VirtualWorld::IsInside() && VirtualWorld::Get().FailsAllocation()) throw std::bad_alloc();
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
