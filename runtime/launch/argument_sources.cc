#include "runtime/launch/argument_sources.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace ronda {
namespace {

// Not by streams: at a directory they throw.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rb"), fclose);
  if (file == nullptr) return absl::NotFoundError(strerror(errno));
  std::string content;
  char block[4096];
  while (const size_t size = fread(block, 1, sizeof(block), file.get())) content.append(block, size);
  if (ferror(file.get()) != 0) return absl::NotFoundError(strerror(errno));
  return content;
}

int CountCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

// The driver shows one directory a GPU here.
int CountGpus() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/driver/nvidia/gpus"), closedir);
  if (directory == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count;
}

std::string Numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr) return "";
  return text;
}

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) == 0) addresses.emplace_back(name);
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(interfaces, freeifaddrs);
  for (const ifaddrs* interface = interfaces; interface != nullptr; interface = interface->ifa_next) {
    if (interface->ifa_addr == nullptr) continue;
    std::string address = Numeric(interface->ifa_addr);
    if (!address.empty()) addresses.push_back(std::move(address));
  }
  return addresses;
}

}  // namespace

ArgumentSources ArgumentSources::OfThisProcess() {
  return {.read_file = ReadFile,
          .count_cores = CountCores,
          .count_gpus = CountGpus,
          .own_addresses = OwnAddresses,
          .is_in_environment = [](const std::string& name) { return getenv(name.c_str()) != nullptr; }};
}

}  // namespace ronda
