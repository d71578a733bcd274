// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_world.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "runtime/shm/epoch_search.h"
#include "runtime/shm/layout.h"
#include "runtime/shm/shm_attach.h"
#include "runtime/shm/shm_file.h"
#include "runtime/shm/shm_link.h"
#include "tests/runtime/shm/published_memory.h"
#include "tests/testing/process_world.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

using testing::ForkedChild;

constexpr absl::Duration kShort = absl::Milliseconds(300);

class ShmWorldTest : public ::testing::Test {
 protected:
  ~ShmWorldTest() override { shm_unlink(Name().c_str()); }

  // Each test has its own job, and so its own name under /dev/shm.
  std::string JobId() const {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    return absl::StrCat(absl::StrReplaceAll(test, {{"/", "-"}}), "-", test_pid_);
  }
  std::string Name() const { return absl::StrCat("/ronda-", JobId()); }
  std::string Path() const { return "/dev/shm" + Name(); }
  bool IsPublished() const { return testing::IsLink(Path()); }

  ShmWorld::Options OptionsOf(RankId rank, int size) const {
    return {.job_id = JobId(), .rank = rank, .size = size, .hostname = "testhost", .slot_bytes = 4096, .slot_count = 3};
  }

  // Connects one rank for each of `options`, each on its own thread.
  static std::vector<absl::StatusOr<std::shared_ptr<ShmWorld>>> ConnectAll(
      const std::vector<ShmWorld::Options>& options) {
    std::vector<absl::StatusOr<std::shared_ptr<ShmWorld>>> worlds(options.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < options.size(); ++i) {
      threads.emplace_back([&, i] { worlds[i] = ShmWorld::Connect(options[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    return worlds;
  }

  const pid_t test_pid_ = getpid();  // the test's pid, also in children

  static void ExpectError(const absl::Status& status, absl::StatusCode code, absl::string_view text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }

  // Creates a file at the path of the job's shared memory.
  void PutFile(const std::string& content) const {
    const int fd = shm_open(Name().c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    close(fd);
  }

  // Returns how many deleted files in /dev/shm two ranks share, or an error text.
  std::string RemovedFilesOfRanksWithoutMemfds() {
    ForkedChild child([this](const ForkedChild::SayReady&) -> std::string {
      testing::RefuseCall(SYS_memfd_create, EPERM);
      const auto worlds = ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)});
      if (!worlds[0].ok() || !worlds[1].ok()) return worlds[0].status().ToString() + worlds[1].status().ToString();
      int found = 0;
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const std::string target = std::filesystem::read_symlink(entry.path(), error);
        if (EpochInLink(target, JobId()) == 0 && absl::StartsWith(target, "/dev/shm/")) ++found;
      }
      return absl::StrCat(found, std::filesystem::exists(Path()) || IsPublished() ? "a name is left" : "");
    });
    return child.Result();
  }
};

// Any user can create a link, but a false link does no harm, because the ranks check where it leads.
TEST_F(ShmWorldTest, LinksOfOtherUsersAreLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
  std::vector<std::string> paths;
  for (const std::string& folder : ShmFolders()) {
    paths.push_back(folder + Name());
    ASSERT_EQ(symlink("/proc/1/fd/1 1 0 0 pid:[1]", paths.back().c_str()), 0) << paths.back();
    ASSERT_EQ(lchown(paths.back().c_str(), 65534, 65534), 0);
  }
  std::vector<ShmWorld::Options> options = {OptionsOf(0, 2), OptionsOf(1, 2)};
  for (ShmWorld::Options& each : options) each.connect_timeout = kShort;
  const auto refused = ConnectAll(options);
  ExpectError(refused[0].status(), absl::StatusCode::kPermissionDenied, Path() + " belongs to user 65534");
  ExpectError(refused[1].status(), absl::StatusCode::kDeadlineExceeded, paths.back() + " belongs to user 65534");

  ASSERT_EQ(unlink(paths.back().c_str()), 0);
  for (const auto& world : ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)})) EXPECT_TRUE(world.ok()) << world.status();
  EXPECT_FALSE(testing::IsLink(paths.back()));
  for (size_t i = 0; i + 1 < paths.size(); ++i) EXPECT_EQ(unlink(paths[i].c_str()), 0) << paths[i];
}

