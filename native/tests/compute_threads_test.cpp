// The number of threads for a pass.

#include "engine/base/compute_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/embedder.h"
#include "engine_parts.h"
#include "platform/machine.h"
#include "posix.h"

namespace eliza {
namespace {

TEST(BusyMachineGuard, AllowsAllThreadsWhileTheMachineIsIdle) {
    BusyMachineGuard guard;
    for (int64_t now = 0; now < 1'000'000; now += 10'000) {
        EXPECT_EQ(guard.limit(8, now), 8);
        guard.note_pass(now, 2000, 100);       // a short wait occasionally happens anywhere
        guard.note_pass(now, 5000000, 50000);  // also a longer one, in a long pass
    }
}

TEST(BusyMachineGuard, UsesOneThreadFor20TimesAsLongAsBusyPassesTook) {
    BusyMachineGuard guard;
    guard.note_pass(20'000, 20'000, 9000);
    EXPECT_EQ(guard.limit(8, 20'000), 8);
    guard.note_pass(50'000, 30'000, 9000);
    EXPECT_EQ(guard.limit(8, 50'000), 1);
    EXPECT_EQ(guard.limit(8, 1'049'999), 1);
    EXPECT_EQ(guard.limit(8, 1'050'000), 8);
    guard.note_pass(1'060'000, 10'000, 9000);  // still busy: one pass is enough after a pause
    EXPECT_EQ(guard.limit(8, 1'259'999), 1);
    EXPECT_EQ(guard.limit(8, 1'260'000), 8);
    guard.note_pass(1'270'000, 10'000, 0);  // no longer busy
    guard.note_pass(1'280'000, 10'000, 9000);
    EXPECT_EQ(guard.limit(8, 1'280'000), 8);
}

TEST(BusyMachineGuard, ForgivesOnePassThatLostItsCores) {
    BusyMachineGuard guard;
    for (int64_t now = 0; now < 1'000'000; now += 40'000) {
        EXPECT_EQ(guard.limit(8, now), 8);
        guard.note_pass(now, 20000, 9000);
        EXPECT_TRUE(guard.is_due(now + 1));  // the next pass decides
        guard.note_pass(now + 20000, 20000, 0);
        EXPECT_FALSE(guard.is_due(now + 2));
    }
}

TEST(BusyMachineGuard, MeasuresOnePassIn100Milliseconds) {
    BusyMachineGuard guard;
    EXPECT_TRUE(guard.is_due(200'000));
    EXPECT_FALSE(guard.is_due(299'999));
    EXPECT_TRUE(guard.is_due(300'000));
}

TEST(BusyMachineGuard, MeasuresEachPassWhileTheMachineIsBusy) {
    BusyMachineGuard guard;
    EXPECT_TRUE(guard.is_due(200'000));
    guard.note_pass(201'000, 500, 400);
    guard.note_pass(202'000, 500, 400);
    EXPECT_TRUE(guard.is_due(230'000));  // after the pause
    guard.note_pass(230'500, 500, 400);
    EXPECT_TRUE(guard.is_due(250'000));
    guard.note_pass(250'500, 500, 0);
    EXPECT_FALSE(guard.is_due(251'000));
}

TEST(UsefulThreadCount, GrowsWithTheWorkOfAPass) {
    EXPECT_EQ(useful_thread_count(8, 0, true), 1);
    EXPECT_EQ(useful_thread_count(8, 19'000'000, true), 1);
    EXPECT_EQ(useful_thread_count(8, 20'000'000, true), 2);
    EXPECT_EQ(useful_thread_count(8, 79'000'000, true), 7);
    EXPECT_EQ(useful_thread_count(8, 7'000'000'000, true), 8);
    EXPECT_EQ(useful_thread_count(8, UINT64_MAX, true), 8);
    EXPECT_EQ(useful_thread_count(8, 199'000'000, false), 1);
    EXPECT_EQ(useful_thread_count(8, 200'000'000, false), 2);
}

TEST(ModelProducts, LeaveOutOneRowOfLogitsIfTheHeadIsNarrow) {
    const auto narrow = test::load_model();                     // 136 bytes per row of the head
    const auto wide = Model::load(test::f32_model_path(), {});  // 512 bytes
    const auto n_products = static_cast<uint64_t>(wide->n_vocab()) * llama_model_n_embd(wide->get());
    EXPECT_EQ(narrow->n_products(0, 1), 0U);
    EXPECT_EQ(narrow->n_products(0, 2), 2 * n_products);
    EXPECT_EQ(wide->n_products(0, 1), n_products);
    EXPECT_EQ(wide->n_products(0, 2), 2 * n_products);
    EXPECT_GT(narrow->n_products(1, 0), 0U);
}

constexpr const char * no_limit = "Windows has no limit on the number of a user's threads";

// Returns the result of `body` in a child process, 0 to 255, or -1 if the child did not finish.
template <typename Body>
int in_a_child(const Body & body) {
    const pid_t child = fork();
    if (child == 0) {
        int result = 254;
        try {
            result = body();
        } catch (...) {
        }
        _exit(result);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Runs as a user other than root, because the limit does not apply to root, and allows no further thread.
bool forbid_threads() {
    const rlimit none{1, 1};
    return (geteuid() != 0 || setuid(65534) == 0) && setrlimit(RLIMIT_NPROC, &none) == 0;
}

TEST(StartableThreadCount, IsTheRequestedNumberIfPossible) { EXPECT_EQ(startable_thread_count(4), 4); }

TEST(StartableThreadCount, IsLimitedByTheSystem) {
    SKIP_ON_WINDOWS(no_limit);
    constexpr int cannot_forbid = 200;
    const int n = in_a_child([&] { return forbid_threads() ? startable_thread_count(4) : cannot_forbid; });
    if (n == cannot_forbid) GTEST_SKIP() << "the number of this user's processes cannot be limited";
    EXPECT_EQ(n, 1);
}

class ThreadsOfPasses : public test::EngineParts {};

TEST_F(ThreadsOfPasses, PassesRunIfTheSystemAllowsNoThreads) {
    SKIP_ON_WINDOWS(no_limit);
    options.n_threads = 2;
    const auto decodes = [&] {
        const auto own = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads), options,
                                                   DecoderSettings{});
        Sequence text(own, {}, cancelled);
        text.append(5);
        return text.logits() != nullptr ? 0 : 1;
    };
    EXPECT_EQ(in_a_child([&] { return forbid_threads() ? decodes() : 0; }), 0);
}

TEST_F(ThreadsOfPasses, EmbeddingWorksIfTheSystemAllowsNoThreads) {
    SKIP_ON_WINDOWS(no_limit);
    const auto embeds = [&] {
        Embedder embedder(model, std::make_shared<ComputeThreads>(4));
        return embedder.embed({"the cat"}, LLAMA_POOLING_TYPE_MEAN, Embedder::LongTexts::rejected, cancelled).empty()
                   ? 1
                   : 0;
    };
    EXPECT_EQ(in_a_child([&] { return forbid_threads() ? embeds() : 0; }), 0);
}

TEST(ComputeThreadsTurns, AreGivenInTheOrderOfRequests) {
    ComputeThreads threads(1);
    std::vector<int> order;
    std::vector<std::thread> others;
    std::atomic<int> n_waiting{0};
    {
        const ComputeThreads::Turn first(threads, 1);
        for (int i = 0; i < 4; ++i) {
            others.emplace_back([&, i] {
                while (n_waiting != i) std::this_thread::yield();
                n_waiting = i + 1;
                const ComputeThreads::Turn turn(threads, 1);
                order.push_back(i);
            });
            while (n_waiting != i + 1) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the thread waits
        }
        EXPECT_TRUE(order.empty());
    }
    for (std::thread & other : others) other.join();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(ComputeThreadsTurns, DoNotUseTheCoresOfOwnThreads) {
    BusyMachineGuard guard;
    ComputeThreads threads(0, guard);
    constexpr uint64_t many = 7'000'000'000;
    const auto n_threads = [&] { return ComputeThreads::Turn(threads, many).n_threads(); };
    EXPECT_EQ(n_threads(), threads.size());
    {
        const OwnThreads own(threads.size());
        EXPECT_EQ(n_threads(), 1);
    }
    EXPECT_EQ(n_threads(), threads.size());
}

// Tokenizing or embedding during a pass takes cores from the pass. That does not mean that other programs use the
// machine.
TEST(OwnThreads, AreDetectedIfTheyRanAfterTheMark) {
    OwnThreads::Mark mark = OwnThreads::mark();
    EXPECT_FALSE(OwnThreads::ran_since(mark));
    { const OwnThreads between(2); }
    EXPECT_TRUE(OwnThreads::ran_since(mark));
    {
        const OwnThreads before(1);
        mark = OwnThreads::mark();
    }
    EXPECT_TRUE(OwnThreads::ran_since(mark));
    EXPECT_FALSE(OwnThreads::ran_since(OwnThreads::mark()));
}

TEST_F(ThreadsOfPasses, AreAtMostTheNumberOfCpus) {
    SKIP_ON_WINDOWS("this test limits the CPUs of a child process, and Windows has no fork()");
    EXPECT_EQ(in_a_child([] { return use_one_cpu() ? usable_cpu_count() : 1; }), 1);
}

TEST(MicrosecondsWithoutCore, GrowWhileAnotherThreadHasTheOnlyCpu) {
    SKIP_ON_WINDOWS("Windows does not report waiting times");
    if (!std::ifstream("/proc/self/schedstat").good()) GTEST_SKIP() << "this system does not report waiting times";
    const int grew = in_a_child([] {
        if (!use_one_cpu()) return 1;
        std::atomic<bool> stop{false};
        std::thread other([&] {
            while (!stop) {
            }
        });
        const int64_t before = microseconds_without_core({});
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (std::chrono::steady_clock::now() < end) {
        }
        const int64_t waited = microseconds_without_core({}) - before;
        stop = true;
        other.join();
        return waited > 5000 ? 1 : 0;
    });
    EXPECT_EQ(grew, 1);
}

// Files as the kernel writes them, in a folder instead of the root.
class CpuQuota : public testing::Test {
protected:
    std::filesystem::path root = test::own_folder("cgroup");

    void SetUp() override {
#ifndef __linux__
        GTEST_SKIP() << "control groups exist only on Linux";
#endif
    }
    void TearDown() override { std::filesystem::remove_all(root); }

    double of(const std::map<std::string, std::string> & files) {
        std::filesystem::remove_all(root);
        for (const auto & [name, contents] : files) {
            std::filesystem::create_directories((root / name).parent_path());
            std::ofstream(root / name) << contents;
        }
        return cpu_quota(root.string());
    }
};

TEST_F(CpuQuota, IsTheSmallestOfAllGroups) {
    const std::string in_a_b = "0::/a/b\n";
    EXPECT_EQ(of({}), 0.0);
    EXPECT_EQ(of({{"proc/self/cgroup", in_a_b}, {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}), 0.0);
    EXPECT_EQ(of({{"proc/self/cgroup", in_a_b}, {"sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"}}), 1.5);
    EXPECT_EQ(of({{"proc/self/cgroup", in_a_b},
                  {"sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"},
                  {"sys/fs/cgroup/a/cpu.max", "200000 100000\n"},
                  {"sys/fs/cgroup/cpu.max", "max 100000\n"}}),
              2.0);
    EXPECT_EQ(of({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "50000 100000\n"}}), 0.5);
    // In a container the path is that of the host, and the container sees its own group at the top.
    EXPECT_EQ(of({{"proc/self/cgroup", "0::/docker/1\n"}, {"sys/fs/cgroup/cpu.max", "300000 100000\n"}}), 3.0);
}

TEST_F(CpuQuota, IsReadFromTheOlderControlGroups) {
    const std::string groups = "7:memory:/m\n4:cpu,cpuacct:/docker/1\n0::/\n";
    const std::string folder = "sys/fs/cgroup/cpu,cpuacct/";
    EXPECT_EQ(of({{"proc/self/cgroup", groups},
                  {folder + "docker/1/cpu.cfs_quota_us", "-1\n"},
                  {folder + "docker/1/cpu.cfs_period_us", "100000\n"}}),
              0.0);
    EXPECT_EQ(of({{"proc/self/cgroup", groups},
                  {folder + "docker/1/cpu.cfs_quota_us", "250000\n"},
                  {folder + "docker/1/cpu.cfs_period_us", "100000\n"}}),
              2.5);
    EXPECT_EQ(of({{"proc/self/cgroup", groups},
                  {folder + "cpu.cfs_quota_us", "100000\n"},
                  {folder + "cpu.cfs_period_us", "50000\n"}}),
              2.0);
}

}  // namespace
}  // namespace eliza
