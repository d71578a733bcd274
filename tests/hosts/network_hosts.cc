// SPDX-License-Identifier: Apache-2.0

#include "tests/hosts/network_hosts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <fstream>
#include <numeric>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

constexpr absl::string_view kNamespacePrefix = "ronda-";

// ip and tc are in the sbin directories, which are not in Bazel's PATH.
constexpr absl::string_view kSetPath = "PATH=$PATH:/usr/sbin:/sbin; ";

ProcessResult Shell(const std::string& command) {
  return RunProcesses({.argv = {"/bin/sh", "-c", absl::StrCat(kSetPath, command)}, .timeout = absl::Seconds(20)})
      .ranks.front();
}

absl::Status Do(const std::string& command) {
  const ProcessResult result = Shell(command);
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(command, ": ", result.output));
}

// Namespaces are called ronda-PID-hN.
bool IsOfDeadTest(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  pid_t pid = 0;
  return parts.size() == 3 && absl::SimpleAtoi(parts[1], &pid) && kill(pid, 0) != 0;
}

// Removes the namespaces and bridges that killed tests have left. A bridge has the same process id in its name as its
// namespaces. Cables disappear with their namespaces.
void RemoveLeftovers() {
  for (absl::string_view line : absl::StrSplit(Shell("ip netns list").output, '\n')) {
    const absl::string_view name = line.substr(0, line.find(' '));
    if (!absl::StartsWith(name, kNamespacePrefix) || !IsOfDeadTest(name)) continue;
    const std::vector<std::string> parts = absl::StrSplit(name, '-');
    Shell(absl::StrCat("ip netns del ", name, "; ip link del rb", parts[1]));
  }
}

}  // namespace

