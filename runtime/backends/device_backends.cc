// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/device_backends.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/backends/device_hierarchy.h"
#include "runtime/base/logging.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "runtime/collectives/nccl/nccl_direct.h"
#include "runtime/collectives/peer/peer_communicator.h"
#include "runtime/collectives/staged/staged_communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/shared_memory.h"
#include "runtime/net/proof.h"

namespace ronda {
namespace {

constexpr char kSeparator = '\t';

// Longer texts in DeviceFacts::why_no_peer are truncated to this length.
constexpr size_t kLongestPeerReason = 100;

// The most characters of DeviceFacts::host that a rank sends as they are. A name of the system with BootId() is
// shorter.
constexpr size_t kLongestHost = 110;

// The same for DeviceFacts::events. A HostId() with a boot id is shorter.
constexpr size_t kLongestEvents = 80;

// Returns a text that identifies a host in the encoded facts. A text that does not fit is replaced by its hash, which
// is the same on all ranks. The hash is no secret, so its key need not be one.
std::string HostField(const std::string& host, size_t longest) {
  if (host.size() <= longest && !absl::StrContains(host, kSeparator)) return host;
  return absl::BytesToHexString(SecretProof("host", {"ronda.DeviceFacts.host", host}));
}

std::vector<RankId> AllRanks(const DeviceSituation& situation) {
  std::vector<RankId> ranks(situation.facts.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

const DeviceFacts& FactsOf(const DeviceSituation& situation, RankId rank) {
  return situation.facts[static_cast<size_t>(rank)];
}

// The first NCCL version that compares the ranks' devices by UUID, which is different for each part of a GPU (MIG).
// Earlier versions compare the PCI bus, which all parts of a GPU share.
constexpr char kTellsPartsApart[] = "2.30.7";

std::vector<int> NumbersOf(absl::string_view version) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(version, '.')) {
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) return {};
  }
  return numbers;
}

// Returns which two ranks NCCL cannot connect because they have the same device, and why; empty if all devices differ.
// Covers devices that only NCCL considers the same, and also a shared device that NCCL does not detect: NCCL would
// accept two ranks on one device if their containers have different names, and its kernels would then wait for each
// other for ever.
std::string ObjectionToDevices(const DeviceSituation& situation, absl::Span<const RankId> ranks) {
  const auto object = [](RankId rank, RankId other, absl::string_view what) {
    return absl::StrCat("ranks ", rank, " and ", other, " ", what);
  };
  constexpr absl::string_view kShare = "share a GPU, which NCCL does not let them";
  std::map<std::vector<absl::string_view>, RankId> rank_of_place;
  std::map<absl::string_view, RankId> rank_of_uuid;
  for (const RankId rank : ranks) {
    const DeviceFacts& facts = FactsOf(situation, rank);
    if (!facts.uuid.empty()) {
      const auto [same, is_new] = rank_of_uuid.try_emplace(facts.uuid, rank);
      if (!is_new) return object(same->second, rank, kShare);
    }
    if (facts.pci_bus.empty()) continue;  // the device's place is not known
    std::vector<absl::string_view> place = {facts.host, facts.pci_bus};
    if (NumbersOf(facts.nccl) >= NumbersOf(kTellsPartsApart)) place.push_back(facts.uuid);
    const auto [there, is_new] = rank_of_place.try_emplace(std::move(place), rank);
    if (is_new) continue;
    if (facts.uuid.empty()) return object(there->second, rank, kShare);
    return object(there->second, rank,
                  absl::StrCat("have parts of one GPU (MIG), which NCCL lets them from ", kTellsPartsApart, " on"));
  }
  return "";
}

// Returns why the ranks cannot use NCCL together; empty if they can.
std::string ObjectionToNccl(const DeviceSituation& situation, absl::Span<const RankId> ranks) {
  if (std::string objection = ObjectionToDevices(situation, ranks); !objection.empty()) return objection;
  const RankId first = ranks.front();
  for (const RankId rank : ranks) {
    const DeviceFacts& facts = FactsOf(situation, rank);
    if (facts.nccl.empty()) return absl::StrCat("rank ", rank, ": ", facts.why_no_nccl);
    if (facts.nccl == FactsOf(situation, first).nccl) continue;
    return absl::StrCat("rank ", first, " has NCCL ", FactsOf(situation, first).nccl, ", rank ", rank, " has ",
                        facts.nccl);
  }
  return "";
}

// Returns why two levels are impossible; empty if they are possible.
std::string ObjectionToLevels(const DeviceSituation& situation) {
  if (situation.hosts == nullptr) {
    return "the ranks are on one host, or RONDA_BACKEND is not hierarchical";
  }
  return SizesOf(*situation.hosts).most > 1 ? "" : "no host has more than one rank";
}

// Returns why the ranks of some host cannot use NCCL together; empty if they can on every host.
std::string ObjectionToNcclOnHosts(const DeviceSituation& situation) {
  for (const std::vector<RankId>& host : situation.hosts->hosts) {
    std::string objection = ObjectionToNccl(situation, host);
    if (!objection.empty()) return objection;
  }
  return "";
}

absl::StatusOr<std::string> MeritUnless(std::string objection, absl::string_view merit) {
  if (!objection.empty()) return absl::FailedPreconditionError(objection);
  return std::string(merit);
}

absl::StatusOr<DeviceTransport> ConnectHierarchy(const DeviceSupport::Request& request, const NcclLoader& nccl,
                                                 DeviceHierarchyOptions::Across across) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const NcclLibrary> library, nccl());
  RONDA_ASSIGN_OR_RETURN(const NcclSettings settings, NcclSettingsOf(request.facts));
  return ConnectDeviceHierarchy({.request = request,
                                 .library = std::move(library),
                                 .across = across,
                                 .order = settings.order,
                                 .windows = settings.windows});
}

}  // namespace

