// SPDX-License-Identifier: Apache-2.0

// Simulates TCP connections between the processes of a virtual world.
#ifndef RONDA_TESTS_SIMULATION_VIRTUAL_SOCKETS_H_
#define RONDA_TESTS_SIMULATION_VIRTUAL_SOCKETS_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// Stream sockets. A socket is a number that no real descriptor has. Production code passes sockets to connect, accept4,
// sendmsg, recvmsg, ppoll, close and similar functions, which virtual_calls.cc replaces. All processes are on one host.
//
// The sockets behave like TCP. A call may transfer only a part of its bytes. A socket accepts no more bytes while
// unread bytes fill the buffer of the other end. Bytes arrive in order, some time after they were sent. After a reset,
// bytes that have arrived can still be read, and all others are lost, even in the middle of a message. Closing a socket
// sends an end-of-file after its last byte, or a reset if bytes for the socket are unread or in transit.
//
// Each real process has one world, and one VirtualSockets. Only the running virtual thread may call its functions.
class VirtualSockets {
 public:
  static VirtualSockets& Get();

  // Returns when bytes arrive that process `from` now sends to process `to`.
  using Arrival = std::function<absl::Duration(ProcessId from, ProcessId to)>;
  // Connects two new sockets. Give() sets their owners.
  std::array<int, 2> Connect(Arrival arrival);
  // Makes a process the owner of the socket.
  void Give(int socket, ProcessId process) { EndOf(socket).process = process; }

  // Sets the arrival function for connections that processes create with connect().
  void SetArrival(Arrival arrival) { arrival_ = std::move(arrival); }

  // Faults. Resets the socket's connection. Both ends notice the reset some time later.
  void Reset(int socket);
  // Resets the connections between two processes. Returns whether there were any.
  bool ResetBetween(ProcessId one, ProcessId other);
  // Ends the process's sockets: closes them, or makes them silent for ever, as if the host had lost power.
  enum class End { kClose, kSilence };
  void Drop(ProcessId process, End how);

  // The functions below act like functions of the C library.
  bool Owns(int fd) const { return ends_.contains(fd) || unconnected_.contains(fd); }
  int Open();
  int Bind(int socket, uint16_t port);
  int Listen(int socket);
  int Connect(int socket, uint16_t port);
  int Accept(int socket);
  uint16_t PortOf(int socket) const { return unconnected_.at(socket).port; }
  int ErrorOf(int socket) const;  // SO_ERROR
  // Whether a call transfers all bytes that the buffer has room for, or perhaps only a part.
  enum class Extent { kPart, kWhole };
  ssize_t Send(int socket, const msghdr& message, Extent extent = Extent::kPart);
  ssize_t Receive(int socket, const msghdr& message);
  int Close(int socket);
  // Returns which of `events` the socket has now. If it will have others without any action of a thread, lowers `*next`
  // to that time.
  int16_t Look(int socket, int16_t events, absl::Duration* next) const;

  uint64_t parts() const { return parts_; }    // calls that moved a part of the bytes
  uint64_t resets() const { return resets_; }  // connections reset with bytes under way

 private:
  struct Piece {
    std::string bytes;
    absl::Duration arrival;
  };
  // One end of a connection, and the bytes in transit to it.
  struct Side {
    ProcessId process = -1;
    std::deque<Piece> coming;
    size_t coming_bytes = 0;
    size_t buffer_bytes = 0;
    absl::Duration begin = absl::ZeroDuration();  // when this end learns of the connection
    absl::Duration last_arrival = absl::ZeroDuration();
    absl::Duration end_at = absl::InfiniteDuration();    // when the other end's close arrives
    absl::Duration reset_at = absl::InfiniteDuration();  // when this end notices a reset
    bool is_open = true;
    bool is_silent = false;  // the host has lost power
  };
  struct Connection {
    std::array<Side, 2> sides;
    Arrival arrival;
  };
  struct Place {
    std::shared_ptr<Connection> connection;
    size_t side = 0;
  };

  // A socket without a connection: it listens, its connect() was refused, or it is new.
  struct Unconnected {
    ProcessId process = -1;
    uint16_t port = 0;  // 0: not bound
    bool listens = false;
    std::deque<int> callers;  // sockets of connections that accept4() will return, by their times
    absl::Duration refused_at = absl::InfiniteDuration();
  };

  VirtualSockets() = default;

  static Side& SideOf(const Place& place) { return place.connection->sides[place.side]; }
  static Side& OtherOf(const Place& place) { return place.connection->sides[1 - place.side]; }
  Side& EndOf(int socket) { return SideOf(ends_.at(socket)); }
  // Returns how many of `bytes` bytes a call transfers: all, or a random part of them.
  size_t SomeOf(size_t bytes);
  // Returns the number of bytes that can be read now.
  static size_t Readable(const Side& side);
  static absl::Duration ArrivalAtOther(const Place& place);
  // Resets one end of a connection, which notices that soon after `from`.
  void ResetSide(Side* side, absl::Duration from);
  void Close(const Place& place);
  Unconnected* ListenerAt(uint16_t port);
  int16_t LookAt(const Unconnected& socket, absl::Duration* next) const;

  Arrival arrival_;
  std::map<int, Place> ends_;
  std::map<int, Unconnected> unconnected_;
  int next_ = 1 << 24;
  uint64_t parts_ = 0;
  uint64_t resets_ = 0;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_SOCKETS_H_