TEST_F(ShmWorldTest, LinksOfAnotherPidNamespaceAreLeftAlone) {
  ShmLink link = ShmLinkOfThisProcess(0, 0);
  link.pid_namespace = "pid:[1]";
  ASSERT_TRUE(PublishShmLink(Path(), link).ok());
  ShmWorld::Options lone = OptionsOf(1, 2);
  lone.connect_timeout = kShort;
  ExpectError(ShmWorld::Connect(lone).status(), absl::StatusCode::kDeadlineExceeded,
              Path() + " was made in the pid namespace pid:[1]");
  for (const auto& world : ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)})) EXPECT_TRUE(world.ok()) << world.status();
  EXPECT_TRUE(IsPublished());
}

TEST_F(ShmWorldTest, LeftoversOfAnotherPidNamespaceAreRemoved) {
  ForkedChild container([this](const ForkedChild::SayReady& say_ready) -> std::string {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return "SKIP";
    ForkedChild creator([&](const ForkedChild::SayReady&) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      say_ready();  // its copy of the pipe
      return ShmWorld::Connect(OptionsOf(0, 2)).status().ToString();
    });
    while (!IsPublished() && waitpid(creator.pid(), nullptr, WNOHANG) == 0) std::this_thread::yield();
    say_ready();
    return creator.Result();
  });
  container.WaitUntilReady();
  if (!IsPublished() && container.Result() == "SKIP") GTEST_SKIP() << "needs the right to make a pid namespace";
  EXPECT_TRUE(absl::IsPermissionDenied(ReadShmLink(Path()).status()));
  RemoveShmLeftovers("/dev/shm");
  EXPECT_TRUE(IsPublished());

  container.Kill(SIGKILL);
  while (IsPublished()) RemoveShmLeftovers("/dev/shm");
}

// Only links on a tmpfs are locked: another folder may be shared with another machine, which does not see the lock.
TEST_F(ShmWorldTest, OnlyLinksOnATmpfsAreLocked) {
  ShmLink link = ShmLinkOfThisProcess(0, 0);
  const UniqueFd lock = LockForLink("/dev/shm", &link);
  EXPECT_TRUE(link.is_locked);
  LockForLink("/proc", &link);
  EXPECT_FALSE(link.is_locked);
}

TEST_F(ShmWorldTest, OtherUsersCannotOpenTheMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ForkedChild creator([this](const ForkedChild::SayReady&) {
    return std::string(ShmWorld::Connect(OptionsOf(0, 2)).status().message());
  });
  while (testing::AttachedRanks(Path()) < 1) std::this_thread::yield();
  ForkedChild other_user([this](const ForkedChild::SayReady&) -> std::string {
    const std::string target = ReadShmLink(Path())->Target();
    if (setresuid(65534, 65534, 65534) != 0) return "this process has kept its user";
    ShmWorld::Options options = OptionsOf(1, 2);
    options.connect_timeout = kShort;
    return absl::StrCat(ShmFile::Open(target).status().ToString(), "\n",
                        ShmWorld::Connect(options).status().ToString());
  });
  const std::string report = other_user.Result();
  EXPECT_TRUE(absl::StartsWith(report, "PERMISSION_DENIED: cannot open /proc/")) << report;
  EXPECT_TRUE(absl::StrContains(report, "\nDEADLINE_EXCEEDED: rank 0 has not called init")) << report;
  EXPECT_TRUE(absl::StrContains(report, Path() + " belongs to user 0")) << report;
  EXPECT_EQ(testing::AttachedRanks(Path()), 1u);
}

// After a process changes its user, the kernel lets no other process of the new user open its files.
TEST_F(ShmWorldTest, ARankZeroThatLetsNoOtherProcessOpenItsMemoryIsToldOf) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto rank = [this](RankId rank) {
    return [this, rank](const ForkedChild::SayReady&) -> std::string {
      if (setresuid(65534, 65534, 65534) != 0) return "this process has kept its user";
      return ShmWorld::Connect(OptionsOf(rank, 2)).status().ToString();
    };
  };
  ForkedChild creator(rank(0));
  ForkedChild joiner(rank(1));
  const std::string report = joiner.Result();
  EXPECT_TRUE(absl::StartsWith(report, "PERMISSION_DENIED: cannot open /proc/")) << report;
  EXPECT_TRUE(absl::StrContains(report, "prctl(PR_SET_DUMPABLE, 1)")) << report;
}