std::string Encode(const DeviceFacts& facts, size_t longest) {
  const std::string why_no_peer =
      absl::StrReplaceAll(facts.why_no_peer.substr(0, kLongestPeerReason), {{absl::string_view(&kSeparator, 1), " "}});
  const std::string fields =
      absl::StrJoin({HostField(facts.host, kLongestHost), facts.pci_bus, facts.uuid, facts.nccl, facts.wanted,
                     facts.order, facts.windows, facts.in_place, facts.memory_mb, facts.gradient_mb,
                     HostField(facts.events, kLongestEvents), why_no_peer, facts.why_no_nccl},
                    absl::string_view(&kSeparator, 1));
  return fields.substr(0, longest);
}

absl::StatusOr<DeviceFacts> DecodeDeviceFacts(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, absl::MaxSplits(kSeparator, 12));
  if (fields.size() != 13) return absl::InternalError(absl::StrCat("damaged facts about a device: '", text, "'"));
  return DeviceFacts{.host = fields[0],
                     .pci_bus = fields[1],
                     .uuid = fields[2],
                     .nccl = fields[3],
                     .why_no_nccl = fields[12],
                     .wanted = fields[4],
                     .why_no_peer = fields[11],
                     .order = fields[5],
                     .windows = fields[6],
                     .events = fields[10],
                     .memory_mb = fields[8],
                     .gradient_mb = fields[9],
                     .in_place = fields[7]};
}

namespace {

std::string MegabytesField(int64_t megabytes) { return megabytes == 0 ? "" : absl::StrCat(megabytes); }

absl::StatusOr<int64_t> Megabytes(const std::string& field) {
  int64_t megabytes = 0;
  if (field.empty() || absl::SimpleAtoi(field, &megabytes)) return megabytes;
  return absl::InternalError(absl::StrCat("damaged facts about a device: memory of '", field, "' MiB"));
}

}  // namespace

absl::StatusOr<NcclSettings> NcclSettingsOf(absl::Span<const std::string> facts) {
  RONDA_ASSIGN_OR_RETURN(const DeviceFacts first, DecodeDeviceFacts(facts.front()));
  RONDA_ASSIGN_OR_RETURN(const int64_t lane_mb, Megabytes(first.memory_mb));
  RONDA_ASSIGN_OR_RETURN(const int64_t gradient_mb, Megabytes(first.gradient_mb));
  return NcclSettings{.order = first.order.empty() ? SumOrder::kOfNccl : SumOrder::kOfRanks,
                      .windows = first.windows.empty() ? NcclWindows::kNone : NcclWindows::kSymmetric,
                      .reduces_in_place = !first.in_place.empty(),
                      .lane_memory_mb = lane_mb,
                      .gradient_memory_mb = gradient_mb};
}

