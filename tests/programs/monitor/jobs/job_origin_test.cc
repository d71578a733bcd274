// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_origin.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/unique_fd.h"

namespace ronda {
namespace {

// A process of the shell `program` with the name `name`, and its child, which runs until this object ends.
class Family {
 public:
  Family(const std::string& program, const std::string& name) {
    int input[2] = {};
    int output[2] = {};
    EXPECT_EQ(pipe2(input, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(output, O_CLOEXEC), 0);
    parent_ = fork();
    if (parent_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      execl(program.c_str(), name.c_str(), "-c", "/bin/sh -c 'echo $$; read line'; exit", nullptr);
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_.Reset(input[1]);
    const UniqueFd out(output[0]);
    std::string text;
    for (char c = 0; read(out.get(), &c, 1) == 1 && c != '\n';) text += c;
    EXPECT_TRUE(absl::SimpleAtoi(text, &child_)) << text;
  }
  ~Family() {
    input_.Reset();
    waitpid(parent_, nullptr, 0);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  pid_t parent() const { return parent_; }
  pid_t child() const { return child_; }

 private:
  pid_t parent_ = 0;
  pid_t child_ = 0;
  UniqueFd input_;
};

TEST(LauncherOfTest, RondarunIsKnownByEachOfItsNames) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/names.", getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file("/bin/sh", folder + "/rondarun");
  std::filesystem::create_symlink("/bin/sh", folder + "/horovodrun");
  const Family by_program(folder + "/rondarun", "train");
  EXPECT_EQ(LauncherOf(by_program.child()), by_program.parent());
  const Family by_link(folder + "/horovodrun", folder + "/horovodrun");
  EXPECT_EQ(LauncherOf(by_link.child()), by_link.parent());
  const Family replaced(folder + "/rondarun", "train");
  std::filesystem::remove(folder + "/rondarun");
  EXPECT_EQ(LauncherOf(replaced.child()), replaced.parent());
  const Family of_another("/bin/sh", "rondarunner");
  EXPECT_EQ(LauncherOf(of_another.child()), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ronda