TEST_F(ShmWorldTest, FilesThatOthersCouldOpenAreRefused) {
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  const std::string path = absl::StrCat("/proc/self/fd/", file.get());
  ASSERT_EQ(fchmod(file.get(), 0600), 0);
  EXPECT_TRUE(ShmFile::Open(path).ok());
  ASSERT_EQ(fchmod(file.get(), 0660), 0);
  ExpectError(ShmFile::Open(path).status(), absl::StatusCode::kPermissionDenied, "mode 0660");
  ASSERT_EQ(fchmod(file.get(), 0600), 0);
  PutFile("with a name");
  ExpectError(ShmFile::Open(Path()).status(), absl::StatusCode::kPermissionDenied, "1 names");
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
  ASSERT_EQ(fchown(file.get(), 65534, 65534), 0);
  ExpectError(ShmFile::Open(path).status(), absl::StatusCode::kPermissionDenied, "a file of user 65534");
}

// If a process could shrink the shared memory, the ranks would die of SIGBUS.
TEST_F(ShmWorldTest, NoProcessCanCutTheMemory) {
  ForkedChild creator([this](const ForkedChild::SayReady&) {
    return std::string(ShmWorld::Connect(OptionsOf(0, 2)).status().message());
  });
  while (testing::AttachedRanks(Path()) < 1) std::this_thread::yield();
  const UniqueFd memory(open(ReadShmLink(Path())->Target().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(memory.valid());
  for (const off_t bytes : {off_t{0}, off_t{1} << 40}) {
    EXPECT_NE(ftruncate(memory.get(), bytes), 0);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST_F(ShmWorldTest, AllRanksMeetAndLeaveNoNameBehind) {
  const auto worlds = ConnectAll({OptionsOf(0, 3), OptionsOf(1, 3), OptionsOf(2, 3)});
  for (RankId rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(worlds[rank].ok()) << worlds[rank].status();
    EXPECT_EQ((*worlds[rank])->rank(), rank);
    EXPECT_EQ(ToString((*worlds[rank])->PeerOf(1)), absl::StrCat("rank 1 (host testhost, pid ", getpid(), ")"));
  }
  EXPECT_FALSE(IsPublished());
}

TEST_F(ShmWorldTest, PartOfAJobSpeaksOfRanksOfTheJob) {
  std::vector<ShmWorld::Options> options = {OptionsOf(0, 2), OptionsOf(1, 2)};
  for (ShmWorld::Options& rank : options) {
    rank.ranks = {3, 5};
    rank.job_size = 8;
  }
  const auto worlds = ConnectAll(options);
  ASSERT_TRUE(worlds[0].ok() && worlds[1].ok()) << worlds[0].status() << worlds[1].status();
  ShmWorld& first = **worlds[0];
  ShmWorld& second = **worlds[1];
  EXPECT_EQ(second.rank(), 1);
  EXPECT_EQ(first.JobRank(1), 5);
  EXPECT_EQ(ToString(first.PeerOf(1)), absl::StrCat("rank 5 (host testhost, pid ", getpid(), ")"));

  ASSERT_EQ(first.flights()->size(), 8);
  second.flights()->Of(5).Record(FlightKind::kStarted, OpType::kAllreduce, "seen next door", 4);
  second.flights()->Of(7).Record(FlightKind::kStarted, OpType::kAllreduce, "heard from far", 4);
  EXPECT_EQ(first.flights()->Of(5).Last()->name, "seen next door");
  EXPECT_FALSE(first.flights()->Of(7).Last().has_value()) << "what was heard of other hosts is each rank's own";
  EXPECT_EQ(second.flights()->Of(7).Last()->name, "heard from far");

  second.Fail(absl::InternalError("broken"));
  ExpectError(first.failure(), absl::StatusCode::kInternal, "rank 5 (host testhost, pid ");
}

TEST_F(ShmWorldTest, FailureOfAnotherHostIsTakenOverAsItIs) {
  const auto worlds = ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)});
  ASSERT_TRUE(worlds[0].ok() && worlds[1].ok()) << worlds[0].status() << worlds[1].status();
  (*worlds[1])->FailWith(absl::UnavailableError("rank 9 (host far, pid 7) is gone"));
  (*worlds[0])->FailWith(absl::UnavailableError("another"));
  EXPECT_EQ((*worlds[0])->failure(), absl::UnavailableError("rank 9 (host far, pid 7) is gone"));
}

TEST_F(ShmWorldTest, RanksOfTheJobMustFitTheRanksHere) {
  const std::vector<std::vector<RankId>> bad = {{1}, {1, 1}, {2, 1}, {-1, 1}, {1, 8}, {0, 1, 2}};
  for (const std::vector<RankId>& ranks : bad) {
    ShmWorld::Options options = OptionsOf(0, 2);
    options.ranks = ranks;
    options.job_size = 8;
    ExpectError(ShmWorld::Connect(options).status(), absl::StatusCode::kInvalidArgument, "ranks of a job of 8");
    ExpectError(ShmWorld::ConnectInProcess(options).status(), absl::StatusCode::kInvalidArgument,
                "ranks of a job of 8");
  }
}

TEST_F(ShmWorldTest, MissingRanksAreNamedToAll) {
  std::vector<ShmWorld::Options> options = {OptionsOf(0, 4), OptionsOf(2, 4)};
  for (ShmWorld::Options& rank : options) rank.connect_timeout = kShort;
  for (const auto& world : ConnectAll(options)) {
    ExpectError(world.status(), absl::StatusCode::kDeadlineExceeded, "ranks 1, 3 of 4 did not start within 300ms");
  }
  EXPECT_FALSE(IsPublished());
}

TEST_F(ShmWorldTest, MissingCreatorIsNamed) {
  ShmWorld::Options options = OptionsOf(1, 2);
  options.connect_timeout = kShort;
  const absl::Status status = ShmWorld::Connect(options).status();
  ExpectError(status, absl::StatusCode::kDeadlineExceeded, "rank 0 has not called init within 300ms");
  ExpectError(status, absl::StatusCode::kDeadlineExceeded, "/dev/shm or /tmp/ronda-");
}

TEST_F(ShmWorldTest, RanksThatDisagreeAreToldBothSizes) {
  ShmWorld::Options other = OptionsOf(1, 2);
  other.slot_bytes = 8192;
  for (const auto& world : ConnectAll({OptionsOf(0, 2), other})) {
    ExpectError(world.status(), absl::StatusCode::kFailedPrecondition, "slots of 4096 bytes was made by rank 0");
    ExpectError(world.status(), absl::StatusCode::kFailedPrecondition,
                "slots of 8192 bytes are expected here: give every rank the same size");
  }
  EXPECT_FALSE(IsPublished());
}

TEST_F(ShmWorldTest, TwoProcessesCannotBeOneRank) {
  for (const auto& world : ConnectAll({OptionsOf(0, 3), OptionsOf(1, 3), OptionsOf(1, 3)})) {
    ExpectError(world.status(), absl::StatusCode::kAlreadyExists,
                "rank 1 has already been taken by the process with pid");
  }
}

TEST_F(ShmWorldTest, BadOptionsAreRefused) {
  ShmWorld::Options options = OptionsOf(0, 2);
  options.slot_bytes = 100;
  ExpectError(ShmWorld::Connect(options).status(), absl::StatusCode::kInvalidArgument, "not 100");
  options = OptionsOf(0, 2);
  options.slot_count = 2;
  ExpectError(ShmWorld::Connect(options).status(), absl::StatusCode::kInvalidArgument, "not 2");
  options = OptionsOf(2, 2);
  ExpectError(ShmWorld::Connect(options).status(), absl::StatusCode::kInvalidArgument, "rank 2");
  options = OptionsOf(0, 0);
  ExpectError(ShmWorld::Connect(options).status(), absl::StatusCode::kInvalidArgument, "not 0");
  options = OptionsOf(0, 2);
  options.job_id = "../x";
  ExpectError(ShmWorld::Connect(options).status(), absl::StatusCode::kInvalidArgument, "'../x'");
}

TEST_F(ShmWorldTest, ADamagedLinkIsRefused) {
  PutFile("no link");
  ExpectError(ShmWorld::Connect(OptionsOf(1, 2)).status(), absl::StatusCode::kFailedPrecondition, "is damaged");
  ExpectError(ShmWorld::Connect(OptionsOf(0, 2)).status(), absl::StatusCode::kAlreadyExists, "is damaged");
  EXPECT_TRUE(std::filesystem::exists(Path())) << "removed what was not its own";
  ASSERT_EQ(unlink(Path().c_str()), 0);
  for (const char* text : {"/proc/1/fd/1", "/proc/1/fd/1 1 0pid:[1]", "/proc/+1/fd/1 1 0 x", "/proc/1/fd/1/ 1 0 x"}) {
    ASSERT_EQ(symlink(text, Path().c_str()), 0);
    ExpectError(ReadShmLink(Path()).status(), absl::StatusCode::kFailedPrecondition, "is damaged");
    ASSERT_EQ(unlink(Path().c_str()), 0);
  }
}

TEST_F(ShmWorldTest, MemoryOfAnotherVersionIsRefused) {
  ShmFile file;
  ASSERT_EQ(file.Create("", Name()), 0);
  ASSERT_EQ(file.Allocate(kShmPageBytes), 0);
  ASSERT_TRUE(PublishShmLink(Path(), ShmLinkOfThisProcess(file.descriptor(), 0)).ok());
  ExpectError(ShmWorld::Connect(OptionsOf(1, 2)).status(), absl::StatusCode::kFailedPrecondition,
              "was not made by this version of Ronda");
  ExpectError(ShmWorld::Connect(OptionsOf(0, 2)).status(), absl::StatusCode::kAlreadyExists, "exists");
}

// An earlier rank 0 may have left a link to another file behind, because it could not remove the link.
TEST_F(ShmWorldTest, ALinkToAnotherFileOfALivingProcessIsReplaced) {
  const UniqueFd other(memfd_create("other", MFD_CLOEXEC));
  for (const int descriptor : {other.get(), 1 << 20}) {
    ASSERT_TRUE(PublishShmLink(Path(), ShmLinkOfThisProcess(descriptor, 0)).ok());
    for (const auto& world : ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)})) EXPECT_TRUE(world.ok()) << world.status();
    EXPECT_FALSE(IsPublished());
  }
}