namespace {

absl::StatusOr<std::vector<DeviceFacts>> DecodeAll(absl::Span<const std::string> texts) {
  std::vector<DeviceFacts> facts;
  for (const std::string& text : texts) {
    RONDA_ASSIGN_OR_RETURN(facts.emplace_back(), DecodeDeviceFacts(text));
  }
  return facts;
}

absl::StatusOr<std::string> RateNccl(const DeviceSituation& situation) {
  return MeritUnless(ObjectionToNccl(situation, AllRanks(situation)),
                     absl::StrCat("NCCL ", situation.facts.front().nccl, ", a GPU a rank"));
}

// Returns OK if the ranks can reduce gradients in memory that they register together; otherwise the reason why not. The
// result is the same on all ranks.
absl::Status CanMakeMemory(const NcclSettings& settings, const NcclCommunicator& communicator) {
  if (settings.order == SumOrder::kOfNccl) return communicator.CanMakeMemory();
  return absl::FailedPreconditionError(
      "there is no memory for gradients (RONDA_GRADIENT_MEMORY_MB): with RONDA_REPRODUCIBLE=1 they are packed");
}

// Adds the functions for the memory for gradients, on all ranks or on none.
void AddMemory(const DeviceSupport::Request& request, const NcclSettings& settings, NcclCommunicator& communicator,
               DeviceTransport* transport) {
  if (settings.gradient_memory_mb == 0 || request.facts.size() == 1) return;
  if (const absl::Status status = CanMakeMemory(settings, communicator); !status.ok()) {
    if (request.rank == 0) Log(LogLevel::kWarning, request.rank, status.message());
    return;
  }
  transport->allocate_memory = [&communicator, bytes = static_cast<size_t>(settings.gradient_memory_mb) << 20] {
    return communicator.AllocateMemory(bytes);
  };
  transport->register_memory = [&communicator](const CallInfo& info, const DirectMemory& memory) {
    return communicator.RegisterMemory(info, memory);
  };
}

absl::StatusOr<DeviceTransport> ConnectNccl(const DeviceSupport::Request& request, const NcclLoader& nccl) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const NcclLibrary> library, nccl());
  RONDA_ASSIGN_OR_RETURN(const NcclSettings settings, NcclSettingsOf(request.facts));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                         NcclCommunicator::Create({.rank = request.rank,
                                                   .size = static_cast<int>(request.facts.size()),
                                                   .device = request.device,
                                                   .stream = request.stream,
                                                   .library = std::move(library),
                                                   .host = request.host,
                                                   .marks = request.marks,
                                                   .order = settings.order,
                                                   .windows = settings.windows,
                                                   .job_failure = request.job_failure,
                                                   .fail_job = request.fail_job}));
  NcclCommunicator* const made = communicator.get();
  DeviceTransport transport = {.communicator = std::move(communicator),
                               .failure = [made] { return made->failure(); },
                               .abort = [made] { made->Abort(); },
                               .setup_deadline = NcclCommunicator::Options().init_deadline,
                               .reduces_in_place = settings.reduces_in_place};
  AddMemory(request, settings, *made, &transport);
  return transport;
}

absl::StatusOr<std::unique_ptr<DirectTransport>> ConnectNcclDirectly(const DeviceSupport::DirectRequest& request,
                                                                     const NcclLoader& nccl) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const NcclLibrary> library, nccl());
  RONDA_ASSIGN_OR_RETURN(const NcclSettings settings, NcclSettingsOf(request.facts));
  using Hosts = NcclDirect::Settings::Hosts;
  RONDA_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> facts, DecodeAll(request.facts));
  const bool is_one = std::all_of(facts.begin(), facts.end(),
                                  [&](const DeviceFacts& each) { return each.events == facts.front().events; });
  return NcclDirect::Connect(request, std::move(library),
                             {.order = settings.order,
                              .memory_bytes = static_cast<size_t>(settings.lane_memory_mb) << 20,
                              .hosts = is_one ? Hosts::kOne : Hosts::kSeveral});
}

// Returns why the ranks' devices cannot map each other's memory; empty if no reason is known.
std::string ObjectionToPeers(const DeviceSituation& situation) {
  const DeviceFacts& first = situation.facts.front();
  if (situation.facts.size() > PeerGroup::kMostMembers) {
    return absl::StrCat("the job has ", situation.facts.size(), " ranks, and at most ", PeerGroup::kMostMembers,
                        " can map each other's memory");
  }
  for (const RankId rank : AllRanks(situation)) {
    const DeviceFacts& facts = FactsOf(situation, rank);
    if (facts.host != first.host) return absl::StrCat("ranks 0 and ", rank, " are on different hosts");
    if (!facts.why_no_peer.empty()) return absl::StrCat("rank ", rank, ": ", facts.why_no_peer);
  }
  return "";
}

