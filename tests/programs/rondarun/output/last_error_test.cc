// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/output/last_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

std::string LastOf(absl::string_view text) {
  LastError error;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) error.Add(line);
  return error.text();
}

constexpr char kTraceback[] =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    step()\n"
    "    ^^^^^^\n";

TEST(LastErrorTest, LastLineThatIsNotBlank) {
  EXPECT_EQ(LastOf(""), "");
  EXPECT_EQ(LastOf("first\ndisk on fire\r\n \n"), "disk on fire");
}

TEST(LastErrorTest, ExceptionIsItsTypeAndFirstLine) {
  EXPECT_EQ(LastOf(absl::StrCat(kTraceback,
                                "RuntimeError: CUDA error: an illegal memory access was encountered\n"
                                "CUDA kernel errors might be asynchronously reported at some other API call.\n"
                                "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n")),
            "RuntimeError: CUDA error: an illegal memory access was encountered");
  EXPECT_EQ(LastOf(absl::StrCat(kTraceback, "ValueError: bad sample\nnote: in file 7\n")), "ValueError: bad sample");
}

TEST(LastErrorTest, MessageMayBeginOnTheNextLine) {
  EXPECT_EQ(LastOf(absl::StrCat(kTraceback,
                                "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 "
                                "terminated with the following error:\nmore\n")),
            "torch.multiprocessing.spawn.ProcessRaisedException: -- Process 0 terminated with the following error:");
}

TEST(LastErrorTest, LinesThatLibrariesPrintAtTheEndDoNotReplaceAnException) {
  EXPECT_EQ(LastOf(absl::StrCat("loading\n", kTraceback, "KeyError: 'lr'\nrun summary: 12 files uploaded\n")),
            "KeyError: 'lr'");
  EXPECT_EQ(LastOf(absl::StrCat(kTraceback,
                                "KeyError: 'lr'\n"
                                "Exception ignored in: <function Pool.__del__ at 0x7f0>\n",
                                kTraceback, "TypeError: 'NoneType' object is not callable\n")),
            "KeyError: 'lr'");
  EXPECT_EQ(LastOf(absl::StrCat("Exception in thread Thread-1 (read):\n", kTraceback, "OSError: no data\n")),
            "OSError: no data");
}

TEST(LastErrorTest, LinesOfRondasThreadsAreNoPartOfATraceback) {
  EXPECT_EQ(LastOf("Traceback (most recent call last):\n"
                   "  File \"train.py\", line 3, in <module>\n"
                   "ronda[0] E rank 1 (host a, pid 71) died\n"
                   "    step()\n"
                   "KeyError: 'lr'\n"),
            "KeyError: 'lr'");
  EXPECT_EQ(LastOf("ronda[0] E rank 1 (host a, pid 71) died\n"), "ronda[0] E rank 1 (host a, pid 71) died");
}

TEST(LastErrorTest, LastOfChainedExceptionsCounts) {
  EXPECT_EQ(LastOf(absl::StrCat(
                kTraceback, "KeyError: 'lr'\n\nDuring handling of the above exception, another exception occurred:\n\n",
                kTraceback, "SystemError: no settings\nbye\n")),
            "SystemError: no settings");
}

TEST(LastErrorTest, GroupOfExceptionsIsItsOwnLine) {
  EXPECT_EQ(LastOf("  + Exception Group Traceback (most recent call last):\n"
                   "  |   File \"train.py\", line 1, in <module>\n"
                   "  |     raise group\n"
                   "  | ExceptionGroup: two loaders failed (2 sub-exceptions)\n"
                   "  +-+---------------- 1 ----------------\n"
                   "    | Traceback (most recent call last):\n"
                   "    |   File \"train.py\", line 7, in load\n"
                   "    | ValueError: 1\n"
                   "    +---------------- 2 ----------------\n"
                   "    | TypeError: 2\n"
                   "    +------------------------------------\n"),
            "ExceptionGroup: two loaders failed (2 sub-exceptions)");
  // Lines after an incomplete traceback are still found.
  EXPECT_EQ(LastOf("  + Exception Group Traceback (most recent call last):\ndisk on fire\n"), "disk on fire");
}

TEST(LastErrorTest, PrefixOfTorchDistributedIsLeftOut) {
  EXPECT_EQ(LastOf("[rank1]: Traceback (most recent call last):\n"
                   "[rank1]:   File \"train.py\", line 3, in <module>\n"
                   "[rank1]: ValueError: bad sample\n"
                   "[rank1]:[W1128 ProcessGroup.cpp:1] Warning: destroy_process_group() was not called\n"),
            "ValueError: bad sample");
}

TEST(LastErrorTest, FatalErrorOfTheInterpreter) {
  EXPECT_EQ(LastOf("Fatal Python error: Segmentation fault\n\n"
                   "Current thread 0x00007f3a (most recent call first):\n"
                   "  File \"train.py\", line 2 in <module>\n\n"
                   "Extension modules: numpy.core._multiarray_umath (total: 1)\n"),
            "Fatal Python error: Segmentation fault");
}

TEST(LastErrorTest, WarningsOfPythonAreNoErrors) {
  EXPECT_EQ(LastOf("out of data\n"
                   "/usr/lib/python3.11/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There "
                   "appear to be 6 leaked semaphore objects to clean up at shutdown\n"
                   "  warnings.warn('resource_tracker: There appear to be %d '\n"),
            "out of data");
  EXPECT_EQ(LastOf("train.py:3: DeprecationWarning: old\nout of data\n"), "out of data");
  EXPECT_EQ(LastOf("error: the last Warning: level 3\n"), "error: the last Warning: level 3");
}

TEST(LastErrorTest, FatalErrorOfCppReplacesAnExceptionThatWasCaught) {
  EXPECT_EQ(LastOf(absl::StrCat(kTraceback,
                                "KeyError: 'lr'\nterminate called after throwing an instance of "
                                "'std::runtime_error'\n  what():  disk on fire\n")),
            "  what():  disk on fire");
}

TEST(LastErrorTest, ExceptionAfterWhichTheProgramGoesOnCountsForAWhile) {
  LastError error;
  for (const absl::string_view line : absl::StrSplit(absl::StrCat(kTraceback, "KeyError: 'lr'"), '\n')) error.Add(line);
  for (int step = 1; step < LastError::kMostBehind; ++step) error.Add("step");
  EXPECT_EQ(error.text(), "KeyError: 'lr'");
  error.Add("too many bad samples");
  EXPECT_EQ(error.text(), "too many bad samples");
}

}  // namespace
}  // namespace ronda