// Without memfds, rank 0 creates a file. If rank 0 is killed right after that, the empty file remains.
TEST_F(ShmWorldTest, AnEmptyFileIsReplaced) {
  PutFile("");
  for (const auto& world : ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)})) EXPECT_TRUE(world.ok()) << world.status();
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(ShmWorldTest, LeftoverOfAKilledJobIsReplaced) {
  {
    ForkedChild creator([this](const ForkedChild::SayReady&) {
      return std::string(ShmWorld::Connect(OptionsOf(0, 2)).status().message());
    });
    while (testing::AttachedRanks(Path()) < 1) std::this_thread::yield();
    creator.Kill(SIGKILL);
  }
  ASSERT_TRUE(IsPublished());
  for (const auto& world : ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)})) EXPECT_TRUE(world.ok()) << world.status();
  EXPECT_FALSE(IsPublished());
}

TEST_F(ShmWorldTest, DeathOfTheCreatorWhileRanksComeTogetherIsNamed) {
  ForkedChild creator([this](const ForkedChild::SayReady&) {
    return std::string(ShmWorld::Connect(OptionsOf(0, 3)).status().message());
  });
  ForkedChild joiner([this](const ForkedChild::SayReady&) {
    return std::string(ShmWorld::Connect(OptionsOf(1, 3)).status().message());
  });
  while (testing::AttachedRanks(Path()) < 2) std::this_thread::yield();
  creator.Kill(SIGKILL);
  EXPECT_EQ(joiner.Result(),
            absl::StrCat("rank 0 (host testhost, pid ", creator.pid(), ") died while the ranks came together"));
}