absl::StatusOr<std::string> RatePeer(const DeviceSituation& situation) {
  return MeritUnless(ObjectionToPeers(situation), "the ranks' GPUs map each other's memory");
}

absl::StatusOr<DeviceTransport> ConnectPeer(const DeviceSupport::Request& request, const NcclLoader&) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PeerCommunicator> communicator,
                         PeerCommunicator::Create({.rank = request.rank,
                                                   .size = static_cast<int>(request.facts.size()),
                                                   .device = request.device,
                                                   .stream = request.stream,
                                                   .host = request.host,
                                                   .marks = request.marks,
                                                   .job_failure = request.job_failure}));
  PeerCommunicator* const made = communicator.get();
  return DeviceTransport{.communicator = std::move(communicator),
                         .failure = [made] { return made->failure(); },
                         .abort = [made] { made->Abort(); }};
}

// Rates the backend that sends tensors through pinned memory and the host communicator.
absl::StatusOr<std::string> RateStaged(const DeviceSituation&) { return "through pinned memory of the host"; }

absl::StatusOr<DeviceTransport> ConnectStaged(const DeviceSupport::Request& request, const NcclLoader&) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                         StagedCommunicator::Create({.device = request.device,
                                                     .stream = request.stream,
                                                     .host = request.host,
                                                     .marks = request.marks,
                                                     .job_failure = request.job_failure}));
  return DeviceTransport{.communicator = std::move(communicator)};
}

// Rate the backends that combine NCCL on each host with pinned memory, or with NCCL, between hosts.
absl::StatusOr<std::string> RateHierarchicalStaged(const DeviceSituation& situation) {
  std::string objection = ObjectionToLevels(situation);
  if (objection.empty()) objection = ObjectionToNcclOnHosts(situation);
  return MeritUnless(std::move(objection), "NCCL on each host, across hosts through pinned memory");
}

absl::StatusOr<DeviceTransport> ConnectHierarchicalStaged(const DeviceSupport::Request& request,
                                                          const NcclLoader& nccl) {
  return ConnectHierarchy(request, nccl, DeviceHierarchyOptions::Across::kStaged);
}

absl::StatusOr<std::string> RateHierarchicalNccl(const DeviceSituation& situation) {
  std::string objection = ObjectionToLevels(situation);
  if (objection.empty()) objection = ObjectionToNccl(situation, AllRanks(situation));
  return MeritUnless(std::move(objection), "NCCL on each host, and NCCL across hosts");
}

absl::StatusOr<DeviceTransport> ConnectHierarchicalNccl(const DeviceSupport::Request& request, const NcclLoader& nccl) {
  return ConnectHierarchy(request, nccl, DeviceHierarchyOptions::Across::kNccl);
}

constexpr absl::string_view kMemoryBackend = "nccl";  // the backend that has memory for gradients

constexpr DeviceBackend kDeviceBackends[] = {
    {.name = kMemoryBackend,
     .help = "tensors in the memory of GPUs, one a rank",
     .score = 200,
     .rate = RateNccl,
     .connect = ConnectNccl,
     .connect_directly = ConnectNcclDirectly},
    {.name = "hierarchical-staged",
     .help = "NCCL on each host, the hosts' backend between hosts",
     .score = 150,
     .rate = RateHierarchicalStaged,
     .connect = ConnectHierarchicalStaged},
    {.name = "staged",
     .help = "tensors in the memory of GPUs, through the host and one of the others",
     .score = 100,
     .rate = RateStaged,
     .connect = ConnectStaged},
    // The score is low, because NCCL by itself already uses the fast paths within a host. Users can choose this backend
    // if they have measured a gain.
    {.name = "hierarchical-nccl",
     .help = "NCCL on each host, and NCCL between hosts",
     .score = 50,
     .rate = RateHierarchicalNccl,
     .connect = ConnectHierarchicalNccl},
    // The score is low, because this backend has not run on a GPU yet. Users can choose it.
    {.name = "peer",
     .help = "GPUs of one host that map each other's memory, also several ranks on one GPU",
     .score = 40,
     .rate = RatePeer,
     .connect = ConnectPeer},
};

}  // namespace

