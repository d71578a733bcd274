#include "runtime/launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/base/unique_fd.h"

namespace ronda {

int FindFreePort() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket_fd.get(), generic, size) != 0 || getsockname(socket_fd.get(), generic, &size) != 0) return 0;
  return ntohs(address.sin_port);
}

}  // namespace ronda
