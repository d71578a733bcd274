#include "tests/hosts/network_hosts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status_macros.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

constexpr absl::string_view kNamespacePrefix = "ronda-";

// ip and tc are administrators' programs, in directories that Bazel leaves out.
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

// The bridges and cables of a test that was killed go with the namespaces that they lead to, or have its id as name.
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
    // A process there would keep the namespace, and the system is slow to remove the namespace with the cable.
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
  // Open MPI can be told an interface of the hosts, which mpirun does not have, or a network, but none of IPv6.
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
  const std::vector<std::string> commands = {
      absl::StrCat("ip netns add ", name),
      absl::StrCat("ip link add ", LinkOf(host), " type veth peer name eth0 netns ", name),
      absl::StrCat("ip link set ", LinkOf(host), " master ", bridge_, " up"),
      absl::StrCat("ip -n ", name, " addr add ", AddressOf(host), is_ipv6 ? "/64 nodad" : "/24", " dev eth0"),
      absl::StrCat("ip -n ", name, " link set eth0 up"),
      absl::StrCat("ip -n ", name, " link set lo up"),
  };
  return Do(absl::StrJoin(commands, " && "));
}

absl::Status NetworkHosts::WriteAgent() {
  const char* const directory = getenv("TEST_TMPDIR");
  agent_ = absl::StrCat(directory == nullptr ? "/tmp" : directory, "/agent-", id_);
  // As with ssh, little of the caller's environment gets there.
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
    // A burst of 2 ms, and room for 50 ms.
    RONDA_RETURN_IF_ERROR(
        Do(absl::StrCat("ip netns exec ", NameOf(host), " tc qdisc replace dev eth0 root tbf rate ", mbit,
                        "mbit burst ", static_cast<int>(mbit * 250) + 16'000, " latency 50ms")));
  }
  return absl::OkStatus();
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