absl::Span<const DeviceBackend> AllDeviceBackends() { return kDeviceBackends; }

std::shared_ptr<DeviceSupport> DeviceBackends::Create(const DeviceSettings& settings, const std::string& hostname) {
  Libraries libraries = {.cuda = [path = settings.cuda_plugin] { return LoadCudaPlugin(path); },
                         .nccl = [path = settings.nccl_library, toolkit = settings.cuda_home,
                                  python = settings.python] { return LoadNccl(path, toolkit, python); }};
  const NcclSettings of_nccl = {.order = settings.reproducible ? SumOrder::kOfRanks : SumOrder::kOfNccl,
                                .windows = settings.nccl_windows ? NcclWindows::kSymmetric : NcclWindows::kNone,
                                .reduces_in_place = settings.reduce_in_place,
                                .lane_memory_mb = settings.lane_memory_mb,
                                .gradient_memory_mb = settings.gradient_memory_mb};
  if (!settings.nccl_host.empty()) {
    return std::make_shared<DeviceBackends>(std::move(libraries), settings.backend, settings.nccl_host,
                                            Identity::kPlace, of_nccl);
  }
  // Identifies the host as NCCL does: by its name and its boot id, because several machines may have the same name.
  return std::make_shared<DeviceBackends>(std::move(libraries), settings.backend, absl::StrCat(hostname, "/", BootId()),
                                          Identity::kUuid, of_nccl);
}

std::string DeviceBackends::Facts(Device& device) {
  DeviceFacts facts = {.host = host_,
                       .wanted = wanted_,
                       .order = nccl_.order == SumOrder::kOfRanks ? "ranks" : "",
                       .windows = nccl_.windows == NcclWindows::kSymmetric ? "symmetric" : "",
                       .events = events_,
                       .memory_mb = MegabytesField(nccl_.lane_memory_mb),
                       .gradient_mb = MegabytesField(nccl_.gradient_memory_mb),
                       .in_place = nccl_.reduces_in_place ? "adjacent" : ""};
  ronda_cuda_device description = {};
  // If the device's identity is unknown, leaves these fields empty. Two such ranks on one host count as sharing a
  // device.
  if (device.plugin().describe(device.ordinal(), &description) == 0) {
    facts.pci_bus = description.pci_bus;
    if (identity_ == Identity::kUuid) facts.uuid = description.uuid;
  }
  facts.why_no_peer = std::string(SharingUnit(device).status().message());
  const auto nccl = libraries_.nccl();
  if (nccl.ok()) {
    facts.nccl = (*nccl)->version;
  } else {
    facts.why_no_nccl = std::string(nccl.status().message());
  }
  return Encode(facts, kLongestFacts);
}

absl::StatusOr<DeviceTransport> DeviceBackends::Connect(const Request& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> facts, DecodeAll(request.facts));
  const std::vector<BackendRating> ratings =
      RateDeviceBackends({.facts = facts, .hosts = request.levels == nullptr ? nullptr : &request.levels->hosts});
  const std::string& wanted = facts.front().wanted;
  RONDA_ASSIGN_OR_RETURN(const absl::string_view name, ChooseDeviceBackend(ratings, wanted));
  Log(LogLevel::kInfo, request.rank,
      absl::StrCat("tensors on ", request.device->name(), " go over ", name,
                   wanted.empty() ? "" : ", as RONDA_DEVICE_BACKEND says", "; of ", ToString(ratings)));
  if (request.rank == 0 && !facts.front().gradient_mb.empty() && name != kMemoryBackend) {
    Log(LogLevel::kWarning, request.rank,
        absl::StrCat("there is no memory for gradients (RONDA_GRADIENT_MEMORY_MB): tensors go over ", name,
                     ", and not ", kMemoryBackend));
  }
  return FindDeviceBackend(name)->connect(request, libraries_.nccl);
}

absl::StatusOr<std::unique_ptr<DirectTransport>> DeviceBackends::ConnectDirectly(const DirectRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> facts, DecodeAll(request.facts));
  const absl::StatusOr<absl::string_view> name =
      ChooseDeviceBackend(RateDeviceBackends({.facts = facts}), facts.front().wanted);
  if (!name.ok() || FindDeviceBackend(*name)->connect_directly == nullptr) return nullptr;
  return FindDeviceBackend(*name)->connect_directly(request, libraries_.nccl);
}

}  // namespace ronda