// Gives this process, a child of the test, its own /dev/shm, whose mount has `options` and `flags`. Shared memory can
// be in no other folder, unless TMPDIR names one. Returns false if the child is not allowed to mount file systems.
bool EnterDevShm(const std::string& options, unsigned long flags = 0) {
  if (unshare(CLONE_NEWNS) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (setenv("TMPDIR", "/dev/shm", 1) != 0) return false;
  return mount("tmpfs", "/dev/shm", "tmpfs", flags, options.c_str()) == 0 &&
         mount("tmpfs", "/tmp", "tmpfs", MS_RDONLY, "") == 0;
}

// Like EnterDevShm, with a /dev/shm of 64 KiB, of which `free_bytes` are free. Returns nullopt if EnterDevShm returns
// false.
std::optional<std::string> EnterTinyDevShm(size_t free_bytes) {
  if (!EnterDevShm("size=64k")) return std::nullopt;
  if (free_bytes == 0) {
    const int fd = shm_open("/filler", O_CREAT | O_RDWR, 0600);
    if (posix_fallocate(fd, 0, 64 << 10) != 0) return "cannot fill /dev/shm";
    close(fd);
  }
  return "";
}

class NoDevShmTest : public ShmWorldTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Ways, NoDevShmTest, ::testing::Values("read-only", "closed", "full", "missing"));