absl::Status NetworkHosts::Available() {
  if (getuid() != 0) return absl::FailedPreconditionError("network namespaces need root");
  if (Shell("command -v ip && command -v tc && command -v unshare").exit_code != 0) {
    return absl::FailedPreconditionError("ip, tc or unshare are not installed (packages iproute2, util-linux)");
  }
  const std::string probe = absl::StrCat(kNamespacePrefix, getpid(), "-probe");
  const ProcessResult made = Shell(absl::StrCat("ip netns add ", probe, " && ip netns exec ", probe,
                                                " unshare -m -u true; s=$?; ip netns del ", probe, "; exit $s"));
  if (made.exit_code == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this machine gives no network namespaces: ", made.output));
}

// A cable between two interfaces. A thread forwards frames between them, and delays those from `host_end`.
class NetworkHosts::Relay {
 public:
  static absl::StatusOr<std::unique_ptr<Relay>> Create(const std::string& host_end, const std::string& bridge_end) {
    RONDA_ASSIGN_OR_RETURN(UniqueFd host, OpenInterface(host_end));
    RONDA_ASSIGN_OR_RETURN(UniqueFd bridge, OpenInterface(bridge_end));
    UniqueFd stop(eventfd(0, EFD_CLOEXEC));
    if (!stop.valid()) return absl::ErrnoToStatus(errno, "cannot create an eventfd");
    return std::unique_ptr<Relay>(new Relay(std::move(host), std::move(bridge), std::move(stop)));
  }
  ~Relay() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  void set_delay(absl::Duration delay) { delay_ms_ = absl::ToInt64Milliseconds(delay); }

 private:
  struct Frame {
    absl::Time due;
    std::string bytes;
  };

  Relay(UniqueFd host, UniqueFd bridge, UniqueFd stop)
      : host_(std::move(host)), bridge_(std::move(bridge)), stop_(std::move(stop)), thread_([this] { Run(); }) {}

  static absl::StatusOr<UniqueFd> OpenInterface(const std::string& name) {
    UniqueFd fd(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    ifreq request = {};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    if (fd.valid() && ioctl(fd.get(), TUNSETIFF, &request) == 0) return fd;
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the interface ", name));
  }

  // A frame that does not fit into the queue is lost, as on a real cable.
  static void Send(const UniqueFd& to, const std::string& frame) {
    [[maybe_unused]] const ssize_t sent = write(to.get(), frame.data(), frame.size());
  }
  static std::optional<std::string> Receive(const UniqueFd& from) {
    char frame[2048];
    const ssize_t bytes = read(from.get(), frame, sizeof(frame));
    if (bytes <= 0) return std::nullopt;
    return std::string(frame, static_cast<size_t>(bytes));
  }

  void Run() {
    while (true) {
      pollfd events[] = {{.fd = stop_.get(), .events = POLLIN},
                         {.fd = host_.get(), .events = POLLIN},
                         {.fd = bridge_.get(), .events = POLLIN}};
      const absl::Duration pause = late_.empty() ? absl::Hours(1) : late_.front().due - SteadyNow();
      const timespec timeout = absl::ToTimespec(std::max(pause, absl::ZeroDuration()));
      ppoll(events, 3, &timeout, nullptr);
      if (events[0].revents != 0) return;
      while (const auto frame = Receive(bridge_)) Send(host_, *frame);
      while (const auto frame = Receive(host_)) {
        late_.push_back({.due = SteadyNow() + absl::Milliseconds(delay_ms_.load()), .bytes = *frame});
      }
      for (; !late_.empty() && late_.front().due <= SteadyNow(); late_.pop_front()) Send(bridge_, late_.front().bytes);
    }
  }

  const UniqueFd host_;
  const UniqueFd bridge_;
  const UniqueFd stop_;
  std::atomic<int64_t> delay_ms_{0};
  std::deque<Frame> late_;
  std::thread thread_;
};

NetworkHosts::NetworkHosts(const Options& options)
    : options_(options), id_(absl::StrCat(getpid())), bridge_(absl::StrCat("rb", id_)) {}

absl::StatusOr<std::unique_ptr<NetworkHosts>> NetworkHosts::Create(const Options& options) {
  RemoveLeftovers();
  auto hosts = std::unique_ptr<NetworkHosts>(new NetworkHosts(options));
  RONDA_RETURN_IF_ERROR(hosts->SetUp());
  return hosts;
}

NetworkHosts::~NetworkHosts() {
  for (int host = 0; host < count(); ++host) {
    // A process still running on the host would keep the namespace alive. Removes the cable explicitly, because the
    // system is slow to remove it with the namespace.
    KillAllOn(host);
    Shell(absl::StrCat("ip link del ", LinkOf(host), "; ip netns del ", NameOf(host)));
  }
  Shell(absl::StrCat("ip link del ", bridge_));
  if (!agent_.empty()) unlink(agent_.c_str());
}

std::string NetworkHosts::NameOf(int host) const { return absl::StrCat(kNamespacePrefix, id_, "-h", host + 1); }

std::string NetworkHosts::LinkOf(int host) const { return absl::StrCat("rv", id_, "-", host + 1); }

std::string NetworkHosts::AddressIn(int number) const {
  const int net = getpid() % (250 * 250);
  if (options_.family == Family::kIPv6) return absl::StrCat("fd00:", absl::Hex(net), "::", absl::Hex(number + 1));
  return absl::StrCat("10.", net / 250, ".", net % 250, ".", number + 1);
}

std::string NetworkHosts::AddressOf(int host) const { return AddressIn(host); }

std::vector<std::pair<std::string, std::string>> NetworkHosts::MpiNetwork() const {
  // Open MPI's parameters accept an interface or an IPv4 network, but not an IPv6 network. For IPv4 the result names
  // the network, because mpirun's machine does not have the hosts' interface "eth0".
  if (options_.family == Family::kIPv6) return {{"oob_tcp_disable_ipv4_family", "1"}, {"btl_tcp_if_include", "eth0"}};
  const int net = getpid() % (250 * 250);
  const std::string network = absl::StrCat("10.", net / 250, ".", net % 250, ".0/24");
  return {{"oob_tcp_if_include", network}, {"btl_tcp_if_include", network}};
}

absl::Status NetworkHosts::SetUp() {
  RONDA_RETURN_IF_ERROR(Do(absl::StrCat("ip link add ", bridge_, " type bridge && ip link set ", bridge_, " up")));
  const bool is_ipv6 = options_.family == Family::kIPv6;
  RONDA_RETURN_IF_ERROR(
      Do(absl::StrCat("ip addr add ", AddressIn(252), is_ipv6 ? "/64 nodad" : "/24", " dev ", bridge_)));
  for (int host = 0; host < count(); ++host) RONDA_RETURN_IF_ERROR(AddHost(host));
  return WriteAgent();
}

absl::Status NetworkHosts::AddHost(int host) {
  const std::string name = NameOf(host);
  const bool is_ipv6 = options_.family == Family::kIPv6;
  RONDA_RETURN_IF_ERROR(Do(absl::StrCat("ip netns add ", name)));
  RONDA_RETURN_IF_ERROR(AddCable(host));
  const std::vector<std::string> commands = {
      absl::StrCat("ip link set ", LinkOf(host), " master ", bridge_, " up"),
      absl::StrCat("ip -n ", name, " addr add ", AddressOf(host), is_ipv6 ? "/64 nodad" : "/24", " dev eth0"),
      absl::StrCat("ip -n ", name, " link set eth0 up"),
      absl::StrCat("ip -n ", name, " link set lo up"),
  };
  return Do(absl::StrJoin(commands, " && "));
}

absl::Status NetworkHosts::AddCable(int host) {
  const std::string link = LinkOf(host);
  if (options_.cables == Options::Cables::kOfTheKernel) {
    return Do(absl::StrCat("ip link add ", link, " type veth peer name eth0 netns ", NameOf(host)));
  }
  const std::string far_end = absl::StrCat(link, "e");
  RONDA_ASSIGN_OR_RETURN(relays_.emplace_back(), Relay::Create(far_end, link));
  return Do(absl::StrCat("ip link set ", far_end, " netns ", NameOf(host), " name eth0"));
}

absl::Status NetworkHosts::WriteAgent() {
  const char* const directory = getenv("TEST_TMPDIR");
  agent_ = absl::StrCat(directory == nullptr ? "/tmp" : directory, "/agent-", id_);
  // The command inherits only a few of the caller's environment variables, as with ssh.
  std::ofstream(agent_) << "#!/bin/sh\n"
                        << kSetPath << "host=$1\nshift\n"
                        << "exec env -i PATH=\"$PATH\" HOME=\"$HOME\" ip netns exec \"$host\" unshare -m -u sh -c "
                           "'mount -t tmpfs tmpfs /dev/shm && "
                           "hostname \"$0\" && exec sh -c \"$*\"' \"$host\" \"$@\"\n";
  if (chmod(agent_.c_str(), 0755) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", agent_));
}

absl::Status NetworkHosts::RunOn(int host, const std::string& command) const {
  const ProcessResult result =
      RunProcesses({.argv = {agent_, NameOf(host), command}, .timeout = absl::Seconds(20)}).ranks.front();
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(NameOf(host), ": ", command, ": ", result.output));
}

absl::Status NetworkHosts::LimitRate(double mbit) {
  for (int host = 0; host < count(); ++host) {
    // A host can send a burst of 2 ms of data plus 16 kB. Data waits in the queue for at most 50 ms.
    RONDA_RETURN_IF_ERROR(
        Do(absl::StrCat("ip netns exec ", NameOf(host), " tc qdisc replace dev eth0 root tbf rate ", mbit,
                        "mbit burst ", static_cast<int>(mbit * 250) + 16'000, " latency 50ms")));
  }
  return absl::OkStatus();
}

void NetworkHosts::DelaySending(int host, absl::Duration delay) {
  relays_[static_cast<size_t>(host)]->set_delay(delay);
}

void NetworkHosts::KillAllOn(int host) const {
  Shell(absl::StrCat("ip netns pids ", NameOf(host), " | xargs -r kill -9"));
}

absl::Status NetworkHosts::CutOff(int host) { return Do(absl::StrCat("ip link set ", LinkOf(host), " down")); }

absl::Status NetworkHosts::Reconnect(int host) { return Do(absl::StrCat("ip link set ", LinkOf(host), " up")); }

std::vector<std::string> MpirunAcross(const NetworkHosts& hosts, const HostsJob& job) {
  std::vector<std::string> places;
  for (size_t host = 0; host < job.slots.size(); ++host) {
    places.push_back(absl::StrCat(hosts.NameOf(static_cast<int>(host)), ":", job.slots[host]));
  }
  const int size = std::accumulate(job.slots.begin(), job.slots.end(), 0);
  std::vector<std::string> argv = {PathOfMpirun(MpiFlavor::kOpenMpi),
                                   "--oversubscribe",
                                   "--bind-to",
                                   "none",
                                   "-np",
                                   absl::StrCat(size),
                                   "-H",
                                   absl::StrJoin(places, ","),
                                   "--mca",
                                   "plm_rsh_agent",
                                   hosts.agent(),
                                   "--mca",
                                   "btl",
                                   "self,vader,tcp"};
  for (const auto& [name, value] : hosts.MpiNetwork()) argv.insert(argv.end(), {"--mca", name, value});
  argv.insert(argv.end(), job.mpirun_options.begin(), job.mpirun_options.end());
  for (const auto& [name, value] : job.env) argv.insert(argv.end(), {"-x", name});
  argv.insert(argv.end(), job.argv.begin(), job.argv.end());
  return argv;
}

ProcessResult RunAcross(const NetworkHosts& hosts, const HostsJob& job) {
  ProcessJob mpirun = {.argv = MpirunAcross(hosts, job), .env = job.env, .timeout = job.timeout};
  mpirun.env.insert(mpirun.env.end(), {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  return RunProcesses(mpirun).ranks.front();
}

}  // namespace ronda::testing