TEST_P(NoDevShmTest, RanksMeetInAnotherFolder) {
  const std::string way = GetParam();
  ForkedChild child([&](const ForkedChild::SayReady&) -> std::string {
    if (!EnterDevShm(way == "full" ? "size=4k" : "", way == "read-only" ? MS_RDONLY : 0)) return "SKIP";
    // Mounts a tmpfs at /mnt, and points TMPDIR to it.
    if (mount("tmpfs", "/mnt", "tmpfs", 0, "mode=1777") != 0) return "SKIP";
    setenv("TMPDIR", "/mnt", 1);
    if (way == "missing" && mount("tmpfs", "/dev", "tmpfs", 0, "") != 0) return "SKIP";
    if (way == "closed" && (chmod("/dev/shm", 0) != 0 || setresuid(65534, 65534, 65534) != 0)) return "SKIP";
    std::string report;
    for (const auto& world : ConnectAll({OptionsOf(0, 2), OptionsOf(1, 2)})) {
      absl::StrAppend(&report, world.status().ToString(), " ");
    }
    return absl::StrCat(report, testing::IsLink("/mnt" + Name()) ? "the link is left" : "");
  });
  const std::string report = child.Result();
  if (report == "SKIP") GTEST_SKIP() << "needs the right to mount a file system";
  EXPECT_EQ(report, "OK OK ");
}

TEST_F(ShmWorldTest, WithAShortLimitOnFilesTheSlotsAreSmaller) {
  const ShmGeometry small = {.size = 2, .slot_bytes = size_t{20} << 10, .slot_count = 3};
  ForkedChild child([&](const ForkedChild::SayReady&) -> std::string {
    const rlimit limit = {.rlim_cur = ShmView::TotalBytes(small), .rlim_max = ShmView::TotalBytes(small)};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit can be set";
    std::vector<ShmWorld::Options> options = {OptionsOf(0, 2), OptionsOf(1, 2)};
    for (ShmWorld::Options& each : options) each.slot_bytes = size_t{64} << 10;
    std::string report;
    for (const auto& world : ConnectAll(options)) {
      absl::StrAppend(&report,
                      world.ok() ? absl::StrCat((*world)->options().slot_bytes, " ") : world.status().ToString());
    }
    return report;
  });
  EXPECT_EQ(child.Result(), "16384 16384 ");
}

// The memory of the job is not a file in /dev/shm, so a full /dev/shm does not matter.
TEST_F(ShmWorldTest, AFullDevShmIsNoLackOfMemory) {
  ForkedChild child([this](const ForkedChild::SayReady&) -> std::string {
    const std::optional<std::string> entered = EnterTinyDevShm(0);
    if (!entered.has_value()) return "SKIP";
    const UniqueFd warnings(memfd_create("warnings", MFD_CLOEXEC));
    if (dup2(warnings.get(), STDERR_FILENO) < 0) return "warnings cannot be kept";
    std::string report = *entered;
    for (const auto& world : ConnectAll({OptionsOf(0, 8), OptionsOf(1, 8), OptionsOf(2, 8), OptionsOf(3, 8),
                                         OptionsOf(4, 8), OptionsOf(5, 8), OptionsOf(6, 8), OptionsOf(7, 8)})) {
      absl::StrAppend(&report, world.status().ToString(), " ");
    }
    return absl::StrCat(report, *ReadFile(absl::StrCat("/proc/self/fd/", warnings.get())));
  });
  const std::string report = child.Result();
  if (report == "SKIP") GTEST_SKIP() << "needs the right to mount a file system";
  EXPECT_EQ(report, "OK OK OK OK OK OK OK OK ");
}

TEST_F(ShmWorldTest, WithoutMemfdsTheEpochSearchFindsARemovedFile) {
  EXPECT_EQ(RemovedFilesOfRanksWithoutMemfds(), "2");
}

// Without memfds, rank 0 creates a file, which briefly has the name of the link.
TEST_F(ShmWorldTest, WithoutMemfdsALeftoverDoesNotKeepTheFileFromItsFolder) {
  ShmLink leftover = ShmLinkOfThisProcess(3, 0);
  leftover.creator = {};
  ASSERT_TRUE(PublishShmLink(Path(), leftover).ok());
  EXPECT_EQ(RemovedFilesOfRanksWithoutMemfds(), "2");
}

TEST_F(ShmWorldTest, WithoutRoomForTheSlotsTheyAreSmaller) {
  const ShmGeometry small = {.size = 2, .slot_bytes = size_t{20} << 10, .slot_count = 3};
  ForkedChild child([&](const ForkedChild::SayReady&) -> std::string {
    if (!EnterDevShm(absl::StrCat("size=", ShmView::TotalBytes(small)))) return "SKIP";
    testing::RefuseCall(SYS_memfd_create, EPERM);
    std::vector<ShmWorld::Options> options = {OptionsOf(0, 2), OptionsOf(1, 2)};
    for (ShmWorld::Options& each : options) each.slot_bytes = size_t{64} << 10;
    std::string report;
    for (const auto& world : ConnectAll(options)) {
      absl::StrAppend(&report,
                      world.ok() ? absl::StrCat((*world)->options().slot_bytes, " ") : world.status().ToString());
    }
    return absl::StrCat(report, IsPublished() ? "the link is left" : "");
  });
  const std::string report = child.Result();
  if (report == "SKIP") GTEST_SKIP() << "needs the right to mount a file system";
  EXPECT_EQ(report, "16384 16384 ");
}

class FullDevShmTest : public ShmWorldTest, public ::testing::WithParamInterface<size_t> {};

INSTANTIATE_TEST_SUITE_P(FreeBytes, FullDevShmTest, ::testing::Values(0, 64 << 10));

TEST_P(FullDevShmTest, AllRanksLearnHowMuchIsMissing) {
  ForkedChild child([this](const ForkedChild::SayReady&) -> std::string {
    const std::optional<std::string> entered = EnterTinyDevShm(GetParam());
    if (!entered.has_value()) return "SKIP";
    testing::RefuseCall(SYS_memfd_create, EPERM);
    std::string report = *entered;
    for (const auto& world : ConnectAll({OptionsOf(0, 8), OptionsOf(1, 8)})) {
      absl::StrAppend(&report, world.status().ToString(), "\n");
    }
    return absl::StrCat(report, IsPublished() ? "the link is left" : "");
  });
  const std::string report = child.Result();
  if (report == "SKIP") GTEST_SKIP() << "needs the right to mount a file system";
  const std::string available = absl::StrCat("/dev/shm has ", GetParam(), " bytes available");
  const std::vector<std::string> lines = {report.substr(0, report.find('\n')), report.substr(report.find('\n') + 1)};
  for (const std::string& line : lines) {
    EXPECT_TRUE(absl::StartsWith(line, "RESOURCE_EXHAUSTED")) << report;
    EXPECT_TRUE(absl::StrContains(line, available)) << report;
    EXPECT_TRUE(absl::StrContains(line, "the job needs")) << report;
  }
  EXPECT_TRUE(absl::StrContains(lines[0], "--shm-size")) << report;
  EXPECT_FALSE(absl::StrContains(report, "the link is left"));
}

}  // namespace
}  // namespace ronda
